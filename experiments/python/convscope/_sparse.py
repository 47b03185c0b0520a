# SPDX-License-Identifier: Apache-2.0
"""The sparse convolution: its arguments, and its results as named tuples."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _native


class SparseOutput(NamedTuple):
    """Rows, and their sites."""
    y: Any  # [m,K]
    out_sites: Any  # [m,1+D] int32


class SparseConvGradients(NamedTuple):
    """Gradients; those that were not requested are None."""
    dx: Any
    dw: Any
    db: Any


def finds_sites(sites: Any, submanifold: bool, inverse: bool) -> bool:
    """Returns whether the call computes the output sites, because the caller does not pass them."""
    return not (isinstance(sites, _native.SparseMap) or submanifold or inverse)


def sparse_conv(x: Any, sites: Any, w: Any, b: Any = None, stride: Any = 1, padding: Any = None,
                dilation: Any = 1, *, submanifold: bool = False, inverse: bool = False,
                extent: Any = None, batch: int | None = None, algorithm: str = "auto",
                device: str | None = None, precision: str = "f32") -> Any:
    """Returns the convolution of an image or volume that is 0 everywhere except at some sites.

    x [n,C]      a row for each site, in the order of `sites`
    sites        [n,3] (batch, h, w) or [n,4] (batch, t, h, w), int32, in any order, without duplicates; or a
                 SparseMap, which is made once and used by many calls. A SparseMap includes the kernel's size
                 and all arguments from stride to batch
    w            [K,C,R,S] or [K,C,T,R,S]; b [K]
    stride, padding, dilation
                 one number or one for each axis; padding None: 0
    submanifold  there is one output per site, with the kernel's centre on the site; the kernel's sizes must
                 be odd, and there is no padding
    inverse      the inverse of the strided convolution of `sites`: x [m,C] has a row for each output site of
                 that convolution (by batch, t, h, w), and y has a row for each of `sites`
    extent       sizes of the whole image or volume, (H, W) or (T, H, W); None: up to the last site
    batch        number of images or volumes; None: up to the last one that has a site

    With `submanifold`, `inverse` or a SparseMap the result is y, with rows in the order of `sites` or of the
    map's out_sites. Otherwise the result is (y [m,K], out_sites [m,1+D]), with one row wherever the kernel
    covers a site. out_sites are int32, sorted by batch, t, h, w.

    algorithm, device, precision and the accepted kinds of arrays are those of conv2d(). If the rows are not
    sorted by batch, t, h, w, each call copies its inputs into this order, and its results back into the
    order of the caller.
    """
    made = _native._sparse_map_of_call(sites, w, stride, padding, dilation, submanifold, inverse, extent,
                                       batch)
    y = _native._sparse_conv(x, w, b, made, algorithm=algorithm, device=device, precision=precision)
    return SparseOutput(y, made.out_sites) if finds_sites(sites, submanifold, inverse) else y


def sparse_conv_backward(dy: Any, x: Any, sites: Any, w: Any, stride: Any = 1, padding: Any = None,
                         dilation: Any = 1, *, submanifold: bool = False, inverse: bool = False,
                         extent: Any = None, batch: int | None = None, algorithm: str = "auto",
                         device: str | None = None, precision: str = "f32",
                         needs: Sequence[str] | None = None) -> SparseConvGradients:
    """Returns the gradients of sum(dy * y) where y is sparse_conv(x, sites, w, b). They are dx [n,C], dw (shape of w)
    and db [K].

    dy [m,K] is the gradient of y, with its rows in the order of y. The results are new arrays; nothing is
    accumulated. needs=("dw", "db") computes only these. The other arguments are those of sparse_conv().
    """
    made = _native._sparse_map_of_call(sites, w, stride, padding, dilation, submanifold, inverse, extent,
                                       batch)
    return SparseConvGradients(*_native._sparse_conv_backward(
        dy, x, w, made, algorithm=algorithm, device=device, precision=precision, needs=needs))
