#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the text of every mistake in tests/mutants occurs exactly once in its file, and that
the named tests exist."""
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
