#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that objects compiled for AVX2 or AVX-512 contain no code that runs on a CPU without these
instructions.

Two kinds of symbols are refused. The first is a weak symbol outside the namespace of the instruction set. The
linker keeps one copy of it for all CPUs, possibly the copy that is compiled for AVX-512. The second is a start-up
function, because it runs on any CPU when the library is loaded. The argument is the build folder.
"""
import re
import subprocess

from sources import main


def symbol_problems(name, isa, listing):
    """Returns the problems in the output of `nm -C` for one object."""
    found = []
    for line in listing.splitlines():
        match = re.match(r"^[0-9a-f]*\s+([A-Za-z])\s+(.+)$", line)
        if not match:
            continue
        kind, symbol = match.groups()
        # Kinds of symbols in nm: v, V, w and W are weak, u is unique. A weak symbol without an
        # address is only a reference.
        defined = re.match(r"^[0-9a-f]", line) is not None
        if defined and kind in "vVwWu" and f"isa_{isa}::" not in symbol:
            found.append(f"{name}: weak symbol {symbol}: the linker may use it for every CPU")
        if symbol.startswith(("_GLOBAL__sub_I", "__static_initialization", "_GLOBAL__I")):
            found.append(f"{name}: start-up code ({symbol}) would run on every CPU")
    return found


def problems(build):
    found = []
    count = 0
    for isa in ("avx2", "avx512", "avx2_vnni", "avx512_vnni"):
        for path in sorted(build.glob(f"CMakeFiles/convscope_simd_{isa}.dir/**/*.o")):
            run = subprocess.run(["nm", "-C", str(path)], capture_output=True, text=True, check=True)
            found += symbol_problems(path.relative_to(build), isa, run.stdout)
            count += 1
    print(f"{count} objects")
    return found


if __name__ == "__main__":
    main(problems)
