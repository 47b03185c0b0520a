# SPDX-License-Identifier: Apache-2.0
"""Places each page in the menu. A page that matches no pattern is under 'More', so that every new page is
in the menu."""

import fnmatch
import pathlib
import re

from pages import page_of

MENU = [
    ("Start", ["README.md"]),
    (
        "Guides",
        [
            "framework/docs/README.md",
            *(
                f"framework/docs/guide/{name}.md"
                for name in (
                    "install",
                    "train",
                    "sweep",
                    "compare",
                    "benchmark",
                    "choose-algorithms",
                    "read-an-algorithm",
                    "notebooks",
                    "quantise",
                    "prune",
                    "export",
                    "gpus",
                    "clusters",
                    "own-data",
                    "points-and-deformable",
                    "python",
                    "plug-ins",
                    "add-a-layer",
                    "*",
                )
            ),
        ],
    ),
    ("Course", ["experiments/notebooks/README.md", "experiments/notebooks/*.ipynb"]),
    ("Conv2d", ["layers/conv2d/README.md", "layers/conv2d/*/README.md"]),
    (
        "Layers",
        [
            "layers/README.md",
            "layers/conv_transpose2d/README.md",
            "layers/deform_conv2d/README.md",
            "layers/sparse_conv/README.md",
            "layers/sparse_rows/README.md",
            "layers/*/README.md",
        ],
    ),
    ("Results", ["experiments/results/cpu.md", "experiments/results/*.md"]),
    (
        "Reference",
        [
            "experiments/report/README.md",
            "experiments/bench/README.md",
            "experiments/compare/README.md",
            "experiments/check/README.md",
            "experiments/baselines/README.md",
            "experiments/trainer/ranks/README.md",
            "quant/README.md",
            "sparsity/README.md",
            "datasets/README.md",
            "experiments/*/README.md",
        ],
    ),
    (
        "Explanation",
        [
            "framework/docs/architecture.md",
            "framework/docs/explanation/*.md",
            "framework/cuda/README.md",
            "framework/cuda/*/README.md",
        ],
    ),
    ("Contribute", ["CONTRIBUTING.md", "CHANGELOG.md", "*/README.md"]),
]

def title_of(repository, name):
    """Returns the first heading of a document, up to the colon."""
    if name.endswith(".ipynb"):
        return pathlib.PurePosixPath(name).stem.replace("_", " ")
    match = re.search(r"(?m)^# (.+)$", repository.text(name))
    title = match[1] if match else name
    return re.sub(r"[`*]", "", re.split(r"[:.]( |$)", title)[0])


def menu(repository, reference):
    """Returns the nav of mkdocs. `reference` holds (title, page) of the pages that the program makes."""
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
        if title == "Reference":
            entries = [{name: page} for name, page in reference] + entries
        out.append({title: entries[0]["Convscope"]} if title == "Start" else {title: entries})
    left = [{title_of(repository, name): page_of(name)} for name in names if name not in taken]
    return out + ([{"More": left}] if left else [])
