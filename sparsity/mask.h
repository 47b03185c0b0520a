// SPDX-License-Identifier: Apache-2.0
// mask.h: the mask of a layer, which says which weights are kept.
//
// Shapes      w [K,...] -> w * keep, the same shape; keep f32, 1 is kept, 0 is pruned
// Formula     y = w keep
//             dw = dy keep (masked: a pruned weight gets no gradient), or
//             dw = dy      (dense: a pruned weight is trained as well, "straight through")
// Buffers     keep
// Usage       auto mask = std::make_shared<Mask>(layer.weight().value());
//             layer.add_weight_transform("mask", mask);
#pragma once

#include <string>
#include <string_view>

#include "framework/graph/simple_operation.h"
#include "framework/kernel_slot.h"
#include "framework/sparse/sparse_weights.h"
#include "layers/module.h"

namespace convscope {

class CONVSCOPE_API Mask final : public Module {
 public:
  explicit Mask(const Tensor& weight);  // keeps all
  std::string kind() const override { return "mask"; }
  Variable forward(const Variable& w) override;
  Shape output_shape(const Shape& input) const override { return input; }

  const Tensor& keep() const { return keep_; }  // f32, on the device of the weight
  void set_keep(const Tensor& keep) const { keep_.copy_from(keep); }

  void set_dense_gradient(bool dense) { dense_gradient_ = dense; }
  // Describes the masked weight by its blocks (TensorDesc::kept), so that a compiled step of a
  // convolution or a linear layer computes with the blocks only.
  void execute_sparse(Ref<SparseWeights> blocks) { blocks_ = std::move(blocks); }
  // Sets whether each backward pass stores the gradient before the mask is applied to it, in
  // observed_gradient(). RigL uses this gradient to choose the weights that grow.
  void observe_gradient(bool on);
  const Tensor& observed_gradient() const { return observed_; }

 private:
  void moved_to(Device device) override;

  Tensor keep_;
  Tensor observed_;            // undefined until observe_gradient(true)
  Ref<SparseWeights> blocks_;  // may be null
  bool dense_gradient_ = false;
  bool observing_ = false;
};

// Computes y = x keep for several tensors: a device launches one kernel for all of them.
struct MaskedTensor {
  Tensor x, keep, y;
};
extern CONVSCOPE_API KernelSlot<void(const MaskedTensor* all, int count)> mask_kernel;

// Returns whether a tensor of a checkpoint is a mask: "c1.mask.keep".
CONVSCOPE_API bool belongs_to_mask(std::string_view name);

}  // namespace convscope
