# SPDX-License-Identifier: Apache-2.0
"""conv2d, deform_conv2d and sparse_conv as functions that PyTorch differentiates.

    from convscope.torch import conv2d
    y = conv2d(x, weight, bias, padding=1, algorithm="winograd_f4x3")
    y.square().sum().backward()                    # x.grad, weight.grad, bias.grad

Tensors may be float32 and float64 on the CPU and on CUDA, and on CUDA also float16 and bfloat16. Contiguous
tensors are not copied. A call on CUDA waits for the work that PyTorch has queued, and returns when its own work
is done. Second derivatives are not supported.
"""
from __future__ import annotations

from typing import Any

from . import _native
from ._errors import UnavailableError
from ._gradients import conv2d_backward, deform_conv2d_backward
from ._sparse import SparseOutput, finds_sites, sparse_conv_backward

try:
    import torch
except ImportError as error:
    raise UnavailableError("[convscope.torch] expected the package torch, found none; install it: pip "
                           "install torch") from error


def _plain(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().contiguous()


def _needs(names: tuple[str, ...], wanted: tuple[bool, ...]) -> list[str]:
    return [name for name, is_wanted in zip(names, wanted) if is_wanted]


class _Conv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any, sizes: tuple, options: dict) -> Any:
        x, w, b = _plain(x), _plain(w), _plain(b)
        ctx.save_for_backward(x, w)
        ctx.sizes, ctx.options = sizes, options
        return _native.conv2d(x, w, b, *sizes, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        needs = _needs(("dx", "dw", "db"), ctx.needs_input_grad[:3])
        got = conv2d_backward(_plain(dy), x, w, *ctx.sizes, **ctx.options, needs=needs)
        return got.dx, got.dw, got.db, None, None


class _DeformConv2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, offset: Any, w: Any, mask: Any, b: Any, sizes: tuple,
                options: dict) -> Any:
        x, offset, w, mask, b = (_plain(one) for one in (x, offset, w, mask, b))
        ctx.save_for_backward(x, offset, w, mask)
        ctx.sizes, ctx.options = sizes, options
        return _native.deform_conv2d(x, offset, w, mask, b, *sizes, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, offset, w, mask = ctx.saved_tensors
        needs = _needs(("dx", "doffset", "dw", "dmask", "db"), ctx.needs_input_grad[:5])
        got = deform_conv2d_backward(_plain(dy), x, offset, w, mask, *ctx.sizes, **ctx.options,
                                     needs=needs)
        return got.dx, got.doffset, got.dw, got.dmask, got.db, None, None


class _SparseConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, b: Any, made: Any, options: dict) -> Any:
        x, w, b = _plain(x), _plain(w), _plain(b)
        ctx.save_for_backward(x, w)
        ctx.made, ctx.options = made, options
        return _native._sparse_conv(made, x, w, b, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        needs = _needs(("dx", "dw", "db"), ctx.needs_input_grad[:3])
        got = sparse_conv_backward(_plain(dy), x, ctx.made, w, **ctx.options, needs=needs)
        return got.dx, got.dw, got.db, None, None


def conv2d(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1, *, algorithm: str = "auto",
           device: str | None = None, precision: str = "f32") -> torch.Tensor:
    """Returns convscope.conv2d with gradients: x [N,C,H,W], w [K,C/groups,R,S], b [K] -> [N,K,P,Q]."""
    options = {"algorithm": algorithm, "device": device, "precision": precision}
    return _Conv2d.apply(x, w, b, (stride, padding, dilation, groups), options)


def deform_conv2d(x: torch.Tensor, offset: torch.Tensor, w: torch.Tensor,
                  mask: torch.Tensor | None = None, b: torch.Tensor | None = None, stride: Any = 1,
                  padding: Any = 0, dilation: Any = 1, groups: int = 1, offset_groups: int = 1, *,
                  algorithm: str = "auto", device: str | None = None,
                  precision: str = "f32") -> torch.Tensor:
    """Returns convscope.deform_conv2d with gradients; shapes are those of convscope.deform_conv2d."""
    options = {"algorithm": algorithm, "device": device, "precision": precision}
    return _DeformConv2d.apply(x, offset, w, mask, b, (stride, padding, dilation, groups, offset_groups),
                               options)


def sparse_conv(x: torch.Tensor, sites: Any, w: torch.Tensor, b: torch.Tensor | None = None,
                stride: Any = 1, padding: Any = None, dilation: Any = 1, *, submanifold: bool = False,
                inverse: bool = False, extent: Any = None, batch: int | None = None,
                algorithm: str = "auto", device: str | None = None, precision: str = "f32") -> Any:
    """Returns convscope.sparse_conv with gradients; shapes and results are those of convscope.sparse_conv.

    The backward pass uses the map of the forward pass. A network makes each map once per batch:

        same = convscope.SparseMap(sites, 3, submanifold=True)
        down = convscope.SparseMap(same, 2, stride=2)           # from the sites of `same`
        y = sparse_conv(sparse_conv(x, same, w1).relu(), down, w2)    # rows at down.out_sites
        y = sparse_conv(y, down.inverse(), w3)                  # rows at the sites again
    """
    made = _native._sparse_map_of_call(sites, w, stride, padding, dilation, submanifold, inverse, extent,
                                       batch)
    options = {"algorithm": algorithm, "device": device, "precision": precision}
    y = _SparseConv.apply(x, w, b, made, options)
    return SparseOutput(y, made.out_sites) if finds_sites(sites, submanifold, inverse) else y
