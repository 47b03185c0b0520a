#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the two diagrams of the documents from the repository: diagrams.py ROOT [--write]

folders.svg shows which folder includes headers of which other folder. The arrows are read from the
`#include` lines. config_to_kernel.svg follows a config to the kernel that runs. Each of its steps names
a file and a function, and the function must occur in the file. Without --write the script checks that
the committed pictures equal the pictures that it makes.
"""

import argparse
import os
import pathlib
import re
import sys
from xml.sax.saxutils import escape

PICTURES = "framework/docs/pictures"
SOURCES = (".h", ".cpp", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r'(?m)^\s*#\s*include\s+"([^"]+)"')

# Where each folder is drawn, as (row, left, width), and the text in its box.
TOP = {
    "experiments": (0, 20, 760, "command line, configs, trainer, benchmarks, plots"),
    "quant": (1, 20, 170, "quantisation"),
    "sparsity": (1, 210, 170, "pruning"),
    "layers": (2, 20, 360, "networks are made of these"),
    "optim": (2, 400, 180, "SGD, Adam, schedules"),
    "datasets": (2, 600, 180, "images and points"),
    "framework": (3, 20, 760, "tensors, autograd, SIMD, CUDA, file formats; knows no layer"),
}
ROW_TOP = [20, 105, 190, 480]
ROW_HEIGHT = [50, 50, 245, 50]
# Folders inside of layers/: (left, top, width), and the text in each box.
INSIDE = {
    "deform_conv2d": (35, 240, 160, "samples that move"),
    "sparse_conv": (205, 240, 160, "at active sites only"),
    "conv2d": (35, 305, 160, "one folder per algorithm"),
    "plan": (205, 305, 160, "steps compiled once"),
    "dispatch": (35, 370, 330, "registry, selection, measurement"),
}
BOX = 44

STEPS = [  # (file, text that must occur in the file, title, text)
    (
        "experiments/configs/quickstart.yaml",
        "train:",
        "the config",
        "names the network and how it is trained",
    ),
    (
        "experiments/config/build.cpp",
        "build_model(",
        "build",
        "makes a Module for each layer that the config names",
    ),
    (
        "framework/graph/apply.cpp",
        "apply(",
        "record",
        "each operation of the network becomes a node of a graph",
    ),
    (
        "layers/dispatch/select.h",
        "select_algorithm(",
        "select",
        "each convolution and direction gets the named or the cheapest algorithm",
    ),
    (
        "layers/plan/pipeline.cpp",
        "kPasses",
        "fuse",
        "an operation takes over the ReLU, batch norm or sum after it",
    ),
    (
        "layers/plan/layouts/plan_layouts.cpp",
        "set_layout(",
        "lay out",
        "images become NCHW, NHWC or NCHW16c, whichever is cheaper in total",
    ),
    (
        "layers/plan/step_plan.cpp",
        "StepPlan::emit(",
        "emit",
        "kernel calls become two flat lists, and tensors get addresses",
    ),
    (
        "layers/conv2d/direct/cpu/direct_cpu.cpp",
        "backward_weight(",
        "run",
        "every step calls the functions of the selected algorithm",
    ),
    (
        "layers/conv2d/shared/tiles_simd.cpp",
        "",
        "kernel",
        "compiled for scalar, AVX2 and AVX-512; one is chosen at run time",
    ),
]

STYLE = (
    'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">\n'
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>\n'
)


class Problem(Exception):
    """An error: a diagram shows something that the repository does not have."""


def folder_of(name):
    """Returns `conv2d` for a file of layers/conv2d/, and otherwise the top folder of the file."""
    first, *rest = name.split("/")
    if first == "layers" and len(rest) > 1 and rest[0] in INSIDE:
        return rest[0]
    return first


def includes(root):
    """Returns all pairs (folder, folder that it includes)."""
    found = set()
    for top in TOP:
        for base, below, names in os.walk(root / top):
            below.sort()
            for name in names:
                if not name.endswith(SOURCES):
                    continue
                path = pathlib.Path(base, name)
                here = folder_of(path.relative_to(root).as_posix())
                for target in INCLUDE.findall(path.read_text()):
                    there = folder_of(target)
                    if there != here and (there in TOP or there in INSIDE):
                        found.add((here, there))
    return found


def reduced(pairs):
    """Returns the pairs (a, c) without those that follow from pairs (a, b) and (b, c)."""
    nodes = {node for pair in pairs for node in pair}
    reach = {node: {b for a, b in pairs if a == node} for node in nodes}
    for middle in nodes:
        for node in nodes:
            if middle in reach[node]:
                reach[node] |= reach[middle]
    return {
        (a, b)
        for a, b in pairs
        if not any((a, c) in pairs and b in reach[c] for c in nodes if c not in (a, b))
    }


def box(left, top, width, height, title, text, fill):
    middle, below = left + width / 2, ""
    if text:
        below = (
            f'<text x="{middle:g}" y="{top + 35}" text-anchor="middle" font-size="11" '
            f'fill="#555">{escape(text)}</text>\n'
        )
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5" fill="{fill}" '
        f'stroke="#667"/>\n<text x="{middle:g}" y="{top + 19}" text-anchor="middle" '
        f'font-weight="bold">{escape(title)}</text>\n{below}'
    )


def arrow(x1, y1, x2, y2, both=False):
    start = ' marker-start="url(#tip)"' if both else ""
    return (
        f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" stroke="#555" fill="none"{start} '
        'marker-end="url(#tip)"/>\n'
    )


def shape(name):
    """Returns (left, top, width, height) of a folder's box."""
    if name in TOP:
        row, left, width, _ = TOP[name]
        return left, ROW_TOP[row], width, ROW_HEIGHT[row]
    left, top, width, _ = INSIDE[name]
    return left, top, width, BOX


