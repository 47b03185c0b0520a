#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file that a document or a comment names exists.

A name with a folder may be relative to the repository's root, relative to the file that names it,
or the end of a path. A name without a folder may be anywhere. The check covers only suffixes of
sources and documents, because runs write the other files. CHANGELOG.md and records describe the
past, so they are not checked.
"""
import os
import pathlib
import re

from sources import code_files, main

SUFFIXES = r"(?:h|cpp|cu|cuh|py|sh|md|cmake)"
# A name may begin with {a,b}: layers/models/{lenet5,resnet18}.h names two files.
NAME = re.compile(rf"(?<![\w./<>*}}-])((?:[\w.+-]+/)*[\w+-][\w.+-]*\.{SUFFIXES})(?![\w*/(-])")
LINK = re.compile(r"\]\(([^)#\s]+)\)")
PLACEHOLDERS = re.compile(r"<|>|\*|\.\.\.|//|^\.\./\.\.")
# Headers of libraries and of the system, which comments may name.
FOREIGN = {"omp.h", "mma.h", "cuda.h", "cuda_runtime.h", "cuda_bf16.h", "cuda_fp16.h", "immintrin.h",
           "zlib.h",
           "DepthwiseConv2d.cu", "tensorflow/core/lib/io/record_writer.h"}
WRITTEN_BY_RUNS = {"sweep.md", "sweep.slurm.sh"}
LEFT_OUT = {"CHANGELOG.md"}


def all_files(root):
    found = []
    for base, below, names in os.walk(root):
        here = pathlib.Path(base).relative_to(root)
        below[:] = [name for name in below if name != ".git" and
                    not (here == pathlib.Path(".") and name in ("build", "runs", "shared"))]
        found += [(here / name).as_posix() for name in names]
    return found


def comments(text):
    """Yields (line number, text) of each comment line or trailing comment."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(r"(?:^|\s)//(.*)$", line)
        if match:
            yield number, match.group(1)


def problems(root):
    files = all_files(root)
    known, names = set(files), {path.rsplit("/", 1)[-1] for path in files}
    ends = {"/".join(path.split("/")[i:]) for path in files for i in range(path.count("/"))}
    folders = {str(parent) for path in files for parent in pathlib.PurePosixPath(path).parents}

    def is_there(name, where):
        if name in FOREIGN or name.startswith("_"):  # _lesson_cpu.cpp: the end of a name
            return True
        if "/" not in name:
            return name in names or name in WRITTEN_BY_RUNS
        beside = os.path.normpath((pathlib.PurePosixPath(where).parent / name).as_posix())
        return name in known or beside in known or name in ends

    found = []
    for path in code_files(root):
        for number, comment in comments((root / path).read_text()):
            found += [f"{path}:{number}: names {name}, which is not there"
                      for name in NAME.findall(comment)
                      if not PLACEHOLDERS.search(name) and not is_there(name, path)]
    for path in sorted(name for name in files if name.endswith(".md")):
        if path in LEFT_OUT or "/records/" in path:
            continue
        for number, line in enumerate((root / path).read_text().split("\n"), 1):
            for target in LINK.findall(line):
                beside = os.path.normpath((pathlib.PurePosixPath(path).parent / target).as_posix())
                if "://" not in target and beside not in known and beside not in folders:
                    found.append(f"{path}:{number}: links to {target}, which is not there")
            line = LINK.sub("]", line)
            for name in NAME.findall(line):
                if not PLACEHOLDERS.search(name) and not is_there(name, path):
                    found.append(f"{path}:{number}: names {name}, which is not there")
    return found


if __name__ == "__main__":
    main(problems)
