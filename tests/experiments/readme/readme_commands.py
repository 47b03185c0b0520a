#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that every command in the README and the guides does what the text says: readme_commands.py
PROGRAM ROOT

Runs the commands in tables, and those after a `$` in fenced blocks, in a temporary folder (bootstrap.sh has
another test). Commands that train on built-in digits run exactly as written. run_checks.py and tool_checks.py
check what each command prints and writes. A command without a check is a failure, so a new table row needs a
new check.
"""
import os
import pathlib
import re
import shlex
import sys
import tempfile

import run_checks  # noqa: F401  this import and the next fill CHECKS
import tool_checks  # noqa: F401
from readme_reader import CHECKS, Reader, Wrong, expect


def words_of(command):
    """Splits a command as a shell does, and replaces CONFIG by a config that needs no data
    files."""
    return ["quickstart" if word == "CONFIG" else word for word in shlex.split(command)]


LEAST = 58  # different commands in all documents; fewer: a table was lost
# Runs and benchmarks come first, then the commands that show their results.
LATER = ("plot", "report", "index", "watch", "note")


def documents(root):
    return [root / "README.md", *sorted((root / "framework/docs/guide").glob("*.md"))]


def commands(document):
    """Returns the commands in backticks in table rows, and those after a `$` in fenced blocks.
    Skips table cells that hold only options."""
    found, fenced = [], False
    for line in document.read_text().split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and re.match(r"\$ (\S*/)?convscope ", line):
            found.append(re.sub(r"^\$ (\S*/)?convscope ", "", line.split("   #")[0]).strip())
        elif line.startswith("|") and not fenced:
            texts = re.findall(r"`convscope ([^`]+)`", line)
            found += [text for text in texts if re.match(r"[a-z]+( |$)", text) and
                      not text.endswith("--json")]
    return list(dict.fromkeys(found))


def rank(text):
    """Returns the sort key of a command.

    `run quickstart` is first, because other commands read its run. Commands that show results come
    last.
    """
    shows = text.startswith(LATER) or "--status" in text
    return (text != "run quickstart", shows, text.startswith("index"))


def problem(reader, text):
    """Runs a command and returns what is wrong, or None."""
    function = next((one for pattern, one in CHECKS if pattern.fullmatch(text)), None)
    if function is None:
        return "expected a check in run_checks.py or tool_checks.py that says what it prints"
    try:
        done = function(reader, words_of(text))
        expect(done.returncode == 0, f"expected exit code 0, got {done.returncode}")
        expect(done.stdout.strip() or "--out-y" in text or "data fetch" in text or
               "device=cuda" in text, "expected output")
    except (Wrong, KeyError, ValueError, AttributeError) as error:
        done = reader.last
        return (f"{type(error).__name__}: {error}\n    ran: {shlex.join(done.args)}\n    exit code "
                f"{done.returncode}\n    stdout: {done.stdout[-900:]}\n    stderr: {done.stderr[-900:]}")
    return None


def main():
    program, root = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    found = dict.fromkeys(text for document in documents(root) for text in commands(document))
    if len(found) < LEAST:
        sys.exit(f"README.md and guides: expected at least {LEAST} commands, got {len(found)}")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        os.environ.pop("CONVSCOPE_DATA", None)
        reader = Reader(program, root, folder)
        for text in sorted(found, key=rank):
            wrong = problem(reader, text)
            failed += wrong is not None
            print(f"{'ok' if wrong is None else 'FAILED'}  {text}" +
                  ("" if wrong is None else f"\n    {wrong}"), flush=True)
    print(f"{len(found)} commands, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
