# SPDX-License-Identifier: Apache-2.0
"""Convscope in Python: convolutions by named algorithms, and the runs of experiments.

    import numpy as np, convscope
    x = np.ones((1, 3, 32, 32), np.float32)
    w = np.ones((8, 3, 3, 3), np.float32)
    y = convscope.conv2d(x, w, padding=1, algorithm="winograd_f4x3")
    dx, dw, db = convscope.conv2d_backward(y, x, w, padding=1)
    convscope.explain(x, w, padding=1)             # every algorithm: time, or why it refuses
    convscope.runs("runs/")                        # run folders as a pandas frame

Functions that PyTorch can differentiate are in convscope.torch.
"""
from ._start import native as _native  # first: it sets how threads wait
from ._algorithms import Algorithm, Algorithms, algorithms, explain
from ._errors import (ArgumentError, ConfigError, DataError, Error, FileError, InvalidError,
                      OutOfMemoryError, RunError, UnavailableError)
from ._gradients import (Conv2dGradients, ConvTranspose2dGradients, DeformConv2dGradients,
                         conv2d_backward, conv_transpose2d_backward, deform_conv2d_backward)
from ._losses import LossGradient, loss, loss_backward
from ._native import (SparseMap, check_results, conv2d, conv_transpose2d, copy_reason, deform_conv2d,
                      device_status, forget_check_results, instruction_set, loss_names, num_threads,
                      plot_kinds, set_num_threads)
from ._runs import Confusion, Plot, Plots, Report, confusion, plot, report, runs
from ._shown import Text
from ._sparse import SparseConvGradients, SparseOutput, sparse_conv, sparse_conv_backward
from ._version import __version__

__all__ = [
    "Algorithm", "Algorithms", "ArgumentError", "ConfigError", "Confusion", "Conv2dGradients",
    "ConvTranspose2dGradients", "DataError", "DeformConv2dGradients", "Error", "FileError",
    "InvalidError", "LossGradient", "OutOfMemoryError", "Plot", "Plots", "Report", "RunError",
    "SparseConvGradients", "SparseMap", "SparseOutput", "Text", "UnavailableError", "__version__",
    "algorithms", "check_results", "confusion", "conv2d", "conv2d_backward", "conv_transpose2d",
    "conv_transpose2d_backward", "copy_reason", "deform_conv2d", "deform_conv2d_backward",
    "device_status", "explain", "forget_check_results", "instruction_set", "loss", "loss_backward",
    "loss_names", "num_threads", "plot", "plot_kinds", "report", "runs", "set_num_threads",
    "sparse_conv", "sparse_conv_backward",
]
