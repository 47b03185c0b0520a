// SPDX-License-Identifier: Apache-2.0
// operand_specs.h: which arrays a direction reads and writes: their shapes, types and formats.
//
// Every operator uses the same order:
//   forward          reads x, w, then what else the layer has (a bias); writes y
//   backward_data    reads dy, w, then what else;                       writes dx, then what else
//   backward_weight  reads x, dy, then what else;                       writes dw, then what else
#pragma once

#include <vector>

#include "framework/tensor_desc.h"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/direction.h"
#include "layers/dispatch/elements.h"

namespace convscope {

// One array that a direction reads or writes.
struct OperandSpec {
  const char* name = "";       // "x"
  TensorDesc desc = {};        // codes: without `quantization`; their scales are in OperandViews
  bool is_weights = false;     // integer weights may have a scale for each row
  bool has_zero_point = true;  // for integers other than weights; false: 0 has the code 0
  bool is_rounded = false;     // f32 that kernels round to i8 codes when they read it; has a scale
  double size = 1;             // typical magnitude of the results, for the scale of their codes

  // Returns whether the array holds real numbers in row-major order, without zeros left out.
  bool is_plain() const {
    return desc.sparsity.is_dense() && !is_code(desc.dtype) && !is_rounded &&
           desc.layout == ActivationLayout::nchw;
  }
};
// The result of a problem's operands(direction). Optional arrays such as a bias are not included.
struct OperandSpecs {
  std::vector<OperandSpec> inputs;
  std::vector<OperandSpec> outputs;
};

}  // namespace convscope
