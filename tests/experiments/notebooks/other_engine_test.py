#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the notebooks and their headers in clang-repl 19: other_engine_test.py ROOT INCLUDE LIBRARY

Among the C++ interpreters in Debian, clang-repl (clang-tools-19) is the closest to xeus-cpp: with both, no name may
be declared twice, and a cell is one translation unit. The test runs every third notebook, which takes half a
minute, or all with CONVSCOPE_TEST_NOTEBOOKS=all. Without clang-repl the test is skipped (77).
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
PROGRAM = shutil.which("clang-repl-19")
# Headers that cells of the course include, or that a reader may include, in addition to those of
# notebook.h.
HEADERS = ("layers/conv2d/conv2d.h", "layers/conv2d/algorithm.h", "layers/conv2d/shared/lesson.h",
           "layers/conv_transpose2d/conv_transpose2d.h",
           "framework/autograd/variable.h", "layers/module.h", "optim/optimizer.h", "datasets/dataset.h",
           "layers/deform_conv2d/deform_conv2d.h", "layers/sparse_conv/algorithm.h", "layers/dispatch/run.h",
           "experiments/bench/sparse/cloud.h", "experiments/notebooks/show_sites.h")


def run(root, include, cells):
    """Returns output and errors of clang-repl; each cell is one #include."""
    with tempfile.TemporaryDirectory() as folder:
        lines = []
        for number, cell in enumerate(cells, 1):
            path = pathlib.Path(folder) / f"cell_{number}.cpp"
            path.write_text(cell + "\n")
            lines.append(f'#include "{path}"')
        words = [PROGRAM, "--Xcc=-std=c++20", "--Xcc=-O2", "--Xcc=-march=native", f"--Xcc=-I{include}",
                 f"--Xcc=-I{root}"]
        done = subprocess.run(words, input="\n".join(lines) + "\n%quit\n", capture_output=True, text=True,
                              timeout=600, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
    # clang-repl exits with 0 unless it crashes.
    complaints = [line for line in done.stderr.splitlines() if "error" in line or "terminate" in line]
    if done.returncode != 0:
        complaints.append(f"exit status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout, complaints


def code_cells(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "code"]


def main():
    root, include, library = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    os.environ["CONVSCOPE_LIBRARY"] = str(library)
    if PROGRAM is None:
        print("skipped: clang-repl-19 is not installed (Debian: apt-get install clang-tools-19)")
        sys.exit(SKIPPED)
    failed = 0

    def expect(holds, name, more=""):
        nonlocal failed
        failed += not holds
        print(f"{'ok' if holds else 'FAILED'}  {name}{more if not holds else ''}", flush=True)

    there = [header for header in HEADERS if (root / header).is_file()]
    expect(len(there) == len(HEADERS), "every header of the list is there",
           f": {set(HEADERS) - set(there)} are not")
    out, complaints = run(root, include, ["#include <convscope/notebook.h>"] +
                          [f'#include "{header}"' for header in there] +
                          ["std::cout << convscope::Tensor::zeros({2, 3}).str() << std::endl;"])
    expect(not complaints and "f32[2,3] cpu" in out, "headers", f": {out}{complaints}")
    step = 1 if os.environ.get("CONVSCOPE_TEST_NOTEBOOKS") == "all" else 3
    for path in sorted((root / "experiments/notebooks").glob("[0-9][0-9]_*.ipynb"))[::step]:
        out, complaints = run(root, include, code_cells(path))
        expect(not complaints and len(re.findall(r": not yet\.", out)) == 2, path.name,
               f": {complaints or out[-800:]}")
    # Violations of the convention are detected.
    _, complaints = run(root, include, ["int twice = 1;", "int twice = 2;"])
    expect(any("redefinition" in line for line in complaints), "a name that is declared twice is noticed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
