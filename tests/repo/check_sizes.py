#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no file has more than 600 lines (900 in ONE_IDEA), no line more than 100 columns, no
folder more than 30 files, no algorithm's folder more than 12, and that git has no binary file.
Prints the median and the 90th percentile of the files' lengths."""
import collections
import subprocess

from sources import code_files, main

LINES = 600
# Longer files, of at most ONE_IDEA_LINES: each holds one idea that a cut would spread over files.
ONE_IDEA_LINES = 900
ONE_IDEA = {
    "layers/deform_conv2d/fused/cuda/deform_fused_cuda.cu",
    "layers/deform_conv2d/fused/cuda/deform_passes.cuh",
    "layers/deform_conv2d/fused/cuda/deform_sampler.cuh",
}
COLUMNS = 100
FILES = 30
# Files of an algorithm, with those of its subfolders cpu/ and cuda/. `shared` is a folder like one.
ALGORITHM_FILES = 12
OPERATORS = ("conv2d", "conv_transpose2d", "deform_conv2d", "sparse_conv")
# Folders that still have to shrink, with the number of files that they may not exceed.
STILL_LARGE = {
    "layers/conv2d/depthwise": 43,
    "layers/conv2d/implicit_gemm_tma": 24,
    "layers/conv2d/shared": 41,
}


def algorithm_folder(path):
    """Returns the folder of the algorithm that a file belongs to, without cpu/ or cuda/, or None for
    a file that belongs to no algorithm."""
    parts = path.parent.parts
    if parts[:1] != ("layers",) or len(parts) < 3 or parts[1] not in OPERATORS:
        return None
    return "/".join(parts[:-1] if parts[-1] in ("cpu", "cuda") else parts)


def algorithm_problems(paths):
    counts = collections.Counter(folder for path in paths if (folder := algorithm_folder(path)))
    for folder, count in sorted(counts.items()):
        most = STILL_LARGE.get(folder, ALGORITHM_FILES)
        if count > most:
            yield (f"{folder}: {count} source files with those of cpu/ and cuda/, the limit is {most}: "
                   "merge files that add one thing, or give a second algorithm its own folder")
    for folder in STILL_LARGE:
        if 0 < counts[folder] <= ALGORITHM_FILES:
            yield f"{folder}: {counts[folder]} source files; remove it from STILL_LARGE"


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
    found = [f"{path}: {len(lines)} lines, the limit is {most}" for path, lines in sorted(texts.items())
             if len(lines) > (most := ONE_IDEA_LINES if path.as_posix() in ONE_IDEA else LINES)]
    found += [f"{path}:{number}: {len(line)} columns, the limit is {COLUMNS}"
              for path, lines in sorted(texts.items())
              for number, line in enumerate(lines, 1) if len(line) > COLUMNS]
    folders = collections.Counter(path.parent for path in texts)
    found += [f"{folder}: {count} source files, the limit is {FILES}"
              for folder, count in sorted(folders.items()) if count > FILES]
    found += algorithm_problems(texts)
    found += [f"{path}: a binary file; git keeps text alone" for path in binary_files(root)]
    return found


if __name__ == "__main__":
    main(problems)
