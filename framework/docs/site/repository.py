# SPDX-License-Identifier: Apache-2.0
"""Lists the files of the repository, and finds the file to which a word of a document refers."""

import os
import pathlib
import re

FOLDERS = ["framework", "layers", "optim", "quant", "sparsity", "datasets", "experiments", "tests"]
NO_PACKAGE = ("tests/", "experiments/baselines/", "experiments/notebooks/kernel/")
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".yaml", ".txt", ".inc"}
PICTURES = {".svg", ".png"}
FILE_NAME = re.compile(r"[\w./+-]+\.(?:h|cpp|cu|cuh|py|sh|cmake|yaml|txt|md|ipynb)")


class Repository:
    def __init__(self, root):
        self.root = root
        self.files = sorted(self._walk())
        self.known = set(self.files)
        self.folders = {
            str(parent) for name in self.files for parent in pathlib.PurePosixPath(name).parents
        }
        self.by_end = {}  # maps each end of a path to all files whose path ends so
        for name in self.files:
            parts = name.split("/")
            for i in range(len(parts)):
                self.by_end.setdefault("/".join(parts[i:]), []).append(name)

    def _walk(self):
        for name in sorted(os.listdir(self.root)):
            if (self.root / name).is_file() and not name.startswith("."):
                yield name
        for folder in FOLDERS + [".ci"]:
            for base, below, names in os.walk(self.root / folder):
                below[:] = [
                    name for name in below if name not in ("__pycache__", ".ipynb_checkpoints")
                ]
                here = pathlib.Path(base).relative_to(self.root)
                yield from ((here / name).as_posix() for name in names)

    def text(self, name):
        return (self.root / name).read_text()

    def documents(self):
        return [name for name in self.files if name.endswith(".md")]

    def notebooks(self):
        return [name for name in self.files if name.endswith(".ipynb")]

    def headers(self):
        """Returns the headers that `cmake --install` copies."""
        return [
            name for name in self.files if name.endswith(".h") and not name.startswith(NO_PACKAGE)
        ]

    def target(self, word, where):
        """Returns the file or folder to which a link refers, or None."""
        beside = os.path.normpath(os.path.join(os.path.dirname(where), word))
        if beside in self.known or beside in self.folders:
            return beside
        return None

    def named(self, word, where):
        """Returns the file to which a name in a text refers. The name is a path from the root or from the text's
        folder, or the end of exactly one path. Returns None if no path or several paths fit."""
        if not FILE_NAME.fullmatch(word):
            return None
        beside = os.path.normpath(os.path.join(os.path.dirname(where), word))
        for name in (word, beside):
            if name in self.known:
                return name
        ends = self.by_end.get(word, [])
        # If several files fit, prefer one below the folder of the text, as for `cpu/direct.cpp` in
        # a README.
        near = [name for name in ends if name.startswith(os.path.dirname(where) + "/")]
        return ends[0] if len(ends) == 1 else near[0] if len(near) == 1 else None
