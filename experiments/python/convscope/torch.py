# SPDX-License-Identifier: Apache-2.0
"""conv2d, conv_transpose2d, deform_conv2d and sparse_conv as functions that PyTorch differentiates.

    from convscope.torch import conv2d
    y = conv2d(x, weight, bias, padding=1, algorithm="winograd_f4x3")
    y.square().sum().backward()                    # x.grad, weight.grad, bias.grad

Tensors may be float32 and float64 on the CPU and on CUDA, and on CUDA also float16 and bfloat16. Contiguous
tensors are not copied. A call on CUDA waits for the work that PyTorch has queued, and returns when its own work
is done. Second derivatives are not supported.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import _native
from ._errors import UnavailableError
from ._gradients import Conv2dGradients, ConvTranspose2dGradients, DeformConv2dGradients
from ._sparse import SparseConvGradients, SparseOutput, finds_sites

try:
    import torch
except ImportError as error:
    raise UnavailableError("[convscope.torch] expected the package torch, found none; install it: pip "
                           "install torch") from error


def _plain(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach().contiguous()


class _Operator(NamedTuple):
    """An operator of _native: the arrays of its forward pass in the order of its arguments. The bias is the last
    one, and the backward pass gets dy and the others."""
    forward: Callable
    backward: Callable  # returns the gradients in the order of `gradients`
    arrays: tuple[str, ...]
    gradients: tuple[str, ...]


_CONV2D = _Operator(_native.conv2d, _native._conv2d_backward, ("x", "w", "b"), Conv2dGradients._fields)
_CONV_TRANSPOSE2D = _Operator(_native.conv_transpose2d, _native._conv_transpose2d_backward, ("x", "w", "b"),
                              ConvTranspose2dGradients._fields)
_DEFORM_CONV2D = _Operator(_native.deform_conv2d, _native._deform_conv2d_backward,
                           ("x", "offset", "w", "mask", "b"), DeformConv2dGradients._fields)
_SPARSE_CONV = _Operator(_native._sparse_conv, _native._sparse_conv_backward, ("x", "w", "b"),
                         SparseConvGradients._fields)


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: _Operator, sizes: tuple, options: dict, *arrays: Any) -> Any:
        plain = [_plain(one) for one in arrays]
        ctx.save_for_backward(*plain[:-1])
        ctx.operator, ctx.sizes, ctx.options = operator, sizes, options
        return operator.forward(*plain, *sizes, **options)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Any) -> Any:
        operator, names = ctx.operator, [f"d{name}" for name in ctx.operator.arrays]
        needs = [name for name, is_wanted in zip(names, ctx.needs_input_grad[3:]) if is_wanted]
        got = operator.backward(_plain(dy), *ctx.saved_tensors, *ctx.sizes, **ctx.options, needs=needs)
        by_name = dict(zip(operator.gradients, got))
        return None, None, None, *(by_name[name] for name in names)


def _run(operator: _Operator, arrays: tuple, sizes: tuple, algorithm: str, device: str | None,
         precision: str) -> Any:
    options = {"algorithm": algorithm, "device": device, "precision": precision}
    return _Differentiable.apply(operator, sizes, options, *arrays)


def conv2d(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, stride: Any = 1,
           padding: Any = 0, dilation: Any = 1, groups: int = 1, *, algorithm: str = "auto",
           device: str | None = None, precision: str = "f32") -> torch.Tensor:
    """Returns convscope.conv2d with gradients: x [N,C,H,W], w [K,C/groups,R,S], b [K] -> [N,K,P,Q]."""
    return _run(_CONV2D, (x, w, b), (stride, padding, dilation, groups), algorithm, device, precision)


def conv_transpose2d(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None, stride: Any = 1,
                     padding: Any = 0, dilation: Any = 1, groups: int = 1, output_padding: Any = 0, *,
                     algorithm: str = "auto", device: str | None = None,
                     precision: str = "f32") -> torch.Tensor:
    """Returns convscope.conv_transpose2d with gradients: x [N,C,H,W], w [C,K/groups,R,S], b [K] -> [N,K,P,Q]."""
    return _run(_CONV_TRANSPOSE2D, (x, w, b), (stride, padding, dilation, groups, output_padding), algorithm,
                device, precision)


def deform_conv2d(x: torch.Tensor, offset: torch.Tensor, w: torch.Tensor,
                  mask: torch.Tensor | None = None, b: torch.Tensor | None = None, stride: Any = 1,
                  padding: Any = 0, dilation: Any = 1, groups: int = 1, offset_groups: int = 1, *,
                  algorithm: str = "auto", device: str | None = None,
                  precision: str = "f32") -> torch.Tensor:
    """Returns convscope.deform_conv2d with gradients; shapes are those of convscope.deform_conv2d."""
    return _run(_DEFORM_CONV2D, (x, offset, w, mask, b), (stride, padding, dilation, groups, offset_groups),
                algorithm, device, precision)


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
    y = _run(_SPARSE_CONV, (x, w, b), (made,), algorithm, device, precision)
    return SparseOutput(y, made.out_sites) if finds_sites(sites, submanifold, inverse) else y
