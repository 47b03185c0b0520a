#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs notebooks without a browser: run_notebooks.py [--html DIR] [--solutions] FILE...

Run it with the environment's Python (set_up.py). A failing cell ends its notebook; the exit code is 1 and the
output names the cell. The script uses the kernel in this folder with CONVSCOPE_INCLUDE and CONVSCOPE_LIBRARY of
the environment, or else the kernel that `set_up.py` installed.

--clean       removes outputs and cell numbers from the files, as stored in git; runs nothing
--html DIR    writes a page for each notebook, with its outputs
--save DIR    writes each notebook with its outputs
--times       the seconds of the slowest cells
--limit S     fails when a notebook takes more than S seconds of processor time (of all threads), which
              a busy machine does not change
--solutions   puts the solutions, which are folded below their checks, into the cells of the exercises, and
              expects every check to say "right"; without --solutions each check must say "not yet"
--both        the unchanged notebook, then its solutions and their checks in the same session
"""
import argparse
import copy
import datetime
import json
import os
import pathlib
import re
import resource
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
CELL_TIMEOUT_S = 120
SOLUTION = re.compile(r"```cpp\n(.*?)```", re.DOTALL)


def kernel_manager(asynchronous=True):
    """Returns a kernel manager. nbclient sees the death of a kernel only with an asynchronous manager."""
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager, KernelManager
    manager = (AsyncKernelManager if asynchronous else KernelManager)(kernel_name="xcpp20")
    if os.environ.get("CONVSCOPE_INCLUDE"):
        manager._kernel_spec = KernelSpec(
            argv=[sys.executable, str(HERE / "kernel" / "kernel.py"), "-f", "{connection_file}"],
            display_name="C++20 (Convscope)", language="C++",
            env={"OMP_WAIT_POLICY": "passive"})
    return manager


def knows_kernel():
    from jupyter_client.kernelspec import KernelSpecManager
    return bool(os.environ.get("CONVSCOPE_INCLUDE")) or "xcpp20" in KernelSpecManager().find_kernel_specs()


def tag_of(cell, kind):
    """Returns "1" for a cell with the tag "exercise-1"."""
    for tag in cell.metadata.get("tags", []):
        if tag.startswith(kind + "-"):
            return tag[len(kind) + 1:]
    return None


def solutions_of(notebook):
    return {tag_of(cell, "solution"): SOLUTION.search(cell.source)[1]
            for cell in notebook.cells if tag_of(cell, "solution")}


def put_solutions_in(notebook):
    solutions = solutions_of(notebook)
    for cell in notebook.cells:
        number = tag_of(cell, "exercise")
        if number:
            cell.source = solutions[number]


def solved_cells(notebook):
    """Returns each solution and its check, as separate cells."""
    solutions = solutions_of(notebook)
    out = []
    for cell in notebook.cells:
        number = tag_of(cell, "exercise") or tag_of(cell, "check")
        if number:
            out.append(copy.deepcopy(cell))
            out[-1].id = f"{cell.id}-solved"
            if tag_of(cell, "exercise"):
                out[-1].source = solutions[number]
    return out


def text_of(cell):
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def wrong_checks(cells, solved):
    """Returns the checks of exercises with an unexpected result."""
    word = "right" if solved else "not yet"
    return [f"exercise {tag_of(cell, 'check')}: expected its check to say '{word}', got '{text_of(cell).strip()}'"
            for cell in cells
            if tag_of(cell, "check") and not re.search(rf": {word}\b", text_of(cell))]


def run(path, solved, both=False):
    """Returns (the notebook with its outputs, what is wrong or None)."""
    import nbformat
    from jupyter_core.utils import run_sync
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    notebook = nbformat.read(path, as_version=4)
    if solved:
        put_solutions_in(notebook)
    own = len(notebook.cells)
    if both:
        notebook.cells += solved_cells(notebook)
    manager = kernel_manager()
    client = NotebookClient(notebook, km=manager, timeout=CELL_TIMEOUT_S,
                            startup_timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(path.parent)}})
    try:
        client.execute()
    except CellExecutionError as error:
        return notebook, f"a cell failed with {error.ename}: {error.evalue}"
    except (CellTimeoutError, DeadKernelError) as error:
        return notebook, str(error)
    finally:
        if manager.has_kernel:
            run_sync(manager.shutdown_kernel)()
    wrong = wrong_checks(notebook.cells[:own], solved) + wrong_checks(notebook.cells[own:], True)
    del notebook.cells[own:]
    return notebook, "; ".join(wrong) or None


def clean(path):
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        cell["metadata"] = {"tags": cell["metadata"]["tags"]} if cell["metadata"].get("tags") else {}
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def used_by_children():
    """Returns seconds of processor time of the kernels that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def slowest_cells(notebook, count=5):
    """Returns lines with seconds and the first line of each of the slowest cells."""
    times = []
    for cell in notebook.cells:
        stamps = cell.metadata.get("execution", {})
        if "iopub.status.idle" in stamps and "iopub.status.busy" in stamps:
            begin, end = (datetime.datetime.fromisoformat(stamps[f"iopub.status.{state}"])
                          for state in ("busy", "idle"))
            times.append(((end - begin).total_seconds(), cell.source.split("\n")[0]))
    return [f"  {seconds:6.2f} s  {line}" for seconds, line in sorted(times, reverse=True)[:count]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--html", type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path)
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--limit", type=float, metavar="S")
    parser.add_argument("--solutions", action="store_true")
    parser.add_argument("--both", action="store_true")
    arguments = parser.parse_args()
    if not arguments.clean and not knows_kernel():
        sys.exit("run_notebooks: expected CONVSCOPE_INCLUDE and CONVSCOPE_LIBRARY in the environment, or the "
                 "kernel xcpp20 that set_up.py installs, got neither")
    if arguments.clean:
        for path in arguments.files:
            clean(path)
        return
    failed = 0
    for path in arguments.files:
        begin, used_before = time.monotonic(), used_by_children()
        notebook, wrong = run(path.resolve(), arguments.solutions, arguments.both)
        used = used_by_children() - used_before
        if not wrong and arguments.limit and used > arguments.limit:
            wrong = f"expected at most {arguments.limit:g} s of processor time, got {used:.1f} s"
        failed += wrong is not None
        print(f"{'FAILED' if wrong else 'ok'}  {path.name}  {time.monotonic() - begin:.1f} s, "
              f"{used:.1f} s of processor time", flush=True)
        if wrong:
            print(wrong, flush=True)
        if arguments.times:
            print("\n".join(slowest_cells(notebook)), flush=True)
        if arguments.save:
            import nbformat
            arguments.save.mkdir(parents=True, exist_ok=True)
            nbformat.write(notebook, arguments.save / path.name)
        if arguments.html:
            import page
            arguments.html.mkdir(parents=True, exist_ok=True)
            out = arguments.html / f"{path.stem}.html"
            out.write_text(page.to_html(notebook, path.stem))
            print(f"wrote {out}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
