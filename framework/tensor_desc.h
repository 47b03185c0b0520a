// SPDX-License-Identifier: Apache-2.0
// tensor_desc.h: the description of a tensor: its shape, element type and layout in memory, the
// scale of its codes, and which blocks of a sparse weight are stored. Operations, graphs and
// algorithms share it.
#pragma once

#include <optional>

#include "framework/activation_layout.h"
#include "framework/dtype.h"
#include "framework/shape.h"
#include "framework/sparse/sparse_weights.h"
#include "framework/weight_format.h"

namespace convscope {

// The real numbers that codes of type u8 or i8 represent: scale (code - zero_point). The numbers
// are parameters that training changes, so the description names the values of the graph that hold
// them.
struct QuantParams {
  int scale = -1;       // value of the graph: f64 [1], or [K] for the weight of K output channels
  int zero_point = -1;  // value of the graph: i32 of the same shape; -1: the zero point is 0
  std::int32_t low = 0, high = 0;  // the range of the codes
};

struct TensorDesc {
  Shape shape;  // that users see: [N,C,H,W], whatever the layout
  // f32 or f64; fp16 or bf16 for images in NHWC; u8 or i8 for codes, which have `quantization`.
  DType dtype = DType::f32;
  ActivationLayout layout = ActivationLayout::nchw;
  std::optional<QuantParams> quantization = {};
  WeightFormat sparsity = {};  // of a weight, with `shape` as a matrix of shape[0] rows
  // The blocks that the mask of a weight keeps; the other elements of the weight are 0, but stored
  // (`sparsity` is dense). Null: any element may differ from 0.
  Ref<SparseWeights> kept = {};

  std::string str() const { return cat(name_of(dtype), shape); }  // "f32[2,3]"
  Shape stored_shape() const {                                    // in memory
    if (!sparsity.is_dense()) return {sparsity.stored_elements()};
    return convscope::stored_shape(shape, layout);
  }
};

}  // namespace convscope
