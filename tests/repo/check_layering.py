#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks which folders may include which others (framework/docs/architecture.md, Folders), also inside the
folders of operators, and that only framework/simd contains intrinsics of an instruction set."""
import pathlib
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
# Each operator has one subfolder per algorithm. Code that several algorithms use is in the
# subfolder `shared`.
HEAVY = [("layers", "conv2d"), ("layers", "conv_transpose2d"), ("layers", "deform_conv2d"),
         ("layers", "sparse_conv")]
# Another operator may use it, too.
SHARED = "shared"
# Operations that replace several layers may call the kernels of any algorithm of their operator.
FUSIONS = "fusions"
# Code that all operators share. It knows no layer: among the folders of `layers`, it includes only
# itself.
DISPATCH = ("layers", "dispatch")
# The only folder that knows the vectors of an instruction set.
SIMD = ("framework", "simd")
INTRINSIC = re.compile(r"\b_mm\d*_\w+|\b__m(?:64|128|256|512)[dih]?\b|\b__mmask\d+|\b_MM_\w+"
                       r"|\b\w*mmintrin\.h|\bimmintrin\.h|\b__builtin_ia32_(?!pause)\w+|\barm_neon\.h"
                       r"|\bCONVSCOPE_ISA_IS_\w+")


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
            elif path.parts[:2] == DISPATCH and first == "layers" and not inside(target, DISPATCH):
                found.append(f"{where}: {'/'.join(DISPATCH)} knows no layer, so it must not include "
                             f"{target}")
            else:
                found += folder_problems(path, where, target)
        if path.parts[:2] != SIMD:
            for number, line in enumerate(text.splitlines(), 1):
                if match := INTRINSIC.search(line):
                    found.append(f"{path}:{number}: {match.group()} belongs in {'/'.join(SIMD)}, as an "
                                 "operation with a name")
    return found


def inside(target, folder):
    return pathlib.PurePosixPath(target).parts[:2] == folder


def folder_of(path):
    """Returns the operator that a file belongs to and its folder in the operator, without cpu/ or
    cuda/. The folder is "" for the operator's core, and "int8/int8_direct" for an algorithm of a
    family. For any other file, returns (None, "")."""
    layer = tuple(path.parts[:2])
    if layer not in HEAVY:
        return None, ""
    parts = path.parts[2:-1]
    return layer, "/".join(parts[:-1] if parts[-1:] in (("cpu",), ("cuda",)) else parts)


def may_include(own, folder):
    """Says whether a folder of an operator may include another one: itself, the core, `shared`, and in
    a family of algorithms what is above it and the family's `shared`."""
    family = own.split("/")[0]
    return (folder in ("", own, family) or own == FUSIONS
            or folder.split("/")[0] == SHARED or folder == f"{family}/{SHARED}")


def folder_problems(path, where, target):
    """Checks that an algorithm's folder includes only itself, `shared` and the core, and that only
    tests include its files from outside."""
    layer, folder = folder_of(pathlib.PurePosixPath(target))
    own_layer, own_folder = folder_of(path)
    if layer is None or path.parts[0] == "tests" or folder == "":
        return []
    if folder.split("/")[0] == SHARED and own_layer in HEAVY:
        return []
    if own_layer == layer and own_folder and may_include(own_folder, folder):
        return []
    if own_layer == layer and own_folder.split("/")[0] not in ("", SHARED):
        return [f"{where}: folder {own_folder} includes a header of folder {folder} ({target}): what both "
                f"need belongs in {'/'.join(layer)}/{SHARED}"]
    return [f"{where}: {own_folder or 'a file outside of the folders'} includes a header of folder {folder} "
            f"({target})"]


if __name__ == "__main__":
    main(problems)
