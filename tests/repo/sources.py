# SPDX-License-Identifier: Apache-2.0
"""Functions that the repository checks share: the list of source files, and how a check reports
problems."""
import argparse
import os
import pathlib
import re
import sys

FOLDERS = ["framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments", "tests"]
CODE = {".h", ".cpp", ".cu", ".cuh"}
SKIPPED = 77  # ctest's SKIP_RETURN_CODE
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def code_files(root, folders=None):
    """Returns all C++ and CUDA files, sorted, as paths relative to root."""
    found = []
    for folder in folders or FOLDERS:
        for base, below, names in os.walk(root / folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(names):
                if pathlib.Path(name).suffix in CODE:
                    found.append((pathlib.Path(base) / name).relative_to(root))
    return found


def public_headers(root):
    """Returns the headers that `cmake --install` copies: all except those of the tests, the baselines, the
    Python module and the notebooks' kernel."""
    return [path for path in code_files(root, [f for f in FOLDERS if f != "tests"])
            if path.suffix == ".h" and path.parts[:2] not in (("experiments", "baselines"), ("experiments", "python"))
            and path.parts[:3] != ("experiments", "notebooks", "kernel")]


def includes(text):
    """Yields (line, bracket, path) of each #include."""
    return [(text.count("\n", 0, match.start(2)) + 1, match.group(1), match.group(2))
            for match in INCLUDE.finditer(text)]


def main(problems):
    """Prints the results of problems(root) for the root on the command line; exits with 1 if there
    are any."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    found = problems(parser.parse_args().root.resolve())
    for problem in found:
        print(problem)
    print(f"{len(found)} problems")
    sys.exit(1 if found else 0)
