# SPDX-License-Identifier: Apache-2.0
"""The gradients of the convolutions, as named tuples."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _native


class Conv2dGradients(NamedTuple):
    """Gradients; those that were not requested are None."""
    dx: Any
    dw: Any
    db: Any


class ConvTranspose2dGradients(NamedTuple):
    """Gradients; those that were not requested are None."""
    dx: Any
    dw: Any
    db: Any


class DeformConv2dGradients(NamedTuple):
    """Gradients. Those that were not requested are None; dmask is also None without a mask."""
    dx: Any
    doffset: Any
    dmask: Any
    dw: Any
    db: Any


def conv2d_backward(dy: Any, x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                    groups: int = 1, *, algorithm: str = "auto", device: str | None = None,
                    precision: str = "f32", needs: Sequence[str] | None = None) -> Conv2dGradients:
    """Returns the gradients of sum(dy * conv2d(x, w, b)): dx [N,C,H,W], dw [K,C/groups,R,S], db [K].

    dy [N,K,P,Q] is the gradient of y. The results are new arrays; nothing is accumulated. needs=("dw",
    "db") computes only these. The other arguments are those of conv2d().
    """
    return Conv2dGradients(*_native._conv2d_backward(
        dy, x, w, stride, padding, dilation, groups, algorithm=algorithm, device=device,
        precision=precision, needs=needs))


def conv_transpose2d_backward(dy: Any, x: Any, w: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                              groups: int = 1, output_padding: Any = 0, *, algorithm: str = "auto",
                              device: str | None = None, precision: str = "f32",
                              needs: Sequence[str] | None = None) -> ConvTranspose2dGradients:
    """Returns the gradients of sum(dy * conv_transpose2d(x, w, b)): dx [N,C,H,W], dw [C,K/groups,R,S], db [K].

    needs=("dw", "db") computes only these. The other arguments are those of conv_transpose2d().
    """
    return ConvTranspose2dGradients(*_native._conv_transpose2d_backward(
        dy, x, w, stride, padding, dilation, groups, output_padding, algorithm=algorithm, device=device,
        precision=precision, needs=needs))


def deform_conv2d_backward(dy: Any, x: Any, offset: Any, w: Any, mask: Any = None, stride: Any = 1,
                           padding: Any = 0, dilation: Any = 1, groups: int = 1, offset_groups: int = 1,
                           *, algorithm: str = "auto", device: str | None = None,
                           precision: str = "f32",
                           needs: Sequence[str] | None = None) -> DeformConv2dGradients:
    """Returns the gradients of sum(dy * deform_conv2d(x, offset, w, mask, b)), each with the shape of its array.

    needs=("dx", "doffset", "dmask", "dw", "db") names the requested ones. The other arguments are those of
    deform_conv2d().
    """
    return DeformConv2dGradients(*_native._deform_conv2d_backward(
        dy, x, offset, w, mask, stride, padding, dilation, groups, offset_groups, algorithm=algorithm,
        device=device, precision=precision, needs=needs))
