#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the README does what the README says: readme_commands.py PROGRAM ROOT

The commands of its tables and of its fenced blocks (bootstrap.sh has a test of its own) run in a
temporary folder, those that train on built-in digits exactly as they stand. What each must print and
write stands in run_checks.py and tool_checks.py, each with the commands that it is for. A command
without a check is a failure: whoever adds a row to the README says there what it prints.
"""
import os
import pathlib
import re
import shlex
import sys
import tempfile

import run_checks  # noqa: F401  these two fill CHECKS
import tool_checks  # noqa: F401
from readme_reader import CHECKS, Reader, Wrong, expect


def words_of(command):
    """As a shell would split it; CONFIG is the config that needs no files."""
    return ["quickstart" if word == "CONFIG" else word for word in shlex.split(command)]


def commands(readme):
    """Those in backticks in rows of tables, and those behind a `$` in fenced blocks. Options named
    alone belong to no command."""
    found, fenced = [], False
    for line in readme.read_text().split("\n"):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced and line.startswith("$ ") and "bootstrap.sh" not in line:
            found.append(re.sub(r"^\$ (\S*/)?convscope ", "", line.split("   #")[0]).strip())
        elif line.startswith("|") and not fenced:
            texts = re.findall(r"`convscope ([^`]+)`", line)
            found += [text for text in texts if re.match(r"[a-z]+( |$)", text) and
                      not text.endswith("--json")]
    return list(dict.fromkeys(found))


def problem(reader, text):
    """Runs a command; what is wrong, or None."""
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
    found = commands(root / "README.md")
    if len(found) < 15:
        sys.exit(f"README.md: expected at least 15 commands, got {len(found)}")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        os.environ.pop("CONVSCOPE_DATA", None)
        reader = Reader(program, root, folder)
        # Plots come after the runs and the benchmark that they show.
        for text in sorted(found, key=lambda text: text.startswith(("plot", "report", "index"))):
            wrong = problem(reader, text)
            failed += wrong is not None
            print(f"{'ok' if wrong is None else 'FAILED'}  {text}" +
                  ("" if wrong is None else f"\n    {wrong}"), flush=True)
    print(f"{len(found)} commands, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
