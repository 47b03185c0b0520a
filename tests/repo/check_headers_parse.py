#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles as the only include, without warnings.

If a .cpp file first includes the header of the same name, every build that compiles file by file (the preset `ci`,
the fuzzers) tests this header. This check parses all other headers.

With CONVSCOPE_PARSE_LATELY=N, the check parses only the N headers that the newest commits changed, and the headers
that include one of these directly. This saves a minute in each test run; .ci/nightly parses all headers.

CONVSCOPE_PARSE_CACHE may name a file that lists the headers that passed. A header is parsed again if its text, a
project header that it includes, the compiler or the flags have changed.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess

from compile_alone import changed_lately
from sources import includes, main, public_headers

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-x", "c++"]

SCALAR = ["-DCONVSCOPE_ISA=isa_scalar", "-DCONVSCOPE_ISA_ENUM=scalar", "-DCONVSCOPE_ISA_IS_SCALAR=1"]


def fingerprint(root, path, compiler):
    """Returns a hash of everything that decides how the header parses."""
    todo, seen = [str(path)], set()
    digest = hashlib.sha256(repr((compiler, FLAGS)).encode())
    while todo:
        name = todo.pop()
        if name in seen or not (root / name).is_file():
            continue
        seen.add(name)
        text = (root / name).read_text()
        digest.update(text.encode())
        todo += [target for _, bracket, target in includes(text) if bracket == '"']
    return digest.hexdigest()


def comes_first(root, path):
    """Returns whether the .cpp file of the same name includes this header first."""
    own = (root / path).with_suffix(".cpp")
    return own.is_file() and [name for _, _, name in includes(own.read_text())][:1] == [str(path)]


def problems(root):
    compiler = os.environ.get("CONVSCOPE_CXX") or shutil.which("c++") or "g++"
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
    cache = pathlib.Path(os.environ.get("CONVSCOPE_PARSE_CACHE", os.devnull))
    known = set(json.loads(cache.read_text() or "[]")) if cache.is_file() else set()

    def parse(path):
        # Kernel headers are parsed as in the scalar copy (framework/simd/simd.h).
        text = (root / path).read_text()
        isa = SCALAR if "CONVSCOPE_ISA" in text and path.name != "cpu_isa.h" else []
        # The header is included by a main file, because #pragma once in the main file itself causes
        # a warning.
        run = subprocess.run([compiler, *FLAGS, *isa, f"-I{root}", "-"], input=f'#include "{path}"\n',
                             capture_output=True, text=True)
        return f"{path}: does not compile alone:\n{run.stderr}" if run.returncode else None

    most = int(os.environ.get("CONVSCOPE_PARSE_LATELY", "0"))
    changed = set(changed_lately(most, "*.h") or []) if most else set()

    def taken(path):
        names = {str(path)} | {target for _, _, target in includes((root / path).read_text())}
        return (not changed or names & changed) and not comes_first(root, path)

    prints = {path: fingerprint(root, path, version) for path in public_headers(root) if taken(path)}
    headers = [path for path in prints if prints[path] not in known]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        answers = dict(zip(headers, pool.map(parse, headers)))
    if cache != pathlib.Path(os.devnull):
        cache.write_text(json.dumps([prints[path] for path in prints if not answers.get(path)]))
    print(f"{len(prints)} headers, {len(headers)} of them new or changed")
    return [answer for answer in answers.values() if answer]


if __name__ == "__main__":
    main(problems)
