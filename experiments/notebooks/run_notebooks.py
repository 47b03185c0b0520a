#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs notebooks without a window: run_notebooks.py [--html DIR] [--solutions] FILE...

The environment's Python runs it (set_up.py). A cell that fails ends its notebook; the exit code is 1
and the output names the cell. The kernel is that of this folder, with CONVSCOPE_INCLUDE and
CONVSCOPE_LIBRARY of the environment, or what `set_up.py` installed.

--html DIR    writes a page for each notebook, with its outputs
--solutions   puts the solutions, which stand folded below their checks, into the cells of the
              exercises, and expects every check to say "right"; without it each must say "not yet"
"""
import argparse
import os
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CELL_TIMEOUT_S = 120
SOLUTION = re.compile(r"```cpp\n(.*?)```", re.DOTALL)


def kernel_manager():
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    manager = AsyncKernelManager(kernel_name="xcpp20")
    if os.environ.get("CONVSCOPE_INCLUDE"):
        manager._kernel_spec = KernelSpec(
            argv=[sys.executable, str(HERE / "kernel" / "kernel.py"), "-f", "{connection_file}"],
            display_name="C++20 (Convscope)", language="C++",
            env={"OMP_WAIT_POLICY": "passive"})
    return manager


def tag_of(cell, kind):
    """"1" of a cell with the tag "exercise-1"."""
    for tag in cell.metadata.get("tags", []):
        if tag.startswith(kind + "-"):
            return tag[len(kind) + 1:]
    return None


def put_solutions_in(notebook):
    solutions = {tag_of(cell, "solution"): SOLUTION.search(cell.source)[1]
                 for cell in notebook.cells if tag_of(cell, "solution")}
    for cell in notebook.cells:
        number = tag_of(cell, "exercise")
        if number:
            cell.source = solutions[number]


def text_of(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def wrong_checks(notebook, solved):
    """Checks of exercises that do not say what they should."""
    word = "right" if solved else "not yet"
    return [f"exercise {tag_of(cell, 'check')}: expected its check to say '{word}', got '{text_of(cell).strip()}'"
            for cell in notebook.cells
            if tag_of(cell, "check") and not re.search(rf": {word}\b", text_of(cell))]


def run(path, solved):
    """(the notebook with its outputs, what is wrong or None)"""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    notebook = nbformat.read(path, as_version=4)
    if solved:
        put_solutions_in(notebook)
    client = NotebookClient(notebook, km=kernel_manager(), timeout=CELL_TIMEOUT_S,
                            startup_timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(path.parent)}})
    try:
        client.execute()
    except CellExecutionError as error:
        return notebook, f"a cell failed with {error.ename}: {error.evalue}"
    except (CellTimeoutError, DeadKernelError) as error:
        return notebook, str(error)
    wrong = wrong_checks(notebook, solved)
    return notebook, "; ".join(wrong) or None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--html", type=pathlib.Path)
    parser.add_argument("--solutions", action="store_true")
    arguments = parser.parse_args()
    failed = 0
    for path in arguments.files:
        begin = time.monotonic()
        notebook, wrong = run(path.resolve(), arguments.solutions)
        failed += wrong is not None
        print(f"{'FAILED' if wrong else 'ok'}  {path.name}  {time.monotonic() - begin:.1f} s", flush=True)
        if wrong:
            print(wrong, flush=True)
        if arguments.html:
            import page
            arguments.html.mkdir(parents=True, exist_ok=True)
            out = arguments.html / f"{path.stem}.html"
            out.write_text(page.to_html(notebook, path.stem))
            print(f"wrote {out}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
