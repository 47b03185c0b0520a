#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No file longer than 600 lines; prints the median and the 90th percentile."""
from sources import code_files, main

LIMIT = 600


def problems(root):
    counts = {path: len((root / path).read_text().splitlines()) for path in code_files(root)}
    ordered = sorted(counts.values()) or [0]
    print(f"{len(counts)} files, {sum(ordered)} lines: median {ordered[len(ordered) // 2]}, "
          f"p90 {ordered[len(ordered) * 9 // 10]}, longest {ordered[-1]}")
    return [f"{path}: {count} lines, the limit is {LIMIT}"
            for path, count in sorted(counts.items()) if count > LIMIT]


if __name__ == "__main__":
    main(problems)
