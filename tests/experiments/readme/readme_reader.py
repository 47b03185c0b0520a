# SPDX-License-Identifier: Apache-2.0
"""Makes the folder in which the commands of README and guides run, and holds functions that the checks
share."""
import re
import struct
import subprocess

TABLE = ["id", "name", "batch_size", "avg_forward", "avg_backward", "avg_forward_mem",
         "avg_backward_mem", "kernel_size", "acc"]  # what every run ends with
QUICK = ["--min-time", "0.001", "--rounds", "1"]
NO_GPU = 5
CHECKS = []  # (pattern of the command, check)


class Wrong(Exception):
    """Says in a sentence what is wrong."""


def check(*patterns):
    def add(function):
        CHECKS.extend((re.compile(pattern), function) for pattern in patterns)
        return function
    return add


def expect(holds, sentence):
    if not holds:
        raise Wrong(sentence)


def expect_text(text, *patterns):
    for pattern in patterns:
        expect(re.search(pattern, text), f"expected {pattern!r}")


def table_of(text):
    """Returns the last Markdown table: its columns, and a dict for each row."""
    lines = [line for line in text.split("\n") if line.startswith("| ")]
    rules = [i for i, line in enumerate(lines) if set(line) <= set("|- ")]
    expect(rules, "expected a table")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    columns = cells[rules[-1] - 1]
    return columns, [dict(zip(columns, row)) for row in cells[rules[-1] + 1:]]


class Reader:
    """Makes the folder in which the commands run, with the files that the documents assume."""

    def __init__(self, program, root, folder):
        self.program, self.root, self.folder = program, root, folder
        self.last = None  # result of the last call
        self.write_npy("x.npy", 1, 3, 9, 9)
        self.write_npy("w.npy", 4, 3, 3, 3)
        self.write_npy("offset.npy", 1, 18, 9, 9)
        self.write_npy("mask.npy", 1, 9, 9, 9)
        self.write_npy("rows.npy", 5, 3)
        self.write_npy("sites.npy", 5, 3, code="i", values=[0, 1, 2, 0, 0, 0, 0, 2, 3, 0, 1, 1, 0, 2, 2])
        (folder / "data/mnist").mkdir(parents=True)
        for stem, count in (("train", 256), ("t10k", 64)):
            self.write_idx(f"data/mnist/{stem}-images-idx3-ubyte", count, 28, 28)
            self.write_idx(f"data/mnist/{stem}-labels-idx1-ubyte", count)

    def write_npy(self, name, *shape, code="f", values=None):
        count = 1
        for size in shape:
            count *= size
        head = f"{{'descr': '<{code}4', 'fortran_order': False, 'shape': {shape!r}, }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        (self.folder / name).write_bytes(
            b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() +
            struct.pack(f"<{count}{code}", *(values or [i % 5 - 2 for i in range(count)])))

    def write_idx(self, name, count, *image):
        size = count
        for side in image:
            size *= side
        (self.folder / name).write_bytes(
            bytes([0, 0, 8, 1 + len(image)]) + struct.pack(f">{1 + len(image)}I", count, *image) +
            bytes((i * 7 + i // 784) % 10 for i in range(size)))

    def call(self, *words):
        self.last = subprocess.run([str(self.program), *words], cwd=self.folder,
                                   capture_output=True, text=True, timeout=300)
        return self.last

    def text(self, name):
        path = self.folder / name
        expect(path.is_file(), f"expected the file {name}")
        return path.read_text()
