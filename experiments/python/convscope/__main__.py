# SPDX-License-Identifier: Apache-2.0
"""`python -m convscope`, and the program `convscope` that pip installs: the command line."""
from __future__ import annotations

import os
import pathlib
import sys


def main() -> int:
    """Becomes the program that lies in the package, which finds its library and its configs beside it."""
    program = pathlib.Path(__file__).parent / "bin" / "convscope"
    if not program.is_file():
        print(f"convscope: expected the program {program}, found none; the package was installed without "
              "it", file=sys.stderr)
        return 6
    os.execv(program, ["convscope", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
