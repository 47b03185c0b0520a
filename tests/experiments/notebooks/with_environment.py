#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a script with the Python in which cppyy is installed: with_environment.py ROOT SCRIPT
ARGUMENT...

Uses the Python of CONVSCOPE_NOTEBOOK_ENV, or that of build/notebooks/env, which `./bootstrap.sh
notebooks` creates. If neither exists or its packages are outdated, the test is skipped (77).
"""
import os
import pathlib
import sys

SKIPPED = 77


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(root / "experiments/notebooks"))
    import set_up
    environment = pathlib.Path(os.environ.get("CONVSCOPE_NOTEBOOK_ENV") or root / "build/notebooks/env")
    if not set_up.is_ready(environment, lab=False):
        print(f"skipped: {environment} holds no packages of today's requirements.txt; "
              "./bootstrap.sh notebooks installs them")
        sys.exit(SKIPPED)
    python = str(set_up.python_of(environment))
    os.execv(python, [python, *sys.argv[2:]])


if __name__ == "__main__":
    main()
