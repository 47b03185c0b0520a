#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles recently changed files one by one. Each file must include what it uses.

    compile_alone.py BUILD [--most N] [--jobs N]

CI compiles several files as one unit, with a precompiled header, which hides a missing include.
BUILD is a configured build folder without unity builds and without precompiled headers, such as
that of the preset `clang`. The script checks the syntax of the N (default 40) .cpp files that the
newest commits changed. The last line is 'N passed, N failed, N skipped'. Without a git history the
script checks no file, and reports '1 skipped'.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def changed_lately(most, pattern="*.cpp"):
    """Returns the paths of the files that the newest commits changed, newest first, or None without
    a git history."""
    done = subprocess.run(["git", "-C", ROOT, "log", "--first-parent", "-m", "--name-only",
                           "--diff-filter=AMR", "--format=", "-n", "200", "--", pattern],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return None
    paths = dict.fromkeys(line for line in done.stdout.splitlines() if line)
    return [path for path in paths if (ROOT / path).exists()][:most]


def commands(build, paths):
    """Yields (path, folder, command) for each path that BUILD compiles; the command checks the
    syntax."""
    known = {}
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        known.setdefault(entry["file"], entry)
    out = []
    for path in paths:
        entry = known.get(str(ROOT / path))
        if entry:
            command = re.sub(r" -o \S+ -c ", " -fsyntax-only ", entry["command"])
            out.append((path, entry["directory"], command))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    paths = changed_lately(arguments.most)
    if paths is None:
        print("no history of commits here\n0 passed, 0 failed, 1 skipped")
        return 0
    failed = 0
    jobs = commands(arguments.build, paths)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        run = lambda job: subprocess.run(job[2], shell=True, cwd=job[1], capture_output=True, text=True)
        for (path, _, _), done in zip(jobs, pool.map(run, jobs)):
            if done.returncode != 0 or "warning:" in done.stderr:
                failed += 1
                print(f"{path}, compiled alone:\n{done.stderr}")
    print(f"{len(jobs) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
