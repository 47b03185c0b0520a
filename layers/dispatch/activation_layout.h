// SPDX-License-Identifier: Apache-2.0
// activation_layout.h: how the images of a heavy layer lie in memory.
//
//   nchw     [N,C,H,W]: one plane for each channel; what users see
//   blocked  [N,C/16,H,W,16], C rounded up to whole blocks: 16 channels of a pixel lie side by
//            side, so that a kernel loads them as one vector on AVX-512, as two on AVX2, and needs
//            no copy. Lanes behind the last channel are 0: whoever writes a tensor writes them too.
//   blocked_y  of a layer, not of a tensor: x is nchw, y and dy are blocked. It is the layout of a
//            first layer, which reads images as users give them: 3 channels need no 16 lanes.
//   channels_last  [N,1,H,W,C], C rounded up to a multiple of 8: all channels of a pixel lie side
//            by side. Eight halves are the 16 bytes that the copy engine of a GPU and its tensor
//            cores count in. One block that holds all channels: so it has rank 5 like `blocked`,
//            and lanes behind the last channel are 0 here, too.
//
// Source: E. Georganas et al., SC 2018, arXiv 1808.05567, and oneDNN (there nChw16c and nhwc).
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/check.h"
#include "framework/int_math.h"
#include "framework/tensor.h"

namespace convscope {

enum class ActivationLayout : std::uint8_t { nchw, blocked, blocked_y, channels_last };
inline constexpr ActivationLayout kActivationLayouts[] = {
    ActivationLayout::nchw, ActivationLayout::blocked, ActivationLayout::blocked_y,
    ActivationLayout::channels_last};
inline constexpr std::int64_t kChannelBlock = 16;
inline constexpr std::int64_t kChannelsLastStep = 8;  // channels are rounded up to this

constexpr std::string_view name_of(ActivationLayout layout) {
  return layout == ActivationLayout::nchw        ? "nchw"
         : layout == ActivationLayout::blocked   ? "blocked"
         : layout == ActivationLayout::blocked_y ? "blocked_y"
                                                 : "channels_last";
}

// The layout of the tensors of a layer: no blocked_y. dx is as x, dy as y.
constexpr ActivationLayout layout_of_x(ActivationLayout layer) {
  return layer == ActivationLayout::blocked_y ? ActivationLayout::nchw : layer;
}
constexpr ActivationLayout layout_of_y(ActivationLayout layer) {
  return layer == ActivationLayout::blocked_y ? ActivationLayout::blocked : layer;
}

// What follows is about one tensor: its layout is no blocked_y.

// Channels of one block of a tensor of `channels` channels.
constexpr std::int64_t channel_block(std::int64_t channels, ActivationLayout layout) {
  return layout == ActivationLayout::channels_last ? round_up(channels, kChannelsLastStep)
                                                   : kChannelBlock;
}

// The shape in memory of images [N,C,H,W].
inline Shape stored_shape(const Shape& images, ActivationLayout layout) {
  CONVSCOPE_CHECK(layout != ActivationLayout::blocked_y, "stored_shape",
                  "expected the layout of one tensor, got ", name_of(layout));
  if (layout == ActivationLayout::nchw) return images;
  const std::int64_t block = channel_block(images[1], layout);
  return {images[0], ceil_div(images[1], block), images[2], images[3], block};
}

// Images [N,C,H,W] as they lie in `layout`, and back; `shape` is [N,C,H,W]. On the CPU, any type.
// The tensor itself when the layout is nchw.
CONVSCOPE_API Tensor stored_images(const Tensor& images, ActivationLayout layout);
CONVSCOPE_API Tensor plain_images(const Tensor& stored, const Shape& shape,
                                  ActivationLayout layout);
// The same between two tensors that are there, f32 on any device: the one of rank 5 is stored in
// blocks of 16, the other one holds the numbers of `images` [N,C,H,W] in their order. `to` is
// assigned, or added to.
CONVSCOPE_API void convert_layout(const Tensor& from, const Shape& images, const Tensor& to,
                                  bool accumulate = false);
// Whether the lanes behind the last channel are 0, as they have to be.
CONVSCOPE_API bool has_clean_lanes(const Tensor& stored, const Shape& shape,
                                   ActivationLayout layout);

// Of a problem without images there is one layout.
template <class Problem>
ActivationLayout layout_of(const Problem& problem) {
  if constexpr (requires { problem.layout; }) {
    return problem.layout;
  } else {
    return ActivationLayout::nchw;
  }
}

}  // namespace convscope
