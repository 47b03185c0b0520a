// SPDX-License-Identifier: Apache-2.0
// pad.h: pads images. Element types f32 and f64.
//
//   zeros      0 0 | a b c | 0 0        reflect    c b | a b c | b a   (needs padding < size)
//   replicate  a a | a b c | c c        circular   b c | a b c | a b   (needs padding <= size)
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/graph/simple_operation.h"
#include "framework/kernel_slot.h"

namespace convscope {

enum class PadMode { zeros, reflect, replicate, circular };
inline constexpr int kPadModeCount = 4;
constexpr std::string_view name_of(PadMode mode) {
  constexpr std::string_view kNames[kPadModeCount] = {"zeros", "reflect", "replicate", "circular"};
  return kNames[static_cast<int>(mode)];
}
CONVSCOPE_API PadMode parse_pad_mode(std::string_view text);

struct Padding2d {  // in pixels, at least 0
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  bool operator==(const Padding2d&) const = default;
};

// Pads x [N,C,H,W] -> [N,C,top+H+bottom,left+W+right]; returns x itself for zero padding.
CONVSCOPE_API Variable pad2d(const Variable& x, const Padding2d& padding,
                             PadMode mode = PadMode::zeros);
CONVSCOPE_API Tensor pad2d(const Tensor& x, const Padding2d& padding,
                           PadMode mode = PadMode::zeros);

extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Padding2d&, PadMode, const Tensor& y)>
    pad_kernel;
// Overwrites dx. Each element of dx is the sum of dy over the pixels of y to which the forward pass
// has copied the pixel of x.
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Padding2d&, PadMode, const Tensor& dx)>
    pad_gradient_kernel;

}  // namespace convscope
