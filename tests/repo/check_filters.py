#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each pattern of a GoogleTest filter matches a case: check_filters.py ROOT BUILD_DIR

A renamed test silently empties a filter. Reads the filters of tests/CMakeLists.txt and of .ci/jobs.sh and the tests
of the planted mistakes (tests/mutants/list), and asks the programs in BUILD_DIR/bin for their cases.
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

from sources import SKIPPED

PROGRAMS = ("cuda", "datasets", "emulation", "experiments", "framework", "layers", "optim", "quant", "sparsity")


def cases_of(build):
    """Returns the names of all cases, as Suite.Case, of all test programs; those of the long lists too."""
    names = []
    for program in sorted((build / "bin").glob("test_*")):
        done = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, check=True,
                              env={**os.environ, "CONVSCOPE_TEST_LISTS": "long"})
        suite = ""
        for line in done.stdout.split("\n"):
            if line.startswith("  "):
                names.append(suite + line.split()[0])
            elif line.endswith(".") or "  #" in line:
                suite = line.split()[0]
    return names


def patterns(root):
    """Returns pairs of a file and a pattern. Patterns with variables of the shell or of CMake are left out."""
    found = []
    for name, filters in (("tests/CMakeLists.txt", r'GTEST_FILTER=([^"${}\n]+)"|set\(overlaps "([^"]+)"'),
                          (".ci/jobs.sh", r"(?m)^long\+?='?([^'\n]+)|^where_threads_meet\+?=[\"']([^\"'\n]+)")):
        for groups in re.findall(filters, (root / name).read_text()):
            found += [(name, one) for text in groups for one in re.split(r"[:\s]|(?<!\w)-", text)]
    for path in sorted((root / "tests/mutants/list").glob("*.txt")):
        for text in re.findall(r"(?m)^test: \w+ (.*)$", path.read_text()):
            found += [(path.relative_to(root).as_posix(), one) for one in re.split(r"[:\s]|(?<!\w)-", text)]
    found = [(name, one.strip("'\"")) for name, one in found if "$" not in one]
    return sorted({(name, one) for name, one in found if "." in one or "*" in one})


def problems(root, names):
    return [f"{file}: no case matches '{one}'" for file, one in patterns(root)
            if not any(fnmatch.fnmatchcase(name, one) for name in names)]


def main():
    root, build = map(pathlib.Path, sys.argv[1:])
    missing = [name for name in PROGRAMS if not (build / "bin" / f"test_{name}").exists()]
    if missing:
        print(f"skipped: without the programs of {', '.join(missing)} their filters cannot be checked")
        sys.exit(SKIPPED)
    names = cases_of(build)
    found = problems(root, names)
    print(*found, f"{len(found)} problems, {len(patterns(root))} patterns, {len(names)} cases", sep="\n")
    sys.exit(1 if found or not names else 0)


if __name__ == "__main__":
    main()
