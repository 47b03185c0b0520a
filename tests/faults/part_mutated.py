#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damages files of every format. The program must answer or fail with one sentence, in bounded time
and memory, and lose no file."""
import functools
import http.server
import shutil
import threading

import run_files
from mutate import damaged
from part_kills import the_same
from readers import READERS
from verdict import complaints

NAME, SHORT, LONG = "mutated", 150, 1000
TITLE = "damaged files of every format that is read"
SECONDS = 20


def run(stage, number, folder):
    random = stage.random(NAME, number)
    reader = READERS[number % len(READERS)]
    stage.copy(folder, *reader.sound)
    path = random.choice(sorted(one for one in folder.glob(reader.damaged) if one.is_file()))
    command = random.choice(reader.commands)
    shutil.copy2(path, f"{path}.sound")
    data, how = damaged(path.read_bytes(), random, reader.text)
    path.write_bytes(data)
    if not any("sound" in word for word in command):
        (path.parent / f"{path.name}.sound").unlink()  # only files that belong to a run folder
    before = run_files.snapshot(folder, reader.writes)
    server = Mirror(folder / "files") if reader.mirror else None
    words = [in_place(word, stage, folder, path, server) for word in command]
    env = {key: str(folder / value) for key, value in reader.env.items()}
    trains = command[0] in ("run", "sweep", "bench") and "--dry-run" not in command
    try:
        done = stage.call(folder, *words, seconds=SECONDS, stoppable=trains, more_env=env)
    finally:
        if server:
            server.close()
    codes = reader.codes + ((130,) if trains and done.seconds > SECONDS else ())
    found = complaints(done, codes)
    gone = run_files.lost(before, run_files.snapshot(folder, reader.writes))
    found += [f"a good file was lost: {gone}"] if gone else []
    if reader.goes_on and done.code == 0:
        found += the_same(stage, folder, reader.goes_on, "paused")
    return [f"{reader.name}, {path.relative_to(folder)}: {how}", *found, done.told()] if found else []


def in_place(word, stage, folder, path, server):
    """Replaces the words of readers.py that denote paths."""
    run_folder = next((one for one in path.parents if (one / "ckpt").is_dir()), path)
    others = [one for one in sorted(folder.glob("runs/*/2*")) if one != run_folder]
    for name, value in {"FILE": path, "RUN": run_folder, "OTHER": (others or [path])[0],
                        "SOUND": stage.sound}.items():
        word = word.replace(name, str(value))
    return word.replace("MIRROR", server.url) if server else word


class Mirror:
    """Serves a folder on a separate port."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words):
            pass

    def __init__(self, folder):
        handler = functools.partial(self.Quiet, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
