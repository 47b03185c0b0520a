#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks rules that hold for every call of the program, whatever its input. Each complaint is one
sentence."""
import re
import signal

# The documented exit codes from 0 on (README.md): ok, run failed, usage, config, data, device,
# input or output, slower than a baseline
DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 7}
# Words that a library or the compiler would print; they tell a user nothing.
RAW = re.compile(
    r"std::|json\.exception|terminate called|what\(\):|basic_string|vector::|map::at|\bstoi\b"
    r"|bad_alloc|bad_cast|bad_optional|bad_variant|yaml-cpp|YAML::|CLI::|nlohmann|filesystem error"
    r"|Sanitizer|runtime error:|Assertion|core dumped|Segmentation|__cxa|unknown failure")
OUT_OF_MEMORY = re.compile(r"out of memory|cannot allocate", re.IGNORECASE)


def complaints(outcome, codes=None, signals=()):
    """codes: the accepted exit codes; signals: the signals that are accepted as the end of the
    process."""
    found = []
    if outcome.hung:
        return ["it hung"]
    if outcome.by_signal:
        if outcome.by_signal not in signals:
            found.append(f"it was ended by {signal.Signals(outcome.by_signal).name}")
    elif outcome.code in (128 + signal.SIGSEGV, 128 + signal.SIGABRT, 128 + signal.SIGFPE):
        found.append(f"exit code {outcome.code} hides a crash")
    elif outcome.code not in (DOCUMENTED if codes is None else set(codes)):
        expected = ", ".join(map(str, sorted(DOCUMENTED if codes is None else set(codes))))
        found.append(f"exit code {outcome.code}, expected one of {expected}")
    for text in (outcome.out, outcome.err):
        raw = RAW.search(text)
        if raw:
            line = next(line for line in text.splitlines() if raw.group(0) in line)
            found.append(f"raw text of the inside: {line[:200]}")
            break
    if OUT_OF_MEMORY.search(outcome.err):
        found.append("it took more memory than the bound")
    # `watch` prints on stdout how the run ended, and exits with the run's exit code.
    silent = "error" not in outcome.err and "watch" not in outcome.words
    if outcome.code in DOCUMENTED - {0, 7} and not outcome.by_signal and silent:
        found.append(f"exit code {outcome.code} without a sentence on stderr")
    return found
