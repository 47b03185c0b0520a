#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds Markdown files that clang-format has reformatted as if they were code."""
import os
import pathlib
import re

from sources import main

SCARS = [
    (re.compile(r"^#+[^#\s!]"), "a heading without a space"),
    (re.compile(r"\*\s\*\S.*\*\*|\*\*\S.*\*\s\*(?!\*)"), "bold type taken apart"),
    (re.compile(r"`[\w.]+ / [\w./ ]+\.\w+`"), "a path with spaces around its slash"),
    (re.compile(r"^\s*[.,:]\s*$"), "a line of punctuation alone"),
    (re.compile(r"[a-z]\.\d\. ?\*"), "two entries of a list in one line"),
    (re.compile(r"`[^`]*\w-- \w[^`]*`"), "an option torn from its dashes"),
]


def problems(root):
    found = []
    for base, below, names in os.walk(root):
        here = pathlib.Path(base).relative_to(root)
        below[:] = sorted(name for name in below if not name.startswith(".") and
                          not (here == pathlib.Path(".") and name in ("build", "runs", "shared")))
        for name in sorted(name for name in names if name.endswith(".md")):
            fenced = False
            for number, line in enumerate((root / here / name).read_text().split("\n"), 1):
                fenced ^= line.lstrip().startswith("```")
                if fenced or line.startswith("    ") and not line.lstrip()[:1] in ".,:":
                    continue
                found += [f"{here / name}:{number}: {what}: clang-format was here"
                          for scar, what in SCARS if scar.search(line)]
    return found


if __name__ == "__main__":
    main(problems)
