# SPDX-License-Identifier: Apache-2.0
"""Reads run folders: as a pandas frame, as the table of `convscope report`, as figures of `convscope plot`."""
from __future__ import annotations

import csv
import io
import json
import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, Union

from . import _native
from ._errors import ArgumentError, Error, FileError
from ._shown import html_table

Path = Union[str, "os.PathLike[str]"]


def pandas(what: str) -> Any:
    """Returns the package pandas, or raises a sentence."""
    try:
        import pandas as module  # type: ignore[import-untyped]
    except ImportError as error:
        raise Error(f"[{what}] expected the package pandas because the answer is a frame of it, found "
                    "none; install it: pip install pandas") from error
    return module


def _paths(paths: Any, operation: str) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    try:
        found = [os.fspath(path) for path in paths]
    except TypeError:
        raise ArgumentError(f"[{operation}] expected a path or a list of paths, got one of type "
                            f"{type(paths).__name__}") from None
    if not found:
        raise ArgumentError(f"[{operation}] expected at least one path, got none")
    return found


def _words(words: Any) -> list[str]:
    if words is None:
        return []
    return words.split(",") if isinstance(words, str) else [str(word) for word in words]


def runs(paths: Path | Sequence[Path] = "runs") -> Any:
    """Returns a pandas frame with a row for each run at or below the paths.

    The columns are those of `convscope report` (id, name, avg_forward, acc, ...; seconds, MiB, percent),
    then every key of the runs' configs ("optim.lr"). Unreadable runs are reported as warnings.
    """
    module = pandas("runs")
    text, remarks = _native._runs_json(_paths(paths, "runs"))
    for remark in remarks:
        warnings.warn(remark, stacklevel=2)
    return module.DataFrame(json.loads(text))


class Report:
    """The table of `convscope report`: print it, show it in Jupyter, or use `text` and `rows`."""

    def __init__(self, text: str, table: str, remarks: list[str]):
        self.text = text
        self.remarks = remarks
        self.head, *self.rows = list(csv.reader(io.StringIO(table)))

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return html_table(self.head, self.rows)


def report(paths: Path | Sequence[Path] = "runs", *, columns: str | Sequence[str] | None = None,
           filter: str | Sequence[str] | None = None, group: str | Sequence[str] | None = None,
           tag: str | Sequence[str] | None = None, sort: str = "", descending: bool = False,
           format: str = "md") -> Report:
    """Returns the table that `convscope report` prints; the arguments are its options.

    report("runs/", columns="+optim.lr", filter=["acc>=98"], sort="acc", descending=True)
    report("runs/", group="model.type")         # means and deviations over seeds
    """
    if format not in ("md", "csv", "json", "latex"):
        raise ArgumentError(f"[report] expected format md, csv, json or latex, got {format!r}")
    filters = [filter] if isinstance(filter, str) else _words(filter)
    rest = (filters, _words(group), _words(tag), sort, descending)
    text, remarks = _native._report(_paths(paths, "report"), format, _words(columns), *rest)
    shown = _words(columns)
    if not shown and format != "csv":  # the default columns are those of the text
        head = text.split("\n", 1)[0]
        shown = [cell.strip() for cell in head.strip("|").split("|")] if format == "md" else []
    grouped = bool(_words(group))
    table = text if format == "csv" else _native._report(
        _paths(paths, "report"), "csv", [] if grouped else shown, *rest)[0]
    return Report(text, table, remarks)


class Confusion(NamedTuple):
    """The confusion matrix of the test images: matrix[i][k] counts images of classes[i] predicted as classes[k];
    with a class for each pixel, it counts pixels."""
    classes: list[str]
    matrix: list[list[int]]


def confusion(run: Path) -> Confusion:
    """Returns the confusion matrix of a run folder. The top-5 accuracy is the column test_top5 of runs()."""
    path = os.path.join(os.fspath(run), "confusion.csv")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            head, *rows = list(csv.reader(file))
        classes, matrix = head[1:], [[int(cell) for cell in row[1:]] for row in rows]
    except OSError as error:
        raise FileError(f"[confusion] expected the file {path} of a run that has ended, got: "
                        f"{error.strerror}") from None
    except (ValueError, csv.Error):  # not even a header, or a cell that holds text
        classes, matrix = [], []
    if not classes or [len(row) for row in matrix] != [len(classes)] * len(classes):
        raise FileError(f"[confusion] expected the file {path} as a run writes it, with a row and a column for each "
                        "class, got one that is empty or damaged")
    return Confusion(classes, matrix)


class Plot:
    """A figure, which Jupyter displays."""

    def __init__(self, kind: str, svg: str):
        self.kind = kind
        self.svg = svg

    def __repr__(self) -> str:
        return f"<figure {self.kind}, {len(self.svg)} bytes of SVG; save(path) writes it>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Path) -> None:
        """Writes the figure to a file that ends in .svg."""
        name = os.fspath(path)
        if not name.endswith(".svg"):
            raise ArgumentError(f"[plot] expected a path that ends in .svg, got {name}; `convscope plot "
                                "--format png,pdf` makes the others")
        try:
            with open(name, "w", encoding="utf-8") as file:
                file.write(self.svg)
        except OSError as error:
            raise FileError(f"[plot] expected to write {name}, got: {error.strerror}") from None


class Plots(list[Plot]):
    """Figures in order. `left_out` says which were not drawn, and why."""

    def __init__(self, plots: list[Plot], left_out: list[str]):
        super().__init__(plots)
        self.left_out = left_out

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for one in self:
            if one.kind == key:
                return one
        raise KeyError(key)

    def __repr__(self) -> str:
        return f"<figures {', '.join(one.kind for one in self) or '(none)'}>"

    def save(self, path: Path) -> None:
        """Writes one figure to a file that ends in .svg; several to a folder, each under its kind."""
        if len(self) == 1:
            self[0].save(path)
            return
        if not self:
            raise ArgumentError("[plot] expected a figure to save, got none: " + "; ".join(self.left_out))
        folder = os.fspath(path)
        if folder.endswith(".svg"):
            raise ArgumentError(f"[plot] expected a folder for {len(self)} figures, got {folder}; choose one "
                                f"by its kind, as in plots[\"{self[0].kind}\"].save(path)")
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise FileError(f"[plot] expected to make the folder {folder}, got: {error.strerror}") from None
        for one in self:
            one.save(os.path.join(folder, one.kind + ".svg"))

    def _repr_html_(self) -> str:
        return "\n".join(f"<div>{one.svg}</div>" for one in self)


def plot(paths: Path | Sequence[Path] = "runs", kind: str | Sequence[str] | None = None, *,
         width: int = 0) -> Plots:
    """Returns the figures of `convscope plot`, from run folders or from files of `convscope bench --json`.

    kind   some of plot_kinds(); None: all that the files permit
    width  pixels; 0: the default
    """
    drawn, left_out = _native._plots(_paths(paths, "plot"), _words(kind), width)
    return Plots([Plot(*one) for one in drawn], left_out)
