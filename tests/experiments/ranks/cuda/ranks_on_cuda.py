#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on several processes with a GPU each: on the GPUs of this machine, or on the emulated GPU
with an emulated NCCL (--emulated names the library of the emulation).

    probe       rank_probe.cpp: sums, and recorded steps compared with steps that the host starts
    fallback    the same where one process, or no process, can open NCCL
    runs        `convscope run` on two processes compared with one; what its log says of its steps
    stop        SIGTERM at one process: all stop after the same launch, and the run goes on later

Without mpirun, or with fewer than two GPUs, the test prints the reason and is skipped (exit code 77)."""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
CONFIG = """name: ranks
data: {set: synthetic_digits, batch_size: 16, limit: %(limit)d}
device: cuda
layers:
  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 5, stride: 3}
%(norm)s  - {type: relu}
  - {type: flatten}
  - {type: linear, name: f1, out_features: 10}
optim: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: %(epochs)d}
log: {every_steps: 1}
"""
failed = []


def check(what, ok, detail=""):
    print(f"{'ok    ' if ok else 'FAILED'} {what}{': ' + str(detail) if detail and not ok else ''}",
          flush=True)
    if not ok:
        failed.append(what)


def environment(args, nccl=True):
    out = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMP_WAIT_POLICY="passive",
               OMP_NUM_THREADS="1", CONVSCOPE_MEASURE="off")
    if args.emulated:
        out["CONVSCOPE_CUDA_LIBRARY"] = args.emulated
        if nccl:
            out["CONVSCOPE_NCCL_LIBRARY"] = args.emulated
    if not nccl:
        out["CONVSCOPE_NCCL_LIBRARY"] = "/nowhere/libnccl.so.2"
    return out


def mpirun(args, words, processes=2, nccl=True):
    return subprocess.run([args.mpirun, "-n", str(processes), *words], capture_output=True,
                          text=True, env=environment(args, nccl), timeout=500)


def probe(args):
    for processes in [2] if not args.emulated else [2, 3]:
        done = mpirun(args, [args.probe], processes)
        for line in done.stdout.splitlines():
            print("   ", line)
        check(f"probe, {processes} processes", done.returncode == 0 and "all is well" in done.stdout,
              done.stderr)
        check(f"probe, {processes} processes: its steps were recorded, with NCCL",
              "steps: recorded" in done.stdout and "by NCCL" in done.stdout, done.stdout)


def fallback(args):
    done = mpirun(args, [args.probe], nccl=False)
    check("without NCCL: through the memory of the host", done.returncode == 0 and
          "through the memory of the host, because NCCL could not be opened" in done.stdout and
          "not recorded: the host takes part in the sums" in done.stdout,
          done.stdout + done.stderr)
    # Only one process lacks NCCL: all others report it.
    one = [args.mpirun, "-n", "1", args.probe, ":", "-n", "1", "-x",
           "CONVSCOPE_NCCL_LIBRARY=/nowhere/libnccl.so.2", args.probe]
    done = subprocess.run(one, capture_output=True, text=True, env=environment(args), timeout=500)
    check("one process without NCCL: none uses it", done.returncode == 0 and
          "because of process 1 of 2" in done.stdout, done.stdout + done.stderr)


def run_folder(root):
    return next(path for path in pathlib.Path(root).rglob("summary.json")).parent


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["split"] == "train"]


def tensors(folder):
    """The bytes of the weights in the last checkpoint."""
    data = (folder / "ckpt/last.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size:][slice(*entry["data_offsets"])] for name, entry in header.items()
            if name != "__metadata__"}


def write_config(folder, **values):
    values = {"limit": 250, "epochs": 1, "norm": "", **values}
    path = pathlib.Path(folder) / "ranks.yaml"
    path.write_text(CONFIG % values)
    return str(path)


def train(args, folder, name, words, processes):
    root = str(pathlib.Path(folder) / name)
    command = [args.program, "run", *words, "-o", root, "-q"]
    if processes == 1:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(args),
                              timeout=500)
    else:
        done = mpirun(args, command, processes)
    check(f"{name}: ends well", done.returncode == 0, done.stderr)
    return run_folder(root)


def runs(args):
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(folder)
        one = train(args, folder, "one", [config], 1)
        two = train(args, folder, "two", [config], 2)
        a, b = losses(one), losses(two)
        check("losses of one and of two processes", len(a) == len(b) == 16 and
              all(abs(x - y) < 1e-4 for x, y in zip(a, b)), (a, b))
        log = (two / "log.txt").read_text()
        check("the steps of two processes were recorded", "steps: recorded" in log and
              re.search(r"sums over processes of \d+ bytes in \d+ parts? by NCCL", log), log)
        norm = "  - {type: batch_norm2d}\n  - {type: dropout, p: 0.2}\n"
        config = write_config(folder, norm=norm)
        first = train(args, folder, "first", [config], 2)
        again = train(args, folder, "again", [config], 2)
        check("two processes give the same bits twice", tensors(first) == tensors(again))


def stop(args):
    with tempfile.TemporaryDirectory() as folder:
        # A GPU finishes an epoch in a few milliseconds.
        config = write_config(folder, limit=2000, epochs=50 if args.emulated else 1000000)
        root = str(pathlib.Path(folder) / "stopped")
        process = subprocess.Popen(
            [args.mpirun, "-n", "2", args.program, "run", config, "-o", root, "-q"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(args))
        other = None
        end = time.monotonic() + 120
        while time.monotonic() < end and process.poll() is None:
            found = list(pathlib.Path(root).rglob("metrics.jsonl"))
            if found and len(found[0].read_text().splitlines()) > 5:
                other = process_of_rank(process.pid, 1)
                break
            time.sleep(0.2)
        check("stop: process 1 was found", other is not None)
        if other is None:
            process.kill()
            return
        os.kill(other, signal.SIGTERM)
        out, err = process.communicate(timeout=120)
        run = run_folder(root)
        status = json.loads((run / "status.json").read_text())
        check("stop: a signal at process 1 stops the run", status["state"] == "INTERRUPTED" and
              "signal 15" in status["reason"], (status, err))
        check("stop: a checkpoint is there", (run / "ckpt/last.safetensors").exists(), out)


def process_of_rank(parent, rank):
    """Returns the child of mpirun that has this rank."""
    children = pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    for child in children:
        words = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in words:
            return int(child)
    return None


def gpus():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return 0
    return done.stdout.count("GPU ") if done.returncode == 0 else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--emulated", help="the library of the emulated GPU")
    parser.add_argument("--parts", nargs="+", default=["probe", "fallback", "runs", "stop"])
    args = parser.parse_args()
    args.mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    why = "there is no mpirun" if not args.mpirun else ""
    if not why and not args.emulated and gpus() < 2:
        why = f"it needs two GPUs, and there are {gpus()}"
    if why:
        print(f"skipped {len(args.parts)} parts: {why}")
        sys.exit(SKIPPED)
    for part in args.parts:
        globals()[part](args)
    if failed:
        sys.exit(f"{len(failed)} checks failed")


if __name__ == "__main__":
    main()
