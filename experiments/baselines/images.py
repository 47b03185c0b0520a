# SPDX-License-Identifier: Apache-2.0
"""Reads the files of MNIST, and writes random images in the format of CIFAR-10, so that nothing is downloaded."""
import gzip
import pathlib
import random
import struct
import sys


def read_idx(folder, stem):
    """Returns (shape, bytes) of a file of MNIST."""
    for name in (stem, stem + ".gz"):
        path = pathlib.Path(folder) / name
        if path.exists():
            raw = gzip.open(path).read() if name.endswith(".gz") else path.read_bytes()
            rank = raw[3]
            return struct.unpack(f">{rank}I", raw[4:4 + 4 * rank]), raw[4 + 4 * rank:]
    sys.exit(f"error: {stem}[.gz] is not in {folder}; fetch it with `convscope data fetch mnist`")


def mnist(folder, part, layout):
    """Returns the normalised images [N,1,28,28] and the labels [N] of a part (train, t10k) as tensors of PyTorch."""
    import torch

    shape, raw = read_idx(folder, f"{part}-images-idx3-ubyte")
    x = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(shape[0], 1, *shape[1:])
    _, raw = read_idx(folder, f"{part}-labels-idx1-ubyte")
    labels = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()
    return ((x.float() / 255 - 0.1307) / 0.3081).contiguous(memory_format=layout), labels


def write_cifar(folder, train, test):
    """Writes CIFAR-10's files with random images: at least `train` images to train on, and `test` others."""
    rng = random.Random(1)
    folder.mkdir(parents=True)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        count = test if name == "test_batch" else -(-train // 5)
        (folder / f"{name}.bin").write_bytes(
            b"".join(bytes([rng.randrange(10)]) + rng.randbytes(3072) for _ in range(count)))
