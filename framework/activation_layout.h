// SPDX-License-Identifier: Apache-2.0
// activation_layout.h: how the images of an operator are stored in memory.
//
//   `nchw`       NCHW, [N,C,H,W]: one plane for each channel; the layout of user data
//   `nchw16c`    NCHW16c, [N,C/16,H,W,16], C rounded up to whole blocks: 16 channels of a pixel are
//                adjacent. A kernel loads them without a copy, as one vector on AVX-512 and as two
//                on AVX2. Lanes after the last channel are 0; every writer must write them.
//   `nhwc`       NHWC, [N,1,H,W,C], C rounded up to a multiple of 8: all channels of a pixel are
//                adjacent. TMA and tensor cores read units of 16 bytes, which are eight fp16
//                elements. All channels form one block, so the tensor has rank 5 like `nchw16c`,
//                and lanes after the last channel are 0.
//
// Source: E. Georganas et al., SC 2018, arXiv 1808.05567, and oneDNN (there nChw16c and nhwc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/check.h"
#include "framework/int_math.h"
#include "framework/shape.h"

namespace convscope {

enum class ActivationLayout : std::uint8_t { nchw, nchw16c, nhwc };
inline constexpr std::int64_t kChannelBlock = 16;
inline constexpr std::int64_t kNhwcStep = 8;  // channels are rounded up to this

constexpr std::string_view name_of(ActivationLayout layout) {
  return layout == ActivationLayout::nchw      ? "nchw"
         : layout == ActivationLayout::nchw16c ? "nchw16c"
                                               : "nhwc";
}

// Returns how many channels one block holds in a tensor with `channels` channels.
constexpr std::int64_t channel_block(std::int64_t channels, ActivationLayout layout) {
  return layout == ActivationLayout::nhwc ? round_up(channels, kNhwcStep) : kChannelBlock;
}

// Returns the shape in memory of images [N,C,H,W].
inline Shape stored_shape(const Shape& images, ActivationLayout layout) {
  if (layout == ActivationLayout::nchw) return images;
  const std::int64_t block = channel_block(images[1], layout);
  return {images[0], ceil_div(images[1], block), images[2], images[3], block};
}

// The layouts of an operator's images. dx has the layout of x, and dy that of y.
struct ImageLayouts {
  ActivationLayout x = ActivationLayout::nchw, y = ActivationLayout::nchw;

  constexpr ImageLayouts() = default;
  constexpr ImageLayouts(ActivationLayout both) : x(both), y(both) {}
  constexpr ImageLayouts(ActivationLayout of_x, ActivationLayout of_y) : x(of_x), y(of_y) {}
  bool operator==(const ImageLayouts&) const = default;
};
// The layouts of a network's first layer on a CPU: its few input channels (3) need no 16 lanes.
inline constexpr ImageLayouts kNchwToNchw16c{ActivationLayout::nchw, ActivationLayout::nchw16c};
// The layouts for which there are algorithms.
inline constexpr ImageLayouts kImageLayouts[] = {ActivationLayout::nchw, ActivationLayout::nchw16c,
                                                 kNchwToNchw16c, ActivationLayout::nhwc};

// Returns "nchw16c" if x and y have one layout, else "nchw:nchw16c".
inline std::string name_of(const ImageLayouts& layouts) {
  const std::string_view x = name_of(layouts.x), y = name_of(layouts.y);
  return x == y ? std::string(x) : cat(x, ":", y);
}
// Returns the shape in memory of images [N,C,H,W] of an operator whose x and y have one layout.
inline Shape stored_shape(const Shape& images, const ImageLayouts& layouts) {
  CONVSCOPE_CHECK(layouts.x == layouts.y, "stored_shape", "expected x and y in one layout, got ",
                  name_of(layouts));
  return stored_shape(images, layouts.x);
}

}  // namespace convscope
