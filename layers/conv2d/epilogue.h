// SPDX-License-Identifier: Apache-2.0
// epilogue.h: computes y = relu(y + residual), either on a finished part of y that is still in the
// cache, or on all of y in a separate pass. The two variants run the same instructions, so their
// bits are equal. On the CPU the ReLU may have an upper bound.
#pragma once

#include <cstdint>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue_simd.h"

namespace convscope {

// The separate pass over y [N,K,P,Q], for algorithms that do not fuse it. f32 and f64; on a GPU
// also fp16/bf16 in any layout.
extern CONVSCOPE_API KernelSlot<void(const Conv2dEpilogue& epilogue, const Tensor& y)>
    conv2d_epilogue_kernel;

// For f32 kernels: call finish() once on each part of y, as soon as its accumulation is complete.
class FusedEpilogue {
 public:
  FusedEpilogue() = default;
  explicit FusedEpilogue(const Conv2dForwardArgs& args)
      : y_(static_cast<const float*>(args.y)),
        residual_(static_cast<const float*>(args.epilogue.residual)),
        relu_(args.epilogue.relu),
        most_(args.epilogue.most),
        apply_(args.epilogue.empty() ? nullptr : epilogue_kernels.get().apply) {}

  // Applies the epilogue to `rows` runs of `count` elements, `step` apart.
  void finish(float* at, std::int64_t rows, std::int64_t count, std::int64_t step) const {
    if (apply_ == nullptr) return;
    apply_(at, residual_of(at), relu_, most_, rows, count, step);
  }

  // Returns the address of the residual of element `at` of y, or null without a residual; for
  // kernels that finish results in registers. If relu(), the kernel then computes min(max(v, 0),
  // most()) of each sum v.
  const float* residual_of(const float* at) const {
    return residual_ == nullptr ? nullptr : residual_ + (at - y_);
  }
  bool relu() const { return relu_; }
  float most() const { return most_; }

 private:
  const float* y_ = nullptr;
  const float* residual_ = nullptr;
  bool relu_ = false;
  float most_ = 0;
  decltype(EpilogueKernels::apply) apply_ = nullptr;
};

}  // namespace convscope
