// SPDX-License-Identifier: Apache-2.0
// activation_layout.h: converts images between layouts (framework/activation_layout.h).
#pragma once

#include "framework/activation_layout.h"
#include "framework/tensor.h"

namespace convscope {

// Converts images [N,C,H,W] to `layout`; plain_images() converts back to `shape` [N,C,H,W]. The
// tensors are on the CPU and may have any type. Both functions return their argument itself when
// the layout is nchw.
CONVSCOPE_API Tensor stored_images(const Tensor& images, ActivationLayout layout);
CONVSCOPE_API Tensor plain_images(const Tensor& stored, const Shape& shape,
                                  ActivationLayout layout);
// Converts `from` to `to`, both f32 on any device. The tensor of rank 5 is NCHW16c, the other
// tensor holds the elements of `images` [N,C,H,W] in NCHW order. `to` is overwritten, or the result
// is added to `to`.
CONVSCOPE_API void convert_layout(const Tensor& from, const Shape& images, const Tensor& to,
                                  bool accumulate = false);
// Returns whether the lanes after the last channel are 0, as they must be.
CONVSCOPE_API bool has_clean_lanes(const Tensor& stored, const Shape& shape,
                                   ActivationLayout layout);

// Returns the layouts of the problem's images; nchw for a problem without images.
template <class Problem>
ImageLayouts layouts_of(const Problem& problem) {
  if constexpr (requires { problem.layout; }) {
    return problem.layout;
  } else {
    return {};
  }
}

}  // namespace convscope
