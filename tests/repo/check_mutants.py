#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every mistake that tests/mutants plants fits its file exactly once, and names existing tests."""
import pathlib
import sys

from sources import FOLDERS, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
import mutant_list


def problems(root):
    lists = root / "tests" / "mutants" / "list"
    try:
        mutants = mutant_list.read_all(lists)
    except mutant_list.ListError as error:
        return [str(error)]
    found = mutant_list.mistakes(mutants, root)
    planted_in = {m.file.split("/")[0] for m in mutants}
    for folder in FOLDERS:
        if folder != "tests" and folder not in planted_in:
            found.append(f"{lists.relative_to(root)}: no mistake is planted in {folder}/")
    return found


if __name__ == "__main__":
    main(problems)
