#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests run folders that somebody has changed: edited rows, and links that lead out of the
folder."""
import json

import run_files
from part_kills import the_same
from verdict import complaints

NAME, SHORT, LONG = "folders", 10, 60
TITLE = "run folders with edited rows, or with links that lead elsewhere"
LINKED = ["metrics.jsonl", "log.txt", "epochs.csv", "ckpt", "status.json", ".lock",
          "ckpt/last.safetensors", "summary.json", "report.html", "choices.json", "layers.csv",
          "ckpt/previous.safetensors", "ckpt/best.safetensors", "latest", "plots"]
SECRET = "a file of the user that no run may touch\n"


def run(stage, number, folder):
    stage.copy(folder, "paused/q", "q.yaml")
    (folder / "paused").rename(folder / "runs")
    target = stage.newest(folder / "runs/q")
    if number % 2:
        return linked(stage, folder, target, LINKED[number // 2 % len(LINKED)])
    return edited(stage, folder, target, number // 2)


# Edits that keep the content of all rows of a text file, but move the rows to other byte positions.
EDITS = [("metrics.jsonl", lambda text: text.replace(":", ":    ", 1)),
         ("epochs.csv", lambda text: text.replace("\n", "\n\n", 1)),
         ("metrics.jsonl", lambda text: "\n" + text),
         ("metrics.jsonl", lambda text: text.replace(",", ", ")),
         ("metrics.jsonl", lambda text: text.rstrip("\n"))]


def edited(stage, folder, target, place):
    name, edit = EDITS[place % len(EDITS)]
    path = target / name
    text = edit(path.read_text())
    if text.endswith("}\n"):  # as if a killed process had written one more row
        text += text.splitlines()[-1].replace('"epoch":1', '"epoch":2') + "\n"
    path.write_text(text)
    done = stage.train(folder, "q", "--resume", "auto")
    found = complaints(done, codes=(0,))
    rows = [line for line in path.read_text().splitlines() if line]  # empty rows come from the editor
    if name == "metrics.jsonl":
        for row in rows:
            try:
                json.loads(row)
            except ValueError:
                found.append(f"two rows in one line: {row}")
        path.write_text("".join(f"{row}\n" for row in rows))
    found += the_same(stage, folder, "q")
    if "was changed since the checkpoint" not in done.err:
        found.append("it does not say that the file was changed")
    return found + [done.told()] if found else []


def linked(stage, folder, target, name):
    """Resuming, `note` and `plot` must not change the files to which the links lead."""
    outside = folder / "outside"
    outside.mkdir()
    link = target.parent / name if name == "latest" else target / name
    is_folder = name in ("ckpt", "plots", "latest")
    victim = outside / "victim"
    if is_folder:
        victim.mkdir()
        for one in (link.iterdir() if link.is_dir() and name == "ckpt" else []):
            one.rename(victim / one.name)
        (victim / "curves.svg").write_text(SECRET)
        (victim / ".a.1.0.partial").write_text(SECRET)
    elif link.exists() and not name.startswith("."):
        victim.write_bytes(link.read_bytes())
    else:
        victim.write_text(SECRET)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    before = run_files.snapshot(outside)
    calls = [stage.call(folder, "run", "--resume", target, "--threads", 1),
             stage.call(folder, "note", target, "--tag", "mine"),
             stage.call(folder, "plot", target, "--kind", "curves")]
    found = [text for one in calls for text in complaints(one, codes=(0, 4, 6))]
    after = run_files.snapshot(outside)
    gone = run_files.lost(before, after)
    found += [f"a file elsewhere: {gone}"] if gone else []
    new = sorted(set(after) - set(before))
    found += [f"a new file elsewhere: {', '.join(new)}"] if new else []
    refused = [one for one in calls if one.code == 6]
    found += ["a refusal that does not speak of a link" for one in refused
              if "link" not in one.err and "report.html" not in one.err]
    return found + [one.told() for one in calls] if found else []
