// SPDX-License-Identifier: Apache-2.0
// winograd_images.h: views of the images of a problem for Winograd's transforms, L channels at a
// time. The layout matters only here and where outputs are stored (winograd_cpu.cpp):
//
//   NCHW     pixels of L planes are transposed into the lanes of a panel, and back
//   NCHW16c  L channels of a pixel are adjacent already: the transforms read and write the
//            tensor itself
#pragma once

#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/points.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"

namespace convscope::winograd {

inline bool is_nchw16c(const Conv2dProblem& z) { return z.layout == ActivationLayout::nchw16c; }

// x or y, and their gradients: [N, channels, h, w].
struct Images {
  static Images x_of(const Conv2dProblem& z) { return {is_nchw16c(z), z.c, z.h, z.w}; }
  static Images y_of(const Conv2dProblem& z) { return {is_nchw16c(z), z.k, z.p(), z.q()}; }

  // Returns the offset of pixel (0, 0) of a channel of image n.
  std::int64_t offset(std::int64_t n, std::int64_t channel) const {
    if (!nchw16c) return (n * channels + channel) * h * w;
    const std::int64_t block = n * ceil_div(channels, kChannelBlock) + channel / kChannelBlock;
    return block * h * w * kChannelBlock + channel % kChannelBlock;
  }

  // Returns a view of the pixels from (row, column) on of the `lanes` channels at `from`. In NCHW
  // it copies `rows` x `columns` pixels into the panel.
  PixelView<const float> read(const PointKernels& kernels, const float* from, std::int64_t lanes,
                              std::int64_t row, std::int64_t column, std::int64_t rows,
                              std::int64_t columns, float* panel) const {
    if (nchw16c) return {from, h, w, kChannelBlock, row, column};
    Planes{h, w}.read(kernels, from, lanes, row, column, rows, columns, panel);
    return {panel, rows, columns, kernels.lanes, 0, 0};
  }

  bool nchw16c;
  std::int64_t channels, h, w;
};

}  // namespace convscope::winograd
