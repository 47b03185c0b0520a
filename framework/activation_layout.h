// SPDX-License-Identifier: Apache-2.0
// activation_layout.h: how the images of an operator are stored in memory.
//
//   `nchw`       NCHW, [N,C,H,W]: one plane for each channel; the layout of user data
//   `nchw16c`    NCHW16c, [N,C/16,H,W,16], C rounded up to whole blocks: 16 channels of a pixel are
//                adjacent. A kernel loads them without a copy, as one vector on AVX-512 and as two
//                on AVX2. Lanes after the last channel are 0; every writer must write them.
//   `nchw16c_y`  a layout of a whole layer, not of one tensor: x is NCHW, y and dy are NCHW16c. The
//                first layer uses it, because its few input channels (3) do not need 16 lanes.
//   `nhwc`  NHWC, [N,1,H,W,C], C rounded up to a multiple of 8: all channels of a pixel
//                are adjacent. TMA and tensor cores read units of 16 bytes, which are eight fp16
//                elements. All channels form one block, so the tensor has rank 5 like `nchw16c`,
//                and lanes after the last channel are 0.
//
// Source: E. Georganas et al., SC 2018, arXiv 1808.05567, and oneDNN (there nChw16c and nhwc).
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/check.h"
#include "framework/int_math.h"
#include "framework/shape.h"

namespace convscope {

enum class ActivationLayout : std::uint8_t { nchw, nchw16c, nchw16c_y, nhwc };
inline constexpr ActivationLayout kActivationLayouts[] = {
    ActivationLayout::nchw, ActivationLayout::nchw16c, ActivationLayout::nchw16c_y,
    ActivationLayout::nhwc};
inline constexpr std::int64_t kChannelBlock = 16;
inline constexpr std::int64_t kNhwcStep = 8;  // channels are rounded up to this

constexpr std::string_view name_of(ActivationLayout layout) {
  return layout == ActivationLayout::nchw        ? "nchw"
         : layout == ActivationLayout::nchw16c   ? "nchw16c"
         : layout == ActivationLayout::nchw16c_y ? "nchw16c_y"
                                                 : "nhwc";
}

// Returns the layout of x and dx in a layer with layout `layer`; layout_of_y() returns that of y
// and dy. The result is never nchw16c_y.
constexpr ActivationLayout layout_of_x(ActivationLayout layer) {
  return layer == ActivationLayout::nchw16c_y ? ActivationLayout::nchw : layer;
}
constexpr ActivationLayout layout_of_y(ActivationLayout layer) {
  return layer == ActivationLayout::nchw16c_y ? ActivationLayout::nchw16c : layer;
}

// The functions below take the layout of one tensor, which is never nchw16c_y.

// Returns how many channels one block holds in a tensor with `channels` channels.
constexpr std::int64_t channel_block(std::int64_t channels, ActivationLayout layout) {
  return layout == ActivationLayout::nhwc ? round_up(channels, kNhwcStep) : kChannelBlock;
}

// Returns the shape in memory of images [N,C,H,W].
inline Shape stored_shape(const Shape& images, ActivationLayout layout) {
  CONVSCOPE_CHECK(layout != ActivationLayout::nchw16c_y, "stored_shape",
                  "expected the layout of one tensor, got ", name_of(layout));
  if (layout == ActivationLayout::nchw) return images;
  const std::int64_t block = channel_block(images[1], layout);
  return {images[0], ceil_div(images[1], block), images[2], images[3], block};
}

}  // namespace convscope
