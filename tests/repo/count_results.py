#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases: count_results.py BUILD_DIR... [--extra PASSED FAILED SKIPPED]

Reads BUILD_DIR/test_results/ctest.xml (ctest --output-junit). A GoogleTest program counts as many
results as it has test cases (test_results/<entry>.json); any other ctest entry counts as one
result. The last line is 'N passed, N failed, N skipped'. The exit code is 1 if a case failed or
nothing ran.
"""
import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree as xml


def cases_of(report):
    """Returns (passed, failed, skipped) and the names of the failed test cases of one GoogleTest
    program."""
    counts, names = [0, 0, 0], []
    for suite in json.loads(report.read_text()).get("testsuites", []):
        for case in suite["testsuite"]:
            if case.get("failures"):
                counts[1] += 1
                names.append(f"{suite['name']}.{case['name']}")
            elif case.get("result") == "SKIPPED":
                counts[2] += 1
            elif case.get("status") == "RUN":  # NOTRUN: disabled or filtered out
                counts[0] += 1
    return counts, names


def count(build):
    """Returns the totals over all ctest entries of one build folder."""
    folder = build / "test_results"
    total, failed = [0, 0, 0], []
    for entry in xml.parse(folder / "ctest.xml").getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        report = folder / f"{name}.json"
        if report.is_file():
            counts, names = cases_of(report)
        else:
            counts = [int(status == "run"), int(status == "fail"),
                      int(status not in ("run", "fail"))]
            names = [name] if status == "fail" else []
        if status == "fail" and counts[1] == 0:  # it failed outside a case
            counts[1] += 1
            names = [f"{name} (outside of its cases)"]
        total = [a + b for a, b in zip(total, counts)]
        failed += names
    return total, failed


def shown_of_failures(build, count=12):
    """Returns `count` lines of each failed ctest entry, from its first failed assertion of GoogleTest, or its
    last lines. Some CI services show only the end of a log."""
    shown = []
    for entry in xml.parse(build / "test_results" / "ctest.xml").getroot().iter("testcase"):
        if entry.get("status") != "fail":
            continue
        lines = [f"  {line[:160]}" for line in (entry.findtext("system-out") or "").split("\n") if line.strip()]
        first = next((index for index, line in enumerate(lines) if line.endswith(": Failure")), None)
        shown += lines[-count:] if first is None else lines[first:first + count]
    return shown


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("builds", nargs="*", type=pathlib.Path)
    parser.add_argument("--extra", nargs=3, type=int, default=[0, 0, 0],
                        metavar=("PASSED", "FAILED", "SKIPPED"))
    arguments = parser.parse_args()
    total = list(arguments.extra)
    for build in arguments.builds:
        counts, failed = count(build)
        if len(arguments.builds) > 1 or any(arguments.extra):
            print("{}: {} passed, {} failed, {} skipped".format(build, *counts))
        if failed:
            print(f"printed by what failed in {build}:", *shown_of_failures(build), sep="\n")
        for name in failed:
            print(f"failed in {build}: {name}")
        total = [a + b for a, b in zip(total, counts)]
    print("{} passed, {} failed, {} skipped".format(*total))
    sys.exit(1 if total[1] or total[0] + total[2] == 0 else 0)


if __name__ == "__main__":
    main()
