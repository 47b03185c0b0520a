#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reports the share of unpruned weights in the lists of `block_sparse`, and what another channel order would save.

`block_sparse` has one list for each 16 output channels (rows of the weight matrix). The list has an entry for each
column in which one of the 16 rows keeps a weight. An entry stores the weights of all 16 rows, so masks of single
weights or of 4 x 1 blocks leave zeros in it. Rows with similar masks could share a list: this script groups them
greedily (the next row is the one that adds the fewest new columns) and counts the entries before and after.

    python3 experiments/bench/list_fill.py runs/NAME/latest/ckpt/last.safetensors --rows 4
    python3 experiments/bench/list_fill.py --random 256x2304 --density 0.1 --rows 1

Needs NumPy.
"""
import argparse
import json
import pathlib
import struct
import sys

import numpy as np

LIST = 16  # output channels per list


def masks_of(path):
    """Returns the masks of a checkpoint, [K, C R S], by name."""
    try:
        data = pathlib.Path(path).read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
    except (OSError, struct.error, ValueError) as error:
        sys.exit(f"expected a .safetensors checkpoint of Convscope, got {path} ({error})")
    out = {}
    for name, entry in header.items():
        if not name.endswith(".mask.keep") or len(entry["shape"]) != 4:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        out[name.removesuffix(".mask.keep")] = np.frombuffer(data[begin:end], np.float32).reshape(
            entry["shape"][0], -1) != 0
    return out


def entries(mask, lists):
    return sum(int(mask[rows].any(0).sum()) for rows in lists)


def by_similarity(mask, rows):
    """Returns lists of LIST rows with similar masks. Each block of `rows` neighbouring rows stays in one list."""
    units = mask.reshape(len(mask) // rows, rows, -1).any(1)
    left, lists = list(range(len(units))), []
    while left:
        taken = [max(left, key=lambda unit: units[unit].sum())]
        left.remove(taken[0])
        columns = units[taken[0]].copy()
        while len(taken) < LIST // rows and left:
            added = [(units[unit] & ~columns).sum() for unit in left]
            taken.append(left.pop(int(np.argmin(added))))
            columns |= units[taken[-1]]
        lists.append([unit * rows + i for unit in taken for i in range(rows)])
    return lists


def size_of(text):
    k, _, columns = text.partition("x")
    if not (k.isdecimal() and columns.isdecimal() and int(k) * int(columns) > 0):
        raise argparse.ArgumentTypeError(f"expected a size such as 256x2304, got {text!r}")
    return int(k), int(columns)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", nargs="?")
    parser.add_argument("--rows", type=int, default=1, help="of a block of the mask: 1, 2, 4, 8 (default 1)")
    parser.add_argument("--random", metavar="KxCOLUMNS", type=size_of, help="a random mask, no checkpoint")
    parser.add_argument("--density", type=float, default=0.1)
    arguments = parser.parse_args()
    rows = arguments.rows
    if rows < 1 or LIST % rows != 0 or (arguments.checkpoint is None) == (arguments.random is None):
        parser.error("expected a checkpoint or --random, and --rows that divide 16")
    if arguments.random:
        k, columns = arguments.random
        blocks = np.random.default_rng(1).random((k // rows, columns)) < arguments.density
        masks = {"random": np.repeat(blocks, rows, 0)}
    else:
        masks = masks_of(arguments.checkpoint)
    masks = {name: mask for name, mask in masks.items() if len(mask) % LIST == 0}
    if not masks:
        sys.exit(f"expected masks of convolutions with a multiple of 16 output channels, got none in "
                 f"{arguments.checkpoint}")
    print("| layer | density | full entries, % | by similarity, % | entries saved, % |\n|---|---|---|---|---|")
    before = after = 0
    for name, mask in masks.items():
        plain = entries(mask, [list(range(i, i + LIST)) for i in range(0, len(mask), LIST)])
        ordered = entries(mask, by_similarity(mask, rows))
        before, after = before + plain, after + ordered
        full = mask.sum() / LIST
        print(f"| {name} | {mask.mean():.3f} | {100 * full / max(plain, 1):.1f} | "
              f"{100 * full / max(ordered, 1):.1f} | {100 * (1 - ordered / max(plain, 1)):.1f} |")
    print(f"| all | | | | {100 * (1 - after / max(before, 1)):.1f} |")


if __name__ == "__main__":
    main()
