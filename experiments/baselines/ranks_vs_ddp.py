#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training on several GPUs of one host with PyTorch's DistributedDataParallel.

Each GPU has a batch of the same size, so P GPUs have P times the images in a step. The table shows for both systems the
time of a step on one GPU and on P GPUs, and the ratio of images per second. Convscope gathers and normalises its
batches from a data set of random images on the GPU; PyTorch uses the same batch in every step. Both systems exchange
gradients by NCCL, in buckets, in parallel with the backward pass.

    Convscope      recorded steps; `device` is measured by events around the launches, `wall` is the time of the
                   shortest epoch / its steps
    DDP            eager, and with the whole step captured in a CUDA graph. Convolutions of ResNet-18 run in
                   channels-last. The time is the median of samples of 20 steps by events, of the slowest
                   process

f32 has no TF32 in either system; tf32 allows it in cuDNN and cuBLAS; bf16 is autocast in PyTorch.

    python3 experiments/baselines/ranks_vs_ddp.py --program build/release/bin/convscope
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from images import write_cifar

# name: config, its overrides, images per GPU
CASES = {
    "resnet18": ("cifar10_resnet18", ["data.augment=null", "train.epochs=2"], 256),
    "lenet5": ("mnist_lenet5_baseline", ["expect=null", "train.epochs=4"], 1024),
}


# ---- ours ----

def random_data(folder):
    import numpy as np

    rng = np.random.default_rng(1)

    def idx(prefix, count):
        images = rng.integers(0, 256, count * 784, dtype=np.uint8).tobytes()
        labels = rng.integers(0, 10, count, dtype=np.uint8).tobytes()
        (folder / "mnist" / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, count, 28, 28) + images)
        (folder / "mnist" / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, count) + labels)

    write_cifar(folder / "cifar10", 51200, 1024)
    (folder / "mnist").mkdir(parents=True)
    idx("train", 614400)
    idx("t10k", 2048)


def ours(args, case, precision, gpus, words=()):
    config, more, batch = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        command = [args.program, "run", str(args.configs / f"{config}.yaml") if args.configs else config,
                   "device=cuda", "log.layers=false", "checkpoint.every_epochs=0",
                   "train.eval_every=1000", "optim.lr=1e-4", f"precision={precision}",
                   f"data.batch_size={batch * gpus}", *more, *words, "-o", folder, "-q"]
        if gpus > 1:
            command = [shutil.which("mpirun"), "-n", str(gpus), *command]
        environment = dict(os.environ, CONVSCOPE_DATA=str(args.data))
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180)
        found = list(pathlib.Path(folder).rglob("summary.json"))
        if done.returncode != 0 or not found:
            print(f"Convscope: exit code {done.returncode}: {done.stderr[-2000:]}", flush=True)
            return None
        run = found[0].parent
        summary = json.loads(found[0].read_text())
        rows = list(csv.DictReader((run / "epochs.csv").open()))
        steps = int(rows[0]["step"])
        # How the steps ran, without the time of day.
        lines = [line.split(" ", 1)[-1] for line in (run / "log.txt").read_text().splitlines()
                 if " steps: " in line]
        return {"device_ms": 1e3 * summary["avg_step"],
                "wall_ms": 1e3 * min(float(row["seconds"]) for row in rows) / steps,
                "steps": steps, "loss": float(rows[-1]["train_loss"]), "log": lines}


# ---- the baseline ----

