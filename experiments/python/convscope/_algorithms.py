# SPDX-License-Identifier: Apache-2.0
"""Lists algorithms, and explains which one runs a problem and why."""
from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

from . import _native
from ._errors import ArgumentError
from ._shown import Text, html_table


@dataclass(frozen=True)
class Algorithm:
    """One algorithm on one kind of device."""
    name: str
    operation: str
    device: str
    directions: tuple[str, ...]  # of forward, backward_data, backward_weight
    idea: str
    paper: str
    auto: bool  # algorithm="auto" may choose it
    # Set by algorithms(x, w). refusals: reason by direction. estimated_ms: milliseconds by direction.
    refusals: dict[str, str] = field(default_factory=dict)
    estimated_ms: dict[str, float] = field(default_factory=dict)

    @property
    def accepts(self) -> bool:
        """Returns whether the algorithm accepts the problem in every direction that it offers."""
        return not any(direction in self.refusals for direction in self.directions)


class Algorithms(list[Algorithm]):
    """A list of algorithms. It prints as a table, and can be indexed by an algorithm's name."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for one in self:
            if one.name == key:
                return one
        raise KeyError(key)

    def names(self) -> list[str]:
        return [one.name for one in self]

    def _rows(self) -> list[list[str]]:
        asked = any(one.refusals or one.estimated_ms for one in self)
        rows = [["name", "device", "directions", "refuses" if asked else "idea"]]
        for one in self:
            reasons = sorted({one.refusals[d] for d in one.directions if d in one.refusals})
            rows.append([one.name, one.device, " ".join(one.directions),
                         "; ".join(reasons) if asked else one.idea])
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join("  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip()
                         for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = self._rows()
        return html_table(head, rows)

    def frame(self) -> Any:
        """Returns a pandas frame with a row for each algorithm."""
        from ._runs import pandas
        names = [one.name for one in fields(Algorithm)]
        return pandas("algorithms().frame()").DataFrame(
            [{name: getattr(one, name) for name in names} for one in self])


def _type_of(x: Any) -> str:
    name = str(getattr(x, "dtype", "float32")).rsplit(".", 1)[-1]
    return {"float64": "f64", "float16": "f16", "bfloat16": "bf16"}.get(name, "f32")


def _problem_of(operation: str, what: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int,
                output_padding: Any, precision: str) -> Any:
    """Returns the problem as a text, which is made from arrays or sizes if necessary. Returns a SparseMap
    unchanged."""
    if isinstance(what, str):
        return what
    if isinstance(what, _native.SparseMap):
        if w is None:
            raise ArgumentError("[explain] expected w with a map, as an array or as its sizes, got none")
        if (stride, padding, dilation, groups) != (1, 0, 1, 1):
            raise ArgumentError("[explain] expected no stride, padding, dilation and groups with a map "
                                "because it has them")
        return _native._sparse_problem(what, w, precision, _type_of(w))
    if w is None:
        raise ArgumentError("[explain] expected x and w, as arrays or as their sizes, or a text, got "
                            f"one argument of type {type(what).__name__}")
    return _native._problem_text(operation, what, w, stride, padding, dilation, groups, output_padding,
                                 precision, _type_of(what))


def algorithms(x: Any = None, w: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
               groups: int = 1, output_padding: Any = 0, *, operation: str = "conv2d",
               device: str | None = None, precision: str = "f32") -> Algorithms:
    """Returns the algorithms of conv2d, conv_transpose2d, deform_conv2d or sparse_conv.

    device           "cpu" or "cuda"; None: every available device
    x, w, stride...  a problem, as arrays, as sizes [N,C,H,W] and [K,C/groups,R,S] (conv_transpose2d:
                     [C,K/groups,R,S]), or as one text ("n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1"); for
                     sparse_conv a SparseMap and w or its sizes.
                     Each algorithm then has its estimated time in `estimated_ms`. If it refuses the problem,
                     the reason is in `refusals`
    """
    if isinstance(x, _native.SparseMap):
        operation = "sparse_conv"
    algorithms = _native._algorithms(operation, device or "")
    found = Algorithms(Algorithm(**algorithm) for algorithm in algorithms)
    if x is None:
        return found
    problem = _problem_of(operation, x, w, stride, padding, dilation, groups, output_padding, precision)
    for name in {one.device for one in found}:
        for verdict in _native._verdicts(operation, problem, "auto", name):
            for one in found:
                if one.name != verdict["name"] or one.device != name:
                    continue
                if verdict["accepts"]:
                    one.estimated_ms[verdict["direction"]] = verdict["estimated_ms"]
                else:
                    one.refusals[verdict["direction"]] = verdict["reason"]
    return found


def explain(what: Any, *more: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
            output_padding: Any = 0, operation: str = "conv2d", algorithm: str = "auto",
            device: str = "cpu", precision: str = "f32", layer: str | list[str] | None = None,
            all: bool = False, steps: bool = False, graph: bool = False) -> Text:
    """Returns a text that says which algorithm runs, and why others do not. Nothing is run.

    explain(x, w, padding=1)                        arrays, or their sizes
    explain("n=8,c=64,h=56,w=56,k=64,r=3,s=3,pad=1")
    explain(SparseMap(sites, 3, submanifold=True), w)
                                                    a sparse convolution
    explain("quickstart", "conv.algorithm=fft", layer="c1")
                                                    a config: a file, or a name of `convscope config
                                                    list`, and KEY=VALUE; the text of `convscope explain`
    """
    if isinstance(what, os.PathLike):
        what = os.fspath(what)
    if isinstance(what, str) and ("=" not in what or os.path.exists(what)):
        layers = [layer] if isinstance(layer, str) else list(layer or [])
        return Text(_native._explain_config(what, [str(one) for one in more], layers, all, steps, graph))
    problem = _problem_of(operation, what, more[0] if more else None, stride, padding, dilation, groups,
                          output_padding, precision)
    return Text(_native._explain_problem(operation, problem, algorithm, device))
