# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m convscope`, and the program `convscope` that pip installs."""
from __future__ import annotations

import os
import pathlib
import sys


def main() -> int:
    """Replaces this Python process by the program `convscope` in the package. The program finds its library and
    configs by relative paths."""
    program = pathlib.Path(__file__).parent / "bin" / "convscope"
    if not program.is_file():
        print(f"convscope: expected the program {program}, found none; the package was installed without "
              "it", file=sys.stderr)
        return 6
    os.execv(program, ["convscope", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
