#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file is formatted by clang-format."""
import re
import shutil
import subprocess
import sys

from sources import SKIPPED, code_files, main


def problems(root):
    files = [str(path) for path in code_files(root) if path.suffix in (".h", ".cpp")]
    if not files:
        return []
    run = subprocess.run(["clang-format", "--dry-run", "--Werror", "-style=file", *files],
                         cwd=root, capture_output=True, text=True)
    # One line for each file; without any, clang-format itself failed.
    named = sorted(set(re.findall(r"^(\S+?):\d+:\d+: (?:error|warning)", run.stderr, re.MULTILINE)))
    found = [f"{name}: run clang-format -i on it" for name in named]
    return found or ([run.stderr] if run.returncode else [])


if __name__ == "__main__":
    if shutil.which("clang-format") is None:
        print("skipped: clang-format is not installed")
        sys.exit(SKIPPED)
    main(problems)
