// SPDX-License-Identifier: Apache-2.0
// adaptive_max_pool2d.h: the largest element of each of P x Q windows, and pools over whole images.
//
// Shapes      x [N,C,H,W] -> y [N,C,P,Q]; global pools: [N,C,1,1]; f32 or f64
// Formula     window p of P covers rows floor(p H / P) to ceil((p + 1) H / P), columns likewise;
//             NaN wins, among equals the first one gets the gradient. Where P divides H and Q
//             divides W, the operation is max_pool2d (pool2d.h)
// Parameters  output_size  [P, Q] or one number for both, required
// Usage       {type: adaptive_max_pool2d, output_size: 7}, {type: global_avg_pool2d},
//             {type: global_max_pool2d}
// Source      torch.nn.AdaptiveMaxPool2d; M. Lin, Q. Chen, S. Yan: Network In Network, 2013,
//             arXiv 1312.4400 (global average pooling)
#pragma once

#include "framework/autograd/variable.h"
#include "framework/host_device.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

CONVSCOPE_API Variable adaptive_max_pool2d(const Variable& x, std::int64_t p, std::int64_t q);

class CONVSCOPE_API AdaptiveMaxPool2d final : public Module {
 public:
  AdaptiveMaxPool2d(std::int64_t p, std::int64_t q) : p_(p), q_(q) {}
  std::string kind() const override { return "adaptive_max_pool2d"; }
  Variable forward(const Variable& x) override { return adaptive_max_pool2d(x, p_, q_); }
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t p_, q_;
};

// The mean, or the largest element, of each channel of an image.
class CONVSCOPE_API GlobalPool2d final : public Module {
 public:
  explicit GlobalPool2d(bool max) : max_(max) {}
  std::string kind() const override { return max_ ? "global_max_pool2d" : "global_avg_pool2d"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  bool max_;
};

// The windows along one axis.
struct AdaptiveAxis {
  std::int64_t in, out;
  struct Range {
    std::int64_t begin, end;
  };
  CONVSCOPE_HOST_DEVICE Range window(std::int64_t p) const {
    return {p * in / out, ((p + 1) * in + out - 1) / out};
  }
  CONVSCOPE_HOST_DEVICE Range windows_of(std::int64_t i) const {  // that contain pixel i
    return {i * out / in, ((i + 1) * out + in - 1) / in};
  }
};

// Kernels; they assign y, taps and dx. `taps`, i32 like y, holds the index i W + j of the largest
// element; undefined: not needed.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& y, const Tensor& taps)>
    adaptive_max_pool_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& dy, const Tensor& taps, const Tensor& dx)>
    adaptive_max_pool_gradient_kernel;

}  // namespace convscope
