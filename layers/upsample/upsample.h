// SPDX-License-Identifier: Apache-2.0
// upsample.h: changes the size of an image, as torch.nn.functional.interpolate.
//
// Shapes      x [N,C,H,W] -> y [N,C,P,Q], P = floor(H scale) or size[0], Q likewise; f32 or f64,
//             on a GPU also fp16 and bf16 images in NHWC
// Formula     with r = 1 / scale (or H / P if the size is given), and i the source of row p:
//             nearest   y[p,q] = x[floor(p r), floor(q r)]
//             bilinear  i = (p + 1/2) r - 1/2, at least 0; with align_corners
//                       i = p (H - 1) / (P - 1). y is the mean of the four pixels around (i, j),
//                       weighted by their distance
// Backward    dx is the sum of dy over the pixels that read x, with the same weights
// Parameters  scale          factor of both sizes; exactly one of scale and size is given
//             size           [P, Q], or one number for both
//             mode           nearest (default) or bilinear
//             align_corners  of bilinear, default false
// Usage       {type: upsample, scale: 2, mode: bilinear}
#pragma once

#include <string>

#include "framework/autograd/variable.h"
#include "framework/host_device.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

enum class UpsampleMode { nearest, bilinear };

struct UpsampleOptions {
  double scale = 0;           // 0: the size is given
  std::int64_t p = 0, q = 0;  // the size; 0: the scale is given
  UpsampleMode mode = UpsampleMode::nearest;
  bool align_corners = false;
  // Returns [N,C,P,Q] for x [N,C,H,W]; throws if there is no such image.
  CONVSCOPE_API Shape output_shape(const Shape& x) const;
};

CONVSCOPE_API Variable upsample(const Variable& x, const UpsampleOptions& options);

class CONVSCOPE_API Upsample final : public Module {
 public:
  explicit Upsample(const UpsampleOptions& options) : options_(options) {}
  std::string kind() const override { return "upsample"; }
  const UpsampleOptions& options() const { return options_; }
  Variable forward(const Variable& x) override { return upsample(x, options_); }
  Shape output_shape(const Shape& input) const override { return options_.output_shape(input); }

 private:
  UpsampleOptions options_;
};

// The two pixels of an axis that a pixel of y reads, and the weight of the second one.
template <class Float>
struct UpsampleTap {
  std::int64_t first, second;
  Float weight;
};

// One axis: sizes before and after, and r of the formula. The sources have the roundings of
// PyTorch, which computes those of `nearest` in f32.
struct UpsampleAxis {
  std::int64_t in, out;
  double ratio;
  UpsampleMode mode;
  bool align_corners;

  template <class Float>
  CONVSCOPE_HOST_DEVICE UpsampleTap<Float> tap(std::int64_t at) const {
    if (mode == UpsampleMode::nearest) {
      const auto i = static_cast<std::int64_t>(static_cast<float>(at) * static_cast<float>(ratio));
      return {i < in ? i : in - 1, i < in ? i : in - 1, Float(0)};
    }
    const Float r = static_cast<Float>(ratio), place = static_cast<Float>(at);
    Float source = align_corners ? r * place : r * (place + Float(0.5)) - Float(0.5);
    if (source < Float(0)) source = Float(0);
    auto i = static_cast<std::int64_t>(source);
    if (i > in - 1) i = in - 1;
    return {i, i + 1 < in ? i + 1 : i, source - static_cast<Float>(i)};
  }
  // Returns a range of pixels of y which contains all that read pixel i of x.
  struct Range {
    std::int64_t begin, end;
  };
  CONVSCOPE_HOST_DEVICE Range readers(std::int64_t i) const {
    if (ratio <= 0) return {0, out};
    const double first = static_cast<double>(i - 1) / ratio - 2;
    const double last = static_cast<double>(i + 2) / ratio + 2;
    const std::int64_t begin = i == 0 || first < 0 ? 0 : static_cast<std::int64_t>(first);
    const bool to_the_end = i == in - 1 || last >= static_cast<double>(out);
    return {begin, to_the_end ? out : static_cast<std::int64_t>(last)};
  }
};

// Images as [planes, H, W, lanes]: lanes is 1 for NCHW, 16 for NCHW16c, C for NHWC.
struct UpsampleSizes {
  std::int64_t planes, lanes;
  UpsampleAxis rows, columns;
};

// Kernels; they assign y and dx.
using UpsampleKernel = void(const UpsampleSizes&, const Tensor& from, const Tensor& to);
extern CONVSCOPE_API KernelSlot<UpsampleKernel> upsample_kernel;
extern CONVSCOPE_API KernelSlot<UpsampleKernel> upsample_gradient_kernel;

}  // namespace convscope
