// SPDX-License-Identifier: Apache-2.0
// pool2d.h: the largest or the mean element of each window of an image.
//
// Shapes      x [N,C,H,W] -> y [N,C,P,Q],  P = (H + 2 padding - kernel) / stride + 1, rounded down
//             (up with ceil_mode, but no window begins in the padding after the image); Q likewise
// Formula     max  y[n,c,p,q] = max over r, s of
//                  x[n,c, p stride - padding + r, q stride - padding + s];
//                  NaN wins; among equals the first one gets the gradient
//             avg  the mean over the window; its divisor counts the padding (count_include_pad) or
//                  the real pixels only
//             adaptive_avg  window p of P covers rows floor(p H / P) to ceil((p+1) H / P)
// Parameters  kernel_size  pixels, one number or [h, w], required
//             stride       pixels, default kernel_size
//             padding      pixels on each side, at most kernel_size / 2, default 0
//             ceil_mode    round P and Q up, default false
//             count_include_pad  avg only, default true
//             output_size  adaptive_avg only: [P, Q], required
// Usage       auto y = max_pool2d(x, {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2});
// Paper       Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, 1998
#pragma once

#include <string>

#include "framework/graph/simple_operation.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

struct CONVSCOPE_API Pool2dWindow {
  std::int64_t kernel_h = 2, kernel_w = 2;
  std::int64_t stride_h = 2, stride_w = 2;
  std::int64_t pad_h = 0, pad_w = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;  // avg only

  // Returns [N,C,P,Q] for x [N,C,H,W]; throws Error of `operation` when the window does not fit.
  Shape output_shape(const Shape& x, const char* operation) const;
  // Returns whether the windows have 2x2 pixels and follow each other without padding.
  bool halves() const {
    return kernel_h == 2 && kernel_w == 2 && stride_h == 2 && stride_w == 2 && pad_h == 0 &&
           pad_w == 0 && !ceil_mode;
  }
};

// Also takes codes (TensorDesc::quantization): rounding keeps the order of numbers, so the largest
// code is the code of the maximum.
class CONVSCOPE_API MaxPool final : public SimpleOperation {
 public:
  static constexpr std::string_view kKind = "max_pool2d";
  explicit MaxPool(const Pool2dWindow& window)
      : SimpleOperation("max_pool2d", {.nchw16c = true, .nhwc = true}), window_(window) {}
  const Pool2dWindow& window() const { return window_; }
  Shape output_shape(const std::vector<Shape>& x) const override;
  Keeps keeps(const std::vector<Shape>& x) const override;  // taps, below
  void run(const Forward& a) const override;
  void run(const Backward& a) const override;
  std::string text() const override;
  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  std::optional<Format> format(const Graph& graph, ActivationLayout layout) const override;

 private:
  Pool2dWindow window_;
  std::optional<DType> codes_;  // the type of the codes; empty: real numbers
};

CONVSCOPE_API Variable max_pool2d(const Variable& x, const Pool2dWindow& window);
CONVSCOPE_API Variable avg_pool2d(const Variable& x, const Pool2dWindow& window);
CONVSCOPE_API Variable adaptive_avg_pool2d(const Variable& x, std::int64_t p, std::int64_t q);

enum class PoolKind { max, avg };

class CONVSCOPE_API Pool2d final : public Module {
 public:
  Pool2d(PoolKind pool, const Pool2dWindow& window) : pool_(pool), window_(window) {}
  std::string kind() const override { return pool_ == PoolKind::max ? "max_pool2d" : "avg_pool2d"; }
  PoolKind pool() const { return pool_; }
  const Pool2dWindow& window() const { return window_; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  PoolKind pool_;
  Pool2dWindow window_;
};

class CONVSCOPE_API AdaptiveAvgPool2d final : public Module {
 public:
  AdaptiveAvgPool2d(std::int64_t p, std::int64_t q) : p_(p), q_(q) {}
  std::string kind() const override { return "adaptive_avg_pool2d"; }
  Variable forward(const Variable& x) override { return adaptive_avg_pool2d(x, p_, q_); }
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t p_;
  std::int64_t q_;
};

// Kernels; y, taps and dx are assigned. `taps` holds the position r kernel_w + s of the largest
// element of each window. It is u8 for windows of up to 256 elements, else i32, and undefined if
// not needed. On the CPU x, y, taps and the gradients may all be stored as [N,C/16,H,W,16], f32,
// with the same bits. On a GPU they may all be stored as [N,1,H,W,Cp]; images are then fp16/bf16.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, const Pool2dWindow&, const Tensor& y, const Tensor& taps)>
        max_pool_kernel;
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& dy, const Tensor& taps, const Pool2dWindow&, const Tensor& dx)>
        max_pool_gradient_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Pool2dWindow&, const Tensor& y)>
    avg_pool_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Pool2dWindow&, const Tensor& dx)>
    avg_pool_gradient_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& y)> adaptive_pool_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Tensor& dx)>
    adaptive_pool_gradient_kernel;

}  // namespace convscope
