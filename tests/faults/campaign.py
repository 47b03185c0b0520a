#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fault campaign: campaign.py PROGRAM [--long] [--only PART] [--seed N] [--count N] [--jobs N]

The campaign attacks the program `convscope` with kills, signals, damaged files, full disks, closed
streams, rival processes and hostile surroundings. README.md says what each part requires. The last
line is 'N passed, N failed, N skipped'; exit code 1 means that a case failed. The files of a failed
case are kept, and the command that repeats the case is printed.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import time
import traceback

import part_disk
import part_folders
import part_kills
import part_late
import part_mutated
import part_rivals
import part_signals
import part_streams
import part_surroundings
from stage import Stage

PARTS = [part_kills, part_signals, part_mutated, part_disk, part_streams, part_rivals, part_late,
         part_folders, part_surroundings]


def run_case(stage, part, number, keep):
    """Returns "passed" or "failed", or "skipped" if this machine cannot run the case (run()
    returned None)."""
    folder = stage.folder / f"{part.NAME}-{number}"
    folder.mkdir()
    try:
        found = part.run(stage, number, folder)
        if found is None:
            found, status = [], "skipped"
        else:
            status = "failed" if found else "passed"
    except Exception:  # pylint: disable=broad-except; a mistake in a case is a failed case
        found, status = ["the case itself ended early:", traceback.format_exc()], "failed"
    if status == "failed":
        kept = keep / f"{part.NAME}-seed{stage.seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        keep.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, kept, symlinks=True)
        text = "\n".join(found)
        (kept / "what_failed.txt").write_text(text)
        again = [sys.executable, __file__, str(stage.program), "--seed", str(stage.seed), "--only",
                 part.NAME, "--case", str(number)]
        again += [] if stage.memory else ["--no-memory-bound"]
        again += ["--shim", str(stage.shim)] if stage.shim else []
        first = "; ".join(line for line in found if not line.startswith("$"))
        print(f"FAILED {part.NAME} {number}: {first[:400]}\n  kept:  {kept}\n  again: "
              f"{shlex.join(again)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return status


def run_part(stage, part, numbers, jobs, keep):
    begin = time.monotonic()
    jobs = min(jobs, getattr(part, "JOBS", jobs))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda number: run_case(stage, part, number, keep), numbers))
    return [results.count(status) for status in ("passed", "failed", "skipped")] + \
        [time.monotonic() - begin]


def print_table(rows):
    print(f"| {'part':<12} | {'what':<58} | cases | passed | failed | skipped | seconds |")
    print(f"| {'-' * 12} | {'-' * 58} | ----- | ------ | ------ | ------- | ------- |")
    for part, passed, failed, skipped, seconds in rows:
        print(f"| {part.NAME:<12} | {part.TITLE:<58} | {passed + failed + skipped:5} | {passed:6} | "
              f"{failed:6} | {skipped:7} | {seconds:7.1f} |")


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--long", action="store_true", help="hundreds of cases, not dozens")
    parser.add_argument("--only", action="append", metavar="PART", default=[],
                        help=f"one of {', '.join(part.NAME for part in PARTS)}; may be repeated")
    parser.add_argument("--seed", type=int, help="all that is random follows from it")
    parser.add_argument("--count", type=int, help="cases of each part")
    parser.add_argument("--case", type=int, help="this case alone, by its number")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("failed_faults"),
                        help="folder for failed cases (default failed_faults)")
    parser.add_argument("--shim", type=pathlib.Path,
                        help="shim.cpp as a library; without it, its part is skipped")
    parser.add_argument("--no-memory-bound", action="store_true",
                        help="for a program with the address sanitizer, which takes all addresses")
    arguments = parser.parse_args(words)
    known = {part.NAME for part in PARTS}
    for name in arguments.only:
        if name not in known:
            parser.error(f"expected a part, one of {', '.join(sorted(known))}, got '{name}'")
    return arguments


def main(words):
    arguments = parse(words)
    seed = arguments.seed if arguments.seed is not None else int.from_bytes(os.urandom(3), "big")
    parts = [part for part in PARTS if not arguments.only or part.NAME in arguments.only]
    print(f"seed {seed}, {arguments.jobs} jobs, {arguments.program}", flush=True)
    with tempfile.TemporaryDirectory(prefix="convscope-faults-") as folder:
        stage = Stage(arguments.program.resolve(), folder, seed)
        if arguments.no_memory_bound:
            stage.memory = None
        stage.shim = arguments.shim and arguments.shim.resolve()
        rows = []
        for part in parts:
            count = arguments.count or (part.LONG if arguments.long else part.SHORT)
            numbers = range(count) if arguments.case is None else [arguments.case]
            rows.append((part, *run_part(stage, part, numbers, arguments.jobs,
                                         arguments.keep.resolve())))
    print_table(rows)
    passed, failed, skipped = (sum(row[i] for row in rows) for i in (1, 2, 3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
