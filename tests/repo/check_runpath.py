#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No program or library searches for libraries in the current folder.

The argument is a build folder or an installed tree. An empty RUNPATH entry means the current folder, as does every
entry that does not begin with / or $ORIGIN. If the current folder then contained a file with the name of a library,
the program would load the file and run its code.
"""
import re
import subprocess

from sources import main


def entry_problems(name, listing):
    """Returns the problems in the output of `readelf -d` for one file."""
    found = []
    for path in re.findall(r"Library (?:runpath|rpath): \[(.*)\]", listing):
        for entry in path.split(":"):
            if not entry.startswith(("/", "$ORIGIN")):
                found.append(f"{name}: RUNPATH [{path}] has the entry '{entry}', which is the folder of "
                             "whoever calls it")
    return found


def problems(tree):
    found, count = [], 0
    for path in sorted([*tree.glob("bin/*"), *tree.glob("lib/**/*.so*")]):
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        run = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True)
        found += entry_problems(path.relative_to(tree), run.stdout)
        count += 1
    print(f"{count} programs and libraries")
    if count == 0:
        found.append(f"{tree}: expected programs in bin/ or libraries in lib/, got none")
    return found


if __name__ == "__main__":
    main(problems)
