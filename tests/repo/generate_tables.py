#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates the documents' tables of algorithms from the code of the algorithms: generate_tables.py
ROOT [--write]

The content of a table between <!-- generated: NAME --> and <!-- /generated --> comes from the files
that define the algorithms. Name and idea are fields of an algorithm. 'takes' comes from the field
Supports in the header comment, whose sentences match the refusals. Without --write, the script
checks that documents and code agree.
"""
import argparse
import pathlib
import re
import sys

from sources import code_files

MARKED = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)
ALGORITHM = re.compile(r"^(?:const|constexpr|inline constexpr|static constexpr|static const) "
                  r"Conv2dAlgorithm \w+(?:\{| = lesson_algorithm<\w+>\(\{)(.*?)\n\}\)?;",
                  re.DOTALL | re.MULTILINE)
# The reading order of layers/conv2d/README.md.
FOLDERS = ["reference", "im2col_gemm", "gemm_1x1", "direct", "direct_nchw16c", "direct_small_groups",
           "direct_sample", "direct_any", "depthwise", "winograd", "fft", "implicit_gemm",
           "implicit_gemm_tma", "grouped_gemm", "cluster_gemm", "few_pixels", "batch_lanes",
           "block_sparse"]
DOCUMENTS = ["framework/docs/guide/choose-algorithms.md", "layers/conv2d/README.md"]


def literal(body, field):
    """Returns the string of .field = "..." "...", or ""."""
    match = re.search(rf'\.{field} =\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', body)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))) if match else ""


def supports(text):
    match = re.search(r"^// Supports +(.*(?:\n//   +.*)*)", text, re.MULTILINE)
    return re.sub(r"\n// +", " ", match.group(1)).rstrip(".") if match else ""


def folder_of(path):
    """Returns the folder of an algorithm, seen from layers/conv2d, without cpu/ or cuda/."""
    parts = path.parent.parts[2:]
    return "/".join(parts[:-1] if parts[-1] in ("cpu", "cuda") else parts)


def algorithms(root):
    found = []
    for path in code_files(root, ["layers"]):
        if path.parts[:2] != ("layers", "conv2d") or path.suffix not in (".cpp", ".cu"):
            continue
        text = (root / path).read_text()
        for match in ALGORITHM.finditer(text):
            body = match.group(1)
            found.append({"name": literal(body, "name"), "idea": literal(body, "idea"),
                          "device": "CUDA" if "DeviceType::cuda" in body else "CPU",
                          "folder": folder_of(path), "takes": supports(text), "path": path,
                          "by_name": ".auto_ok = false" in body or "_lesson_" in path.name,
                          "lesson": "_lesson_" in path.name})
    order = {folder: i for i, folder in enumerate(FOLDERS)}
    return sorted(found, key=lambda algorithm: (order.get(algorithm["folder"], len(FOLDERS)), not algorithm["lesson"],
                                           algorithm["device"], algorithm["name"]))


def row(*cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(name, all_algorithms):
    if name in ("algorithms-cpu", "algorithms-cuda"):
        device = "CPU" if name.endswith("cpu") else "CUDA"
        lines = [row("name", "idea", "accepts"), "|---|---|---|\n"]
        lines += [row(f"`{algorithm['name']}`", algorithm["idea"], algorithm["takes"]) for algorithm in all_algorithms
                  if algorithm["device"] == device and not algorithm["lesson"]]
    elif name == "which-when":
        lines = [row("folder", "algorithm", "device", "chosen by `auto`", "accepts"), "|---|---|---|---|---|\n"]
        lines += [row(f"[{algorithm['folder']}]({algorithm['folder']}/README.md)", f"`{algorithm['name']}`",
                      algorithm["device"], "as a last resort" if algorithm["by_name"] else "yes", algorithm["takes"])
                  for algorithm in all_algorithms]
    else:
        return None
    return "".join(lines)


def changed(root):
    """Returns (document, its text, its expected text, problems)."""
    all_algorithms = algorithms(root)
    lacking = [f"{algorithm['path']}: its algorithm or its field Supports says nothing for the tables"
               for algorithm in all_algorithms if not (algorithm["name"] and algorithm["idea"] and algorithm["takes"])]
    for document in DOCUMENTS:
        if not (root / document).is_file():
            continue
        text = (root / document).read_text()

        def fill(match):
            made = table(match.group(2), all_algorithms)
            if made is None:
                lacking.append(f"{document}: {match.group(2)} is not the name of a table")
                made = match.group(3)
            return match.group(1) + made + match.group(4)

        yield document, text, MARKED.sub(fill, text), lacking


def problems(root):
    found = []
    for document, text, wanted, lacking in changed(root):
        found += [problem for problem in lacking if problem not in found]
        if not MARKED.search(text):
            found.append(f"{document}: expected a table between <!-- generated: NAME --> and "
                         "<!-- /generated -->")
        elif text != wanted:
            found.append(f"{document}: its tables are not those of the algorithms: "
                         "run tests/repo/generate_tables.py ROOT --write")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        for document, text, wanted, _ in changed(arguments.root):
            if text != wanted:
                (arguments.root / document).write_text(wanted)
                print(f"{document}: written")
    found = problems(arguments.root)
    for problem in found:
        print(problem)
    print(f"{len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