def between(a, b):
    """Returns the ends of an arrow from the edge of box a to the edge of box b."""
    al, at, aw, ah = shape(a)
    bl, bt, bw, bh = shape(b)
    low, high = max(al, bl), min(al + aw, bl + bw)
    if low < high:  # one above the other
        x = (low + high) / 2
        return (x, at + ah, x, bt) if at < bt else (x, at, x, bt + bh)
    y = (max(at, bt) + min(at + ah, bt + bh)) / 2
    if max(at, bt) < min(at + ah, bt + bh):  # side by side
        return (al + aw, y, bl, y) if al < bl else (al, y, bl + bw, y)
    x = al + aw * (0.85 if al < bl else 0.15)
    return x, at + ah, bl + bw * (0.15 if al < bl else 0.85), bt


def folders(root):
    for name in TOP:
        if not (root / name).is_dir():
            raise Problem(f"expected the folder {name}, which folders.svg shows")
    for name in INSIDE:
        if not (root / "layers" / name).is_dir():
            raise Problem(f"expected the folder layers/{name}, which folders.svg shows")
    pairs = includes(root)
    # For the arrows between top folders, the folders inside of layers/ count as layers.
    tops = {tuple("layers" if name in INSIDE else name for name in pair) for pair in pairs}
    inner = {pair for pair in pairs if pair[0] in INSIDE and pair[1] in INSIDE}
    out = ""
    for name, (_, _, _, text) in TOP.items():
        fill = "#eef3f8" if name == "layers" else "#dfe9f3"
        out += box(*shape(name), name + "/", text, fill)
    for name, (_, _, _, text) in INSIDE.items():
        out += box(*shape(name), name + "/", text, "#fff")
    for a, b in sorted(reduced({pair for pair in tops if pair[0] != pair[1]})):
        out += arrow(*between(a, b))
    one_way = {pair for pair in inner if pair[::-1] not in inner}
    for a, b in sorted(reduced(one_way) | {p for p in inner if p[::-1] in inner and p[0] < p[1]}):
        out += arrow(*between(a, b), both=(b, a) in inner)
    out += (
        '<text x="20" y="555" font-size="11" fill="#555">An arrow: files of one folder include headers '
        "of the other. Arrows that follow from others are left out. Two heads: each includes the "
        "other.</text>\n"
    )
    return svg(800, 570, "Folders of the repository and their includes", out)


def config_to_kernel(root):
    out, top = "", 15
    for number, (name, symbol, title, text) in enumerate(STEPS):
        if not (root / name).is_file():
            raise Problem(f"expected the file {name}, which config_to_kernel.svg shows")
        if symbol and symbol not in (root / name).read_text():
            raise Problem(f"expected {symbol} in {name}, as config_to_kernel.svg shows")
        out += box(20, top, 120, 34, title, "", "#dfe9f3")
        out += f'<text x="155" y="{top + 14}">{escape(text)}</text>\n'
        where = f"{name}, {symbol})" if symbol.endswith("(") else name
        out += f'<text x="155" y="{top + 29}" font-size="11" fill="#555">{escape(where)}</text>\n'
        if number + 1 < len(STEPS):
            out += arrow(80, top + 34, 80, top + 52)
        top += 52
    return svg(620, top - 3, "From a config to a kernel", out)


def svg(width, height, title, body):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{title}" {STYLE}'
        f'<title>{title}</title>\n<rect width="{width}" height="{height}" fill="#fff"/>\n{body}</svg>\n'
    )


def made(root):
    return {"folders.svg": folders(root), "config_to_kernel.svg": config_to_kernel(root)}


def problems(root):
    found = []
    try:
        pictures = made(root)
    except Problem as error:
        return [str(error)]
    for name, text in pictures.items():
        path = root / PICTURES / name
        if not path.is_file() or path.read_text() != text:
            found.append(
                f"{PICTURES}/{name}: expected the picture that the repository gives: "
                "framework/docs/site/diagrams.py ROOT --write makes it"
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="write the pictures")
    arguments = parser.parse_args()
    if arguments.write:
        for name, text in made(arguments.root).items():
            (arguments.root / PICTURES / name).write_text(text)
    found = problems(arguments.root)
    print("\n".join(found + [f"{len(found)} problems"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
