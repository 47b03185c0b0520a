# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of several processes: calls of the program and its launchers, and readers
of run folders.

Each test file is called as FILE_test.py PROGRAM. Without mpirun its exit code is 77 (skipped).
"""
import contextlib
import csv
import glob
import hashlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SKIPPED = 77
PROGRAM = ""
SMALL = ["data={set: synthetic_digits, train_size: 600, test_size: 200, batch_size: 48}", "train.epochs=2", "threads=1"]


def environment(**more):
    out = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", CONVSCOPE_MEASURE="off")
    out.pop("CONVSCOPE_ALONE", None)
    out.update(more)
    return out


def mpirun(kind):
    """Returns the launcher of 'openmpi' or 'mpich', or None."""
    for name in (f"mpirun.{kind}", "mpirun"):
        path = shutil.which(name)
        if path is None:
            continue
        text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        if ("Open MPI" in text or "OpenRTE" in text) == (kind == "openmpi"):
            return path
    return None


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="convscope-ranks-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        kinds = os.environ.get("CONVSCOPE_TEST_MPI", "openmpi,mpich").split(",")
        self.launcher = next(filter(None, map(mpirun, kinds)))

    def call(self, words, code=0, **options):
        out = subprocess.run([PROGRAM, *words], cwd=self.folder, env=options.pop("env", environment()),
                             capture_output=True, text=True, timeout=120, check=False, **options)
        self.assertEqual(out.returncode, code, f"{words}\n{out.stdout}\n{out.stderr}")
        return out

    def train(self, name, processes, words, config="quickstart", code=0):
        """Trains on `processes` processes; 0 means without a launcher. Returns the newest folder of
        the run."""
        run = ["run", config, "expect=null", *words, "-o", name]
        if processes > 0:
            run = ["launch", "-n", str(processes), "--launcher", self.launcher, *run]
        self.call(run, code)
        return self.newest(name)

    def newest(self, name):
        return pathlib.Path(sorted(glob.glob(str(self.folder / name / "*" / "2*")))[-1])

    def start(self, processes, words, **options):
        """Starts a run with `convscope launch` and returns the launcher's process. The end of the test stops this
        process and its ranks."""
        run = subprocess.Popen(
            [PROGRAM, "launch", "-n", str(processes), "--launcher", self.launcher, "run", *words], cwd=self.folder,
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            **options)
        self.addCleanup(stop, run)
        return run


def stop(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in ranks_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def children(pid):
    out = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = pathlib.Path(path).read_text()
            rest = text[text.rindex(")") + 2:].split()
            if int(rest[1]) == pid:
                out.append(int(text.split()[0]))
    return out


def ranks_of(launch):
    """Returns {pid: rank} of the processes below `launch`."""
    out, todo = {}, children(launch)
    while todo:
        pid = todo.pop()
        todo += children(pid)
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            values = dict(line.split(b"=", 1) for line in lines if b"=" in line)
            rank = values.get(b"OMPI_COMM_WORLD_RANK", values.get(b"PMI_RANK"))
            if rank is not None and b"convscope" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]:
                out[pid] = int(rank)
    return out


def wait_for(what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("expected something to happen in time, nothing did")


def weights(run, name="last"):
    """Returns a checksum of all tensors of a checkpoint, including the optimiser's."""
    data = (run / f"ckpt/{name}.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8:8 + size]), data[8 + size:]
    out = hashlib.sha1()
    for key in sorted(header):
        if key != "__metadata__":
            begin, end = header[key]["data_offsets"]
            out.update(key.encode() + rest[begin:end])
    return out.hexdigest()


def tensors(run, name="last"):
    data = (run / f"ckpt/{name}.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8:8 + size]), data[8 + size:]
    out = {}
    for key, entry in header.items():
        if key != "__metadata__" and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            out[key] = struct.unpack(f"<{(end - begin) // 4}f", rest[begin:end])
    return out


def largest_difference(a, b):
    """Returns the largest difference between two checkpoints, relative to the largest weight of
    each tensor."""
    worst = 0.0
    for key, values in a.items():
        scale = max(map(abs, values), default=0) or 1
        worst = max(worst, max((abs(x - y) for x, y in zip(values, b[key])), default=0) / scale)
    return worst


def epochs(run):
    with open(run / "epochs.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary(run):
    return json.loads((run / "summary.json").read_text())


def status(run):
    return json.loads((run / "status.json").read_text())


def main():
    global PROGRAM
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    if mpirun("openmpi") is None and mpirun("mpich") is None:
        print("skipped: no mpirun (Debian: openmpi-bin)")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
