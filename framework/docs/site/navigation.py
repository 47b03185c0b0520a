# SPDX-License-Identifier: Apache-2.0
"""Which page stands where in the menu. What no pattern takes stands under 'More', so that nothing
new is lost."""

import fnmatch
import pathlib
import re

from pages import page_of

MENU = [
    ("Start", ["README.md"]),
    ("Course", ["experiments/notebooks/README.md", "experiments/notebooks/*.ipynb"]),
    ("Conv2d", ["layers/conv2d/README.md", "layers/conv2d/*/README.md"]),
    (
        "Layers",
        [
            "layers/README.md",
            "layers/deform_conv2d/README.md",
            "layers/sparse_conv/README.md",
            "layers/sparse_rows/README.md",
            "layers/*/README.md",
        ],
    ),
    ("Fewer bits, fewer weights", ["quant/README.md", "sparsity/README.md"]),
    (
        "Measuring",
        [
            "datasets/README.md",
            "experiments/bench/README.md",
            "experiments/report/README.md",
            "experiments/compare/README.md",
            "experiments/check/README.md",
            "experiments/peers/README.md",
            "experiments/trainer/ranks/README.md",
            "experiments/*/README.md",
        ],
    ),
    ("Results", ["experiments/results/*.md"]),
    ("The house", ["framework/docs/design.md", "CONTRIBUTING.md", "CHANGELOG.md", "*/README.md"]),
]


def title_of(repository, name):
    """Its first heading, up to the colon."""
    if name.endswith(".ipynb"):
        return pathlib.PurePosixPath(name).stem.replace("_", " ")
    match = re.search(r"(?m)^# (.+)$", repository.text(name))
    title = match[1] if match else name
    return re.sub(r"[`*]", "", re.split(r"[:.]( |$)", title)[0])


def menu(repository, reference):
    """mkdocs' nav; `reference`: (title, page) of the pages that are no file of the repository."""
    names = [
        name for name in repository.documents() + repository.notebooks() if "/records/" not in name
    ]
    taken, out = set(), []
    for title, patterns in MENU:
        entries = []
        for pattern in patterns:
            for name in names:
                if name not in taken and fnmatch.fnmatchcase(name, pattern):
                    taken.add(name)
                    entries.append({title_of(repository, name): page_of(name)})
        out.append({title: entries[0]["Convscope"]} if title == "Start" else {title: entries})
        if title == "Results":
            out.append({"Reference": [{name: page} for name, page in reference]})
    left = [{title_of(repository, name): page_of(name)} for name in names if name not in taken]
    return out + ([{"More": left}] if left else [])
