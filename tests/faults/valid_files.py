#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes one valid file of each format that the program reads, in one folder. Cases work on
copies."""
import gzip
import io
import json
import os
import pathlib
import struct
import tarfile

from calls import Call

CONFIGS = {
    # The smallest network of a real architecture.
    "q": """name: q
data: {set: synthetic_digits, train_size: 320, test_size: 50, batch_size: 16}
model: {type: lenet5}
optim: {type: sgd, lr: 0.05, momentum: 0.9}
train: {epochs: 2}
""",
    # This config uses every feature with state: dropout, Adam, quantisers, masks, validation.
    "rich": """name: rich
data: {set: synthetic_digits, train_size: 320, val_split: 32, test_size: 50, batch_size: 16,
       augment: {crop_padding: 1, mirror: true}}
layers:
  - {type: conv2d, out_channels: 4, kernel_size: 5}
  - {type: relu}
  - {type: max_pool2d, kernel_size: 4}
  - {type: flatten}
  - {type: dropout, p: 0.2}
  - {type: linear, out_features: 10}
optim: {type: adam, lr: 0.003, schedule: {type: cosine}}
quant: {w_bits: 4, a_bits: 4, begin: 0.3}
sparsity: {method: magnitude, target: 0.5, start: 0.1, end: 0.8, every_steps: 3}
train: {epochs: 3}
tags: [a, b]
log: {every_steps: 1}
""",
    "pruned": """name: pruned
data: {set: synthetic_digits, train_size: 160, test_size: 50, batch_size: 16}
model: {type: lenet5}
sparsity: {method: filter, target: 0.5, start: 0, end: 0.5, every_steps: 2}
train: {epochs: 1}
""",
    "s": """name: s
data: {set: synthetic_digits, train_size: 160, test_size: 50, batch_size: 16}
model: {type: lenet5}
train: {epochs: 2}
sweep:
  grid: {optim.lr: [0.05, 0.02]}
  seeds: [1, 2]
""",
    "idx": """name: idx
data: {set: mnist, root: data/mnist, batch_size: 16}
model: {type: lenet5}
train: {epochs: 1}
""",
    "cifar": """name: cifar
data: {set: cifar10, root: data/cifar10, batch_size: 8}
model: {type: lenet5}
train: {epochs: 1}
""",
}
PROBLEM = "n=1,c=2,h=8,w=8,k=3,r=3,s=3,pad=1"
QUICK = ["--min-time", "0.001", "--rounds", "1"]


def npy(shape, values):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + \
        struct.pack(f"<{len(values)}f", *values)


def write_arrays(folder):
    for name, shape in {"x": [1, 2, 8, 8], "w": [3, 2, 3, 3], "dy": [1, 3, 8, 8], "v": [3, 8],
                        "step": [3], "images": [2, 1, 28, 28]}.items():
        count = 1
        for size in shape:
            count *= size
        values = [0.25 + 0.125 * (i % 7) for i in range(count)]
        (folder / f"{name}.npy").write_bytes(npy(shape, values))


def cifar_records(count):
    return b"".join(bytes([i % 10]) + bytes((i * 7 + j) % 256 for j in range(3072))
                    for i in range(count))


def write_cifar(folder):
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (folder / f"{name}.bin").write_bytes(cifar_records(16))


def cifar_archive():
    """Returns an archive like that of a download server. Its checksum differs from the published
    one."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            entry.size = 3073
            archive.addfile(entry, io.BytesIO(cifar_records(1)))
    return packed.getvalue()


def peaks(run):
    """Writes measured peaks as `convscope info --measure` does, without the seconds that a
    measurement takes."""
    facts = json.loads((run / "env.json").read_text())
    cores = len(os.sched_getaffinity(0))
    one = {key: [1e10, 2e10] for key in ("l2_read", "l2_copy", "l3_read", "l3_copy", "dram_read",
                                         "dram_copy")}
    one |= {"cores": cores, "l2_bytes": 1 << 20, "l3_bytes": 1 << 25, "flops": [1e11, 2e11]}
    return json.dumps({"format": "convscope peaks 1",
                       "machines": {f"{facts['cpu']} | {facts['isa']} | cores={cores}": one}},
                      indent=1)


def make(program, folder, env):
    """Returns the seconds that a whole run of each config took."""
    folder = pathlib.Path(folder)
    (folder / "files").mkdir(parents=True)
    seconds = {}

    def call(*words):
        done = Call([program, *words], folder, cwd=folder, env=env, memory=None).outcome(300)
        assert done.code == 0 and not done.hung, "a sound call failed:\n" + done.told()
        return done.seconds

    for name, text in CONFIGS.items():
        (folder / f"{name}.yaml").write_text(text)
    for name in ("q", "rich", "pruned"):
        seconds[name] = call("run", f"{name}.yaml", "-o", "runs", "--threads", 1)
    seconds["s"] = call("sweep", "s.yaml", "-o", "runs", "--threads", 1)
    for name in ("q", "rich"):
        call("run", f"{name}.yaml", "-o", "paused", "--threads", 1, "--epochs-limit", 1)
    call("run", "q.yaml", "-o", "measured", "--threads", 1, "conv.algorithm=measure",
         "train.epochs=1")
    call("data", "synth", "--root", "data/mnist", "--train-size", 64, "--test-size", 32)
    packed = folder / "data/mnist_gz"
    packed.mkdir()
    for path in (folder / "data/mnist").iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    write_cifar(folder / "data/cifar10")
    write_arrays(folder / "files")
    (folder / "files/cifar-10-binary.tar.gz").write_bytes(cifar_archive())
    call("op", "net", "q.yaml", "--x", "files/images.npy", "--out-y", "files/y.npy",
         "--out-weights", "files/weights.safetensors")
    call("bench", "conv2d", "--problem", PROBLEM, "--threads", 1, *QUICK, "--json",
         "files/conv.json")
    call("bench", "conv2d", "--ladder", "direct", "--problem", PROBLEM, "--threads", 1, *QUICK,
         "--json", "files/ladder.json")
    call("bench", "net", "q.yaml", "--threads", 1, *QUICK, "--json", "files/net.json")
    (folder / "files/shapes.txt").write_text(
        f"# two small problems\n{PROBLEM}\nn=1,c=3,h=9,w=7,k=4,r=5,s=3,stride=2,groups=1\n")
    run = next((folder / "runs/q").glob("2*"))
    cache = pathlib.Path(env["CONVSCOPE_CACHE_DIR"])
    cached = folder / "cache"
    cached.mkdir()
    (cached / "conv2d_cpu.json").write_bytes((cache / "conv2d_cpu.json").read_bytes())
    (cached / "peaks_cpu.json").write_text(peaks(run))
    return seconds
