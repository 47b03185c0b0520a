# SPDX-License-Identifier: Apache-2.0
"""Comparisons that may be stopped and continued: options, a deadline, and the rows that a file holds. Uses
only Python's standard library."""
import json
import os
import pathlib
import time

STOPPED = 75  # exit code: --seconds are over, --go-on continues


def add_options(parser):
    parser.add_argument("--seconds", type=float, help="begin nothing new after so many seconds")
    parser.add_argument("--go-on", action="store_true", help="leave out what the file of --json holds")


class Deadline:
    def __init__(self, seconds):
        self.end = None if seconds is None else time.monotonic() + seconds

    def is_over(self):
        return self.end is not None and time.monotonic() >= self.end


def write(path, value):
    """Writes atomically: a stopped run leaves the file as it was."""
    if path:
        beside = pathlib.Path(f"{path}.new")
        beside.write_text(json.dumps(value, indent=1) + "\n")
        os.replace(beside, path)


def read(path):
    """Returns the content, or None when there is no such file or the file is empty."""
    path = pathlib.Path(path)
    return json.loads(path.read_text()) if path.exists() and path.read_text().strip() else None


def rows_before(arguments, settings):
    """Returns (finished problems, their rows) from a file, if it has these settings, this GPU and this library. Rows
    measured under other conditions must not be mixed into one table."""
    found = read(arguments.json) if arguments.go_on and arguments.json else None
    if found is None:
        return [], []
    others = [f"{key} {found.get(key)}" for key, value in settings.items() if found.get(key) != value]
    if others:
        print(f"begins again: {arguments.json} holds rows with {', '.join(others)}", flush=True)
        return [], []
    return found["done"], found["rows"]