def worker(cases, precision, graph, out):
    """Runs one process of torchrun: all cases, one after the other."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch_networks import lenet5, resnet18
    from torch_timing import mean_ms

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    tf32 = precision != "f32"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = True
    results = {}
    for case in cases:
        batch = CASES[case][2]
        torch.manual_seed(0)
        model = resnet18("cifar", classes=10) if case == "resnet18" else lenet5(padding=2)
        x = torch.randn(batch, 3, 32, 32) if case == "resnet18" else torch.randn(batch, 1, 28, 28)
        model, x = model.cuda(), x.cuda()
        if case == "resnet18":
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        labels = torch.randint(0, 10, (batch,), device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            net = model
            if size > 1:
                net = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()],
                                              gradient_as_bucket_view=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9,
                                        weight_decay=5e-4, foreach=True)
            loss_of = torch.nn.CrossEntropyLoss()

            def step():
                optimizer.zero_grad(set_to_none=not graph or size == 1)
                with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                    loss = loss_of(net(x), labels)
                loss.backward()
                optimizer.step()

            for _ in range(15):
                step()
        torch.cuda.current_stream().wait_stream(side)
        run = step
        if graph:
            torch.cuda.synchronize()
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured, capture_error_mode="thread_local"):
                step()
            run = captured.replay
        samples = [mean_ms(run, 20) for _ in range(20)]
        slowest = torch.tensor([statistics.median(samples)], device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        results[case] = slowest.item()
        torch.cuda.synchronize()
        if rank == 0:
            pathlib.Path(out).write_text(json.dumps(results))
        dist.barrier()
    # Skips the normal exit: captured graphs with all-reduce sums would have to be freed before the process group.
    sys.stdout.flush()
    os._exit(0)


def baseline(cases, precision, gpus, graph):
    """Returns milliseconds of a step, by case; results before a failure are kept."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                   f"--nproc-per-node={gpus}", __file__, "--worker", str(out), "--cases", *cases,
                   "--precisions", precision] + (["--graph"] if graph else [])
        environment = dict(os.environ, OMP_NUM_THREADS="4")
        if graph:
            environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
            if done.returncode != 0:
                causes = [line for line in done.stderr.splitlines() if "Error" in line]
                print("PyTorch:", "\n".join(causes[:8]), file=sys.stderr, flush=True)
        except subprocess.TimeoutExpired:
            print("PyTorch: took too long", file=sys.stderr, flush=True)
        return json.loads(out.read_text()) if out.exists() else {}


def show(case, precision, system, one, many, gpus):
    if not one or not many:
        return
    print(f"| {case} | {precision} | {CASES[case][2]} | {system} | {one:.4f} | {many:.4f} | "
          f"{gpus * one / many:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", help="ours; without it only the baseline")
    parser.add_argument("--configs", type=pathlib.Path, help="folder of the shipped configs")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--precisions", nargs="+", default=["f32", "tf32", "bf16"])
    parser.add_argument("--words", nargs="+", default=[], help="more KEY=VALUE of ours")
    parser.add_argument("--no-baseline", "--no-peer", action="store_true")
    parser.add_argument("--data", type=pathlib.Path, help="keeps the random data sets here")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--graph", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.cases, args.precisions[0], args.graph, args.worker)
    print(f"| network | precision | images for each GPU | system | 1 GPU, ms | {args.gpus} GPUs, ms | "
          f"images/s of {args.gpus} GPUs : 1 |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if args.program:
            args.data = args.data or pathlib.Path(folder)
            if not (args.data / "mnist").exists():
                random_data(args.data)
            logs = []
            for precision in args.precisions:
                for case in args.cases:
                    one = ours(args, case, precision, 1, args.words)
                    many = ours(args, case, precision, args.gpus, args.words)
                    if not one or not many:
                        continue
                    for kind in ("device", "wall"):
                        show(case, precision, f"Convscope, {kind}", one[f"{kind}_ms"],
                             many[f"{kind}_ms"], args.gpus)
                    logs += one["log"] + many["log"]
            print("\n".join(f"    {line[:400]}" for line in logs), flush=True)
    if args.no_baseline:
        return
    for precision in args.precisions:
        for graph in (False, True):
            one = baseline(args.cases, precision, 1, graph)
            many = baseline(args.cases, precision, args.gpus, graph)
            for case in args.cases:
                show(case, precision, "DDP, CUDA graph" if graph else "DDP", one.get(case),
                     many.get(case), args.gpus)


if __name__ == "__main__":
    main()
