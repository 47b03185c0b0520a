// SPDX-License-Identifier: Apache-2.0
// linear.h: every output is a weighted sum of all inputs.
//
// Shapes      x [N,I] -> y [N,O];  weight [O,I], bias [O]
// Formula     y[n,o] = bias[o] + sum over i of x[n,i] weight[o,i]
// Parameters  out_features  number of outputs O, required
//             bias          add a bias, default true
//             init          kaiming_uniform (default) or kaiming_normal, see init.h
// Pruned      A compiled step computes from the blocks that a mask keeps, in the directions where
//             this is estimated to be faster. x [N,I] is N images of one pixel, so the algorithm
//             block_sparse of a 1x1 convolution computes it. The dynamic graph and products in half
//             precision use the dense weight.
// Usage       Linear f5({.in_features = 84, .out_features = 10}, context);  y = f5.forward(x);
#pragma once

#include <optional>
#include <string>

#include "framework/graph/graph.h"
#include "framework/precision.h"
#include "framework/sparse/sparse_weights.h"
#include "layers/layer_types.h"

namespace convscope {

struct LinearOptions {
  std::int64_t in_features = 1;
  std::int64_t out_features = 1;
  bool bias = true;
  std::string init = "kaiming_uniform";
};

class CONVSCOPE_API Linear final : public Module {
 public:
  Linear(const LinearOptions& options, LayerContext& context);
  std::string kind() const override { return "linear"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  Variable weight() const override { return weight_; }

 private:
  LinearOptions options_;
  ComputePrecision precision_;
  Variable weight_;
  Variable bias_;  // undefined without bias
};

// Returns y = x w^T + b with x [N,I], w [O,I], b [O] (may be undefined) -> y [N,O]. Adds dw and db
// to the gradients of the parameters; overwrites dx. In half precision, x, w and dy are rounded,
// and the rounded x and w are saved; y and the gradients are f32. If a mask of w keeps blocks, a
// compiled step may multiply these blocks only.
CONVSCOPE_API Variable linear(const Variable& x, const Variable& w, const Variable& b,
                              ComputePrecision precision = ComputePrecision::f32);

// The values that a linear layer in a compiled step reads. A following ReLU may be fused into the
// layer.
struct LinearParts {
  ValueId x, weight, bias;  // kNoValue: no bias
  bool relu;
  Ref<SparseWeights> sparse = {};   // the blocks that a mask keeps; may be null
  bool forward_in_blocks = false;   // y is computed from these blocks
  DType operand_type = DType::f32;  // the type that x and w are rounded to for products
};
CONVSCOPE_API std::optional<LinearParts> linear_parts(const Operation& op);

}  // namespace convscope
