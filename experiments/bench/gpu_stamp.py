# SPDX-License-Identifier: Apache-2.0
"""Stamps of a GPU check. A file NAME.stamp next to each part NAME.json records from which sources, when and on which
GPU the part was measured, and whether it is complete. gpu_record.py combines these files to a record, even on a machine
without a GPU."""
import datetime
import json
import os
import pathlib
import subprocess

GPU = ("name", "driver_version", "memory.total", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
       "power.limit", "temperature.gpu")


def gpu_facts():
    """Returns what nvidia-smi reports about the first GPU, or {}."""
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(GPU)}", "--format=csv,noheader"],
                              capture_output=True, text=True)
    except OSError:
        return {}
    if done.returncode != 0 or not done.stdout.strip():
        return {}
    return dict(zip(GPU, (cell.strip() for cell in done.stdout.splitlines()[0].split(","))))


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_json(path, value):
    """Writes atomically: an interrupted process leaves the file as it was."""
    path = pathlib.Path(path)
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(beside, path)


def read_json(path):
    """Returns the content, or None when the file is missing or truncated."""
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError):
        return None


class Stamps:
    """The stamps of one call of the script, which share the hash of the sources and the facts about the programs."""

    def __init__(self, folder, sources_sha256, source_files=None, nvcc=None):
        self.folder = pathlib.Path(folder)
        self.sources = sources_sha256
        self.gpu = gpu_facts()  # early, because nvidia-smi may take a second
        self.extra = {"source_files": source_files, "nvcc": nvcc}

    def read(self, name):
        return read_json(self.folder / f"{name}.stamp")

    def is_of_today(self, name):
        stamp = self.read(name)
        return stamp is not None and stamp.get("sources_sha256") == self.sources

    def is_done(self, name):
        """Returns whether the part is complete and has no failure for the same sources, so that it need not run
        again."""
        stamp = self.read(name)
        return self.is_of_today(name) and stamp["complete"] and not stamp["failed"]

    def begin(self, name):
        """Writes a stamp before the part runs, so that the part has a stamp even if the machine is taken away."""
        self._write(name, self.gpu, complete=False, failed=False)

    def end(self, name, complete, failed):
        """Writes the final stamp, with the clocks of the GPU under load."""
        self._write(name, gpu_facts() or self.gpu, complete=complete, failed=failed)

    def _write(self, name, gpu, complete, failed):
        before = self.read(name) if self.is_of_today(name) else None
        stamp = {"part": name, "sources_sha256": self.sources, **self.extra,
                 "began": (before or {}).get("began") or now(), "date": now(), "gpu": gpu,
                 "complete": complete, "failed": failed}
        others = {*(before or {}).get("also_on", []), (before or {}).get("gpu", {}).get("name")}
        others -= {None, gpu.get("name")}
        if others:  # the part continued on another machine
            stamp["also_on"] = sorted(others)
        write_json(self.folder / f"{name}.stamp", stamp)
