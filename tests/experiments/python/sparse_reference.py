# SPDX-License-Identifier: Apache-2.0
"""Computes the sparse convolution with NumPy in double: a dense convolution of an image that is 0 outside
the sites, evaluated at the output sites. The image has two or three axes."""
import itertools

import numpy as np


def per_axis(value, rank):
    return (value,) * rank if isinstance(value, int) else tuple(value)


class Kernel:
    def __init__(self, sites, size, stride=1, padding=None, dilation=1, submanifold=False, extent=None,
                 batch=None):
        self.rank = sites.shape[1] - 1
        self.size, self.stride = per_axis(size, self.rank), per_axis(stride, self.rank)
        self.dilation = per_axis(dilation, self.rank)
        self.padding = per_axis(padding or 0, self.rank)
        if submanifold:
            self.padding = tuple(d * (s - 1) // 2 for s, d in zip(self.size, self.dilation))
        last = sites.max(0) + 1
        self.sites, self.batch = sites, batch or last[0]
        self.extent = per_axis(extent, self.rank) if extent else tuple(last[1:])
        self.out_extent = tuple((e + 2 * p - d * (s - 1) - 1) // u + 1 for e, p, d, s, u in zip(
            self.extent, self.padding, self.dilation, self.size, self.stride))
        self.out_sites = sites if submanifold else self.met()

    def met(self):
        """Returns the output sites at which at least one tap reads an input site, sorted by batch,
        t, h and w."""
        ones = self.forward(self.image(np.ones((len(self.sites), 1)), self.sites, self.extent),
                            np.ones((1, 1, *self.size)))
        return np.argwhere(ones[:, 0] > 0).astype(np.int32)

    def image(self, rows, sites, extent):
        out = np.zeros((self.batch, rows.shape[1], *extent))
        out[(sites[:, 0], slice(None), *sites[:, 1:].T)] = rows
        return out

    def rows(self, image, sites):
        return image[(sites[:, 0], slice(None), *sites[:, 1:].T)]

    def padded(self, image):
        return np.pad(image, ((0, 0), (0, 0), *((p, p) for p in self.padding)))

    def taps(self):
        """Yields each tap together with the elements of the padded image that the tap reads for all
        outputs."""
        for tap in itertools.product(*(range(s) for s in self.size)):
            yield tap, (slice(None), slice(None), *(
                slice(t * d, t * d + u * (p - 1) + 1, u)
                for t, d, u, p in zip(tap, self.dilation, self.stride, self.out_extent)))

    def forward(self, x, w):
        padded = self.padded(x)
        out = np.zeros((x.shape[0], w.shape[0], *self.out_extent))
        for tap, read in self.taps():
            out += np.einsum("nc...,kc->nk...", padded[read], w[(slice(None), slice(None), *tap)])
        return out

    def transposed(self, dy, w):
        padded = self.padded(np.zeros((dy.shape[0], w.shape[1], *self.extent)))
        for tap, read in self.taps():
            padded[read] += np.einsum("nk...,kc->nc...", dy, w[(slice(None), slice(None), *tap)])
        return padded[(slice(None), slice(None), *(slice(p, p + e) for p, e in zip(self.padding,
                                                                                  self.extent)))]

    def weight(self, x, dy):
        padded = self.padded(x)
        out = np.zeros((dy.shape[1], x.shape[1], *self.size))
        for tap, read in self.taps():
            out[(slice(None), slice(None), *tap)] = np.tensordot(
                dy, padded[read], [[0, *range(2, dy.ndim)]] * 2)
        return out


def sparse_conv(x, sites, w, b=None, dy=None, inverse=False, **sizes):
    """Returns y and the output sites; if dy is given, also the gradients dx, dw and db."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    k = Kernel(sites, w.shape[2:], **sizes)
    here, there = (k.sites, k.extent), (k.out_sites, k.out_extent)
    if inverse:  # inverted, with the same pairs
        y = k.rows(k.transposed(k.image(x, *there), w.swapaxes(0, 1)), k.sites)
    else:
        y = k.rows(k.forward(k.image(x, *here), w), k.out_sites)
    y = y if b is None else y + b.astype(np.float64)
    if dy is None:
        return y, (k.sites if inverse else k.out_sites)
    dy = dy.astype(np.float64)
    if inverse:
        fine = k.image(dy, *here)
        dx = k.rows(k.forward(fine, w.swapaxes(0, 1)), k.out_sites)
        dw = k.weight(fine, k.image(x, *there)).swapaxes(0, 1)
    else:
        coarse = k.image(dy, *there)
        dx = k.rows(k.transposed(coarse, w), k.sites)
        dw = k.weight(k.image(x, *here), coarse)
    return dx, dw, dy.sum(0)
