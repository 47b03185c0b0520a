#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no file has more than 600 lines, no line more than 100 columns, no folder more than 30
files, and that git has no binary file. Prints the median and the 90th percentile of the files'
lengths."""
import collections
import subprocess

from sources import code_files, main

LINES = 600
COLUMNS = 100
FILES = 30


def binary_files(root):
    """Returns the files in git that are not text. Data, pictures and packages must be generated or
    downloaded instead."""
    done = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True)
    if done.returncode != 0:  # an unpacked archive
        return []
    return [path for path in done.stdout.decode().split("\0")
            if path and (root / path).is_file() and b"\0" in (root / path).read_bytes()]


def problems(root):
    texts = {path: (root / path).read_text().splitlines() for path in code_files(root)}
    ordered = sorted(map(len, texts.values())) or [0]
    print(f"{len(texts)} files, {sum(ordered)} lines: median {ordered[len(ordered) // 2]}, "
          f"p90 {ordered[len(ordered) * 9 // 10]}, longest {ordered[-1]}")
    found = [f"{path}: {len(lines)} lines, the limit is {LINES}"
             for path, lines in sorted(texts.items()) if len(lines) > LINES]
    found += [f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS}"
              for path, lines in sorted(texts.items())
              for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    folders = collections.Counter(path.parent for path in texts)
    found += [f"{folder}: {count} source files, the limit is {FILES}"
              for folder, count in sorted(folders.items()) if count > FILES]
    found += [f"{path}: a binary file; git keeps text alone" for path in binary_files(root)]
    return found


if __name__ == "__main__":
    main(problems)
