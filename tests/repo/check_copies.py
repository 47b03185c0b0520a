#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that small arithmetic functions and vector types are defined in one file, not copied into
many."""
import re

from sources import code_files, main

ONE_PLACE = [
    (re.compile(r"^\s*(?:\w[\w:<> ]*\s)?(?:ceil_div|round_up|floor_div|div_up|round_up_to)"
                r"\s*\(\s*[\w:]+ \w+, [\w:]+ \w+\)\s*\{", re.MULTILINE),
     "framework/int_math.h", "arithmetic of framework/int_math.h"),
    (re.compile(r"\(\w+ \+ (\w+) - 1\) / \1\b"),
     "framework/int_math.h", "ceil_div() of framework/int_math.h"),
    (re.compile(r"\bstruct \w*Divi(?:sor|der|sion)\w* \{(?![^}]*FastDivisor)"),
     "framework/int_math.h", "FastDivisor of framework/int_math.h"),
    (re.compile(r"\b\w*transpose_?(?:4x4|8x8|16)\w*\([^)]*\) \{"),
     "lane_transpose.h", "framework/simd/lane_transpose.h"),
]


def problems(root):
    found = []
    for path in code_files(root):
        if path.parts[0] == "tests":
            continue
        text = (root / path).read_text()
        for pattern, place, what in ONE_PLACE:
            if path.as_posix().endswith(place):
                continue
            found += [f"{path}:{text.count(chr(10), 0, match.start() + 1) + 1}: looks like a copy of "
                      f"{what}"
                      for match in pattern.finditer(text)]
    return found


if __name__ == "__main__":
    main(problems)
