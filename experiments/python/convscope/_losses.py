# SPDX-License-Identifier: Apache-2.0
"""The losses of a training, on arrays."""
from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _native
from ._errors import ArgumentError


class LossGradient(NamedTuple):
    """A loss, and its gradient with respect to x."""
    loss: float
    dx: Any


def _term(given: Any, **options: Any) -> tuple[str, dict[str, float], dict[str, list[float]]]:
    if not isinstance(given, (str, Mapping)):
        raise ArgumentError("[loss] expected the name of a loss or a dict such as {'type': 'focal', 'gamma': 1}, "
                            f"got one of type {type(given).__name__}")
    entries = {**({"type": given} if isinstance(given, str) else given), **options}
    singles: dict[str, float] = {}
    lists: dict[str, list[float]] = {}
    for name, value in entries.items():
        if name == "type" or value is None:
            continue
        try:
            if isinstance(value, numbers.Real):
                singles[name] = float(value)
            else:
                lists[name] = [float(one) for one in value]
        except (TypeError, ValueError):
            raise ArgumentError(f"[loss] expected a number or a list of numbers for {name}, got {value!r}") from None
    return str(entries.get("type", "cross_entropy")), singles, lists


def _terms(kind: Any, options: dict[str, Any]) -> list[Any]:
    if isinstance(kind, (list, tuple)):
        if options:
            raise ArgumentError("[loss] expected the options of a sum in the dicts of its losses, got "
                                + ", ".join(options))
        return [_term(one) for one in kind]
    return [_term(kind, **options)]


def loss(x: Any, labels: Any, kind: Any = "cross_entropy", **options: Any) -> float:
    """Returns the loss of a batch, as `train.loss` of a config computes it.

    x       scores [N,K], or [N,K,H,W] with a class for each pixel; f32 or f64
    labels  classes [N] or [N,H,W], int32, on the device of x; labels on a GPU are not range-checked
    kind    one of loss_names(), a dict as in a config, or a list of dicts for a weighted sum

    loss(x, labels, "focal", gamma=1.5)
    loss(x, labels, [{"type": "cross_entropy", "weight": 0.5}, {"type": "dice", "weight": 0.5}])
    """
    value: float = _native._loss(x, labels, _terms(kind, options), False)[0]
    return value


def loss_backward(x: Any, labels: Any, kind: Any = "cross_entropy", **options: Any) -> LossGradient:
    """Returns the loss and its gradient dx, a new array. The arguments are those of loss()."""
    return LossGradient(*_native._loss(x, labels, _terms(kind, options), True))
