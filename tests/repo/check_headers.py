#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the header comment of each file, that each algorithm of conv2d has or names a lesson, and the
includes of public headers and of files compiled per instruction set."""
import re

from sources import code_files, includes, main, public_headers

SPDX = "// SPDX-License-Identifier: Apache-2.0"
# CONTRIBUTING.md: the header of a kernel file
ALGORITHM_FIELDS = ["Formula", "Textbook", "Method", "Shapes", "Supports", "Cost", "Numerics", "Backward",
               "Choices", "Source", "Read next"]
# Names of kernel files. In an algorithm's folder their header comment needs a first sentence and a
# field 'Read next'.
KERNELS = re.compile(r"_simd\.cpp$|\.cuh?$")
ALGORITHM = re.compile(r"^CONVSCOPE_(REGISTER_)?(CONV2D|CONV|ALGORITHM)(?!\w*_(LADDER|LESSON)\()\w*\(",
                  re.MULTILINE)
NOT_IN_PUBLIC = re.compile(r"^(fmt|Eigen|yaml-cpp|nlohmann|curl|CLI|cuda\w*|cublas\w*|cudnn\w*)(/|$)"
                           r"|^(omp|zlib|cuda\w*|immintrin|x86intrin|arm_neon)\.h")
# Standard headers with templates or inline functions. A file that is compiled for one instruction
# set must not include them. The linker keeps one copy of such a function for the whole program,
# possibly the copy for AVX-512.
NOT_IN_SIMD = re.compile(r"^(algorithm|array|cmath|deque|fstream|functional|iostream|list|map|memory"
                         r"|numeric|optional|set|span|sstream|string|string_view|tuple|type_traits"
                         r"|unordered_\w+|utility|variant|vector)$|^(Eigen|fmt|nlohmann)/")


def problems(root):
    found = []
    public = set(public_headers(root))
    for path in code_files(root):
        text = (root / path).read_text()
        lines = text.split("\n")
        if lines[0] != SPDX:
            found.append(f"{path}:1: expected '{SPDX}'")
        if path.suffix == ".h":
            if not re.search(r"^#pragma once$", text, re.MULTILINE):
                found.append(f"{path}:1: expected '#pragma once'")
        if len(lines) < 2 or not lines[1].startswith(f"// {path.name}: "):
            found.append(f"{path}:2: expected '// {path.name}: <what it is for>'")
        if KERNELS.search(path.name) and path.parts[:2] == ("layers", "conv2d") and \
                not re.search(r"^// Read next +\S", text, re.MULTILINE):
            found.append(f"{path}: its header lacks Read next")
        used = includes(text)
        if path in public and path.name not in ("avx512.h", "avx2.h"):
            found += [f"{path}:{line}: a public header must not include <{target}>"
                      for line, bracket, target in used if NOT_IN_PUBLIC.match(target)]
        if path.name.endswith("_simd.cpp"):
            found += [f"{path}:{line}: a *_simd.cpp file must not include <{target}>: the linker "
                      "may keep its copy for an instruction set the CPU lacks"
                      for line, bracket, target in used
                      if bracket == "<" and NOT_IN_SIMD.match(target)]
        if any(target.startswith("Eigen/") for _, _, target in used) and \
                path.parts[0] != "tests" and "#define EIGEN_DONT_PARALLELIZE" not in text:
            found.append(f"{path}: expected '#define EIGEN_DONT_PARALLELIZE' before Eigen: with "
                         "OpenMP on it starts threads of its own")
        if re.search(r"^\s*#\s*pragma\s+omp\b", text, re.MULTILINE) and \
                path.as_posix() != "framework/parallel.cpp":
            found.append(f"{path}: OpenMP pragmas belong into framework/parallel.cpp only")
        if path.suffix in (".cpp", ".cu") and path.parts[0] == "layers" and ALGORITHM.search(text):
            found += algorithm_problems(path, lines)
            if path.parts[:2] == ("layers", "conv2d"):
                found += lesson_problems(root, path, lines)
    return found


def lesson_problems(root, path, lines):
    """A folder with an algorithm, or the folder of its family above it, has a lesson. Otherwise the algorithm is a
    schedule of an algorithm with a lesson, which its README and the header of its file name."""
    folder = path.parent.parent if path.parent.name in ("cpu", "cuda") else path.parent
    if any("_lesson_" in other.name for place in (folder, folder.parent) for other in (root / place).iterdir()):
        return []
    head = "".join(line for line in lines if line.startswith("//"))
    readme = root / folder / "README.md"
    texts = {path: head, folder / "README.md": readme.read_text() if readme.is_file() else ""}
    lessons = {other.name for other in (root / folder.parent).glob("*/*_lesson_*.*")}
    return [f"{where}: expected the name of a lesson (*_lesson_*), whose loop nest the algorithm schedules, because "
            f"{folder} has none" for where, text in texts.items() if not any(name in text for name in lessons)]


def algorithm_problems(path, lines):
    head = []
    for line in lines[1:]:
        if not line.startswith("//"):
            break
        head.append(line[2:].strip())
    found = []
    order = [next((i for i, line in enumerate(head) if re.match(rf"{field}\b", line)), None)
             for field in ALGORITHM_FIELDS]
    missing = [field for field, at in zip(ALGORITHM_FIELDS, order) if at is None]
    if missing:
        found.append(f"{path}: its header lacks {', '.join(missing)}")
    elif order != sorted(order):
        found.append(f"{path}: expected its header's fields in the order {', '.join(ALGORITHM_FIELDS)}")
    return found


if __name__ == "__main__":
    main(problems)
