#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (framework/docs/design.md, section 2)."""
import re

from sources import FOLDERS, code_files, includes, main

MAY_INCLUDE = {
    "framework": {"framework"},
    "layers": {"framework", "layers"},
    "optim": {"framework", "optim"},
    "datasets": {"framework", "datasets"},
    "quant": {"framework", "layers", "quant"},
    "sparsity": {"framework", "layers", "sparsity"},
    "experiments": set(FOLDERS) - {"tests"},
    "tests": set(FOLDERS),
}
# What every algorithm of a heavy layer may use beside the framework and its own headers.
SHARED_BY_ALGORITHMS = {"algorithm.h", "problem.h", "policy.h"}
ALGORITHM_FILE = re.compile(r"^(\w+?)_(cpu\.cpp|simd\.cpp|cuda\.cu)$")


def algorithm_names(root, folder):
    """The names in front of _cpu.cpp and _cuda.cu in the folder of a heavy layer, of the files that
    hold a card: <algorithm>_<part>_cuda.cu without one belongs to its algorithm."""
    names = set()
    for path in (root / folder).iterdir():
        match = re.match(r"^(\w+)_(cpu\.cpp|cuda\.cu)$", path.name)
        if match and "CONVSCOPE_CONV2D_ALGORITHM(" in path.read_text():
            names.add(match.group(1))
    return names


def problems(root):
    found = []
    for path in code_files(root):
        text = (root / path).read_text()
        folder = path.parts[0]
        for line, bracket, target in includes(text):
            if bracket == "<":
                continue
            where = f"{path}:{line}"
            first = target.split("/")[0]
            if first not in FOLDERS or not (root / target).is_file():
                found.append(f"{where}: \"{target}\" is not a file, seen from the repository's root")
            elif first not in MAY_INCLUDE[folder]:
                found.append(f"{where}: {folder} must not include {first} ({target})")
            elif path.parts[:2] == ("layers", "conv2d"):
                found += algorithm_problems(root, path, where, target)
    return found


def algorithm_problems(root, path, where, target):
    """An algorithm file includes no other algorithm."""
    if not ALGORITHM_FILE.match(path.name) or not target.startswith("layers/conv2d/"):
        return []
    name = target.split("/")[-1]
    if name in SHARED_BY_ALGORITHMS:
        return []
    algorithms = algorithm_names(root, "layers/conv2d")
    longest = lambda file: max((a for a in algorithms
                                if file.startswith(a + "_") or file.startswith(a + ".")),
                               key=len, default=None)
    owner, other = longest(path.name), longest(name)
    if other is not None and owner is not None and other != owner:
        return [f"{where}: algorithm {owner} includes a header of algorithm {other} ({target})"]
    return []


if __name__ == "__main__":
    main(problems)
