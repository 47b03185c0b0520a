#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that every notebook of the course has the structure of experiments/notebooks/README.md:
course_test.py ROOT

Each notebook has no stored outputs, one set-up line, a question at the start, short cells and
lines, and two exercises. Each exercise has a check and a solution. Other tests check whether the
cells run.
"""
import json
import pathlib
import re
import sys

LINES, COLUMNS = 30, 98  # of a cell: an algorithm of 25 lines, and its surroundings
SET_UP = "#include <convscope/notebook.h>\nusing namespace convscope;"
HEADINGS = ("## Try this", "## Exercise 1", "## Exercise 2", "## Read next")


def source_of(cell):
    return "".join(cell["source"])


def tags_of(cell):
    return cell["metadata"].get("tags", [])


def problems_of(name, notebook):
    """Returns sentences about one notebook."""
    found = []

    def expect(holds, sentence):
        if not holds:
            found.append(f"{name}: {sentence}")

    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    text = [source_of(cell) for cell in cells if cell["cell_type"] == "markdown"]
    expect(notebook["metadata"].get("kernelspec", {}).get("name") == "xcpp20",
           "expected the kernel xcpp20, which xeus-cpp has too")
    for number, cell in enumerate(code, 1):
        first = source_of(cell).split("\n")[0]
        expect(not cell["outputs"] and cell["execution_count"] is None,
               f"expected no outputs in git, got some of '{first}'; run_notebooks.py --clean takes them out")
        lines = source_of(cell).split("\n")
        expect(len(lines) <= LINES, f"expected at most {LINES} lines of code, got {len(lines)} in '{first}'")
        for line in lines:
            expect(len(line) <= COLUMNS, f"expected at most {COLUMNS} columns, got {len(line)}: {line}")
    expect(code and source_of(code[0]) == SET_UP, f"expected the first code cell to be\n{SET_UP}")
    expect(text and re.match(rf"# {name[:2]} \S", text[0]) and "**Question.**" in text[0],
           f"expected '# {name[:2]} Title' and '**Question.** ...' at the head")
    for heading in HEADINGS:
        expect(any(part.startswith(heading) for part in text), f"expected a cell that begins with '{heading}'")
    order = [tag for cell in cells for tag in tags_of(cell)]
    expect(order == [f"{kind}-{number}" for number in "12" for kind in ("exercise", "check", "solution")],
           f"expected the tags exercise-1, check-1, solution-1 and the same with 2, got {order}")
    for cell in cells:
        if any(tag.startswith("solution") for tag in tags_of(cell)):
            expect(re.match(r"<details><summary>", source_of(cell)) and
                   len(re.findall(r"```cpp\n.*?```", source_of(cell), re.DOTALL)) == 1,
                   "expected a solution folded in <details>, with one block of cpp")
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    files = sorted((root / "experiments/notebooks").glob("*.ipynb"))
    found = [] if files else ["expected notebooks, got none"]
    for path in files:
        if not re.match(r"\d\d_[a-z0-9_]+$", path.stem):
            found.append(f"{path.name}: expected a name like 04_winograd.ipynb")
            continue
        found += problems_of(path.stem, json.loads(path.read_text()))
    print("\n".join(found))
    print(f"{len(files)} notebooks, {len(found)} problems")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
