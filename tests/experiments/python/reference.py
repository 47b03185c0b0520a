# SPDX-License-Identifier: Apache-2.0
"""Computes the convolution and its gradients with NumPy in double, as expected results for the
tests."""
import numpy as np


def sizes(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def frame(padding):
    values = sizes(padding)
    return (values[0], values[0], values[1], values[1]) if len(values) == 2 else values


def windows(x, w_shape, stride, padding, dilation):
    """Returns the padded x, and a view [N,C,R,S,P,Q] of it: for tap (r,s) and output (p,q), the
    element that the tap reads."""
    top, bottom, left, right = frame(padding)
    (u, v), (e, f) = sizes(stride), sizes(dilation)
    _, _, R, S = w_shape
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    N, C, H, W = padded.shape
    P, Q = (H - e * (R - 1) - 1) // u + 1, (W - f * (S - 1) - 1) // v + 1
    n, c, h, q = padded.strides
    return padded, np.lib.stride_tricks.as_strided(padded, (N, C, R, S, P, Q),
                                                   (n, c, e * h, f * q, u * h, v * q))


def conv2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    x, w = x.astype(np.float64), w.astype(np.float64)
    parts = []
    for xs, ws in zip(np.split(x, groups, 1), np.split(w, groups, 0)):
        parts.append(np.einsum("ncrspq,kcrs->nkpq", windows(xs, ws.shape, stride, padding, dilation)[1],
                               ws))
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.astype(np.float64)[None, :, None, None]


def conv2d_backward(dy, x, w, stride=1, padding=0, dilation=1, groups=1):
    dy, x, w = (one.astype(np.float64) for one in (dy, x, w))
    top, bottom, left, right = frame(padding)
    dx, dw = [], []
    for g, xs, ws in zip(np.split(dy, groups, 1), np.split(x, groups, 1), np.split(w, groups, 0)):
        padded, view = windows(xs, ws.shape, stride, padding, dilation)
        dw.append(np.einsum("ncrspq,nkpq->kcrs", view, g))
        into = np.zeros_like(padded)
        _, target = windows_of_same(into, ws.shape, stride, dilation)
        terms = np.einsum("nkpq,kcrs->ncrspq", g, ws)
        for r in range(ws.shape[2]):
            for s in range(ws.shape[3]):
                target[:, :, r, s] += terms[:, :, r, s]
        H, W = padded.shape[2], padded.shape[3]
        dx.append(into[:, :, top:H - bottom, left:W - right])
    return np.concatenate(dx, 1), np.concatenate(dw, 0), dy.sum((0, 2, 3))


def windows_of_same(padded, w_shape, stride, dilation):
    (u, v), (e, f) = sizes(stride), sizes(dilation)
    _, _, R, S = w_shape
    N, C, H, W = padded.shape
    P, Q = (H - e * (R - 1) - 1) // u + 1, (W - f * (S - 1) - 1) // v + 1
    n, c, h, q = padded.strides
    return padded, np.lib.stride_tricks.as_strided(padded, (N, C, R, S, P, Q),
                                                   (n, c, e * h, f * q, u * h, v * q))


def taps_of(full, x_shape, w_shape, stride, dilation):
    """Returns for each tap (r,s) the view [N,K,H,W] of `full` to which that tap adds multiples of x."""
    (u, v), (e, f) = sizes(stride), sizes(dilation)
    H, W = x_shape[2:]
    return {(r, s): full[:, :, e * r:e * r + u * (H - 1) + 1:u, f * s:f * s + v * (W - 1) + 1:v]
            for r in range(w_shape[2]) for s in range(w_shape[3])}


def full_shape(x_shape, w_shape, stride, dilation, output_padding):
    """Returns the height and the width of y with the rows and columns that the padding cuts off."""
    axes = zip(x_shape[2:], w_shape[2:], sizes(stride), sizes(dilation), sizes(output_padding))
    return [(h - 1) * u + e * (r - 1) + 1 + more for h, r, u, e, more in axes]


def conv_transpose2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1, output_padding=0):
    x, w = x.astype(np.float64), w.astype(np.float64)
    P, Q = full_shape(x.shape, w.shape, stride, dilation, output_padding)
    top, bottom, left, right = frame(padding)
    parts = []
    for xs, ws in zip(np.split(x, groups, 1), np.split(w, groups, 0)):
        full = np.zeros((len(x), w.shape[1], P, Q))
        for (r, s), view in taps_of(full, x.shape, w.shape, stride, dilation).items():
            view += np.einsum("nchw,ck->nkhw", xs, ws[:, :, r, s])
        parts.append(full[:, :, top:P - bottom, left:Q - right])
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.astype(np.float64)[None, :, None, None]


def conv_transpose2d_backward(dy, x, w, stride=1, padding=0, dilation=1, groups=1, output_padding=0):
    dy, x, w = (one.astype(np.float64) for one in (dy, x, w))
    top, bottom, left, right = frame(padding)
    full = np.pad(dy, ((0, 0), (0, 0), (top, bottom), (left, right)))
    dx, dw = [], []
    for g, xs, ws in zip(np.split(full, groups, 1), np.split(x, groups, 1), np.split(w, groups, 0)):
        dx.append(np.zeros_like(xs))
        dw.append(np.zeros_like(ws))
        for (r, s), view in taps_of(g, x.shape, w.shape, stride, dilation).items():
            dx[-1] += np.einsum("nkhw,ck->nchw", view, ws[:, :, r, s])
            dw[-1][:, :, r, s] = np.einsum("nkhw,nchw->ck", view, xs)
    return np.concatenate(dx, 1), np.concatenate(dw, 0), dy.sum((0, 2, 3))


def relative(got, want):
    """Returns the largest difference / the largest value."""
    want = np.asarray(want, np.float64)
    return float(np.abs(np.asarray(got, np.float64) - want).max(initial=0) /
                 max(np.abs(want).max(initial=0), 1e-30))
