// SPDX-License-Identifier: Apache-2.0
// gradcheck.h: compares the gradients of the backward pass with central differences, in double.
//
//   d f / d v_i  ~  ( f(v + h e_i) - f(v - h e_i) ) / 2h,   h = step * max(1, |v_i|)
//
// The outputs of f are weighted with fixed random numbers and summed to one number. So every entry
// of every gradient is checked, whatever the output shape of f.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"

namespace convscope {

struct GradcheckOptions {
  double step = 1e-5;       // rounding error eps/h and truncation error h^2 balance near 1e-5
  double tolerance = 1e-7;  // on |tape - difference| / max(1, |difference|)
  std::uint64_t seed = 1;   // of the weights
};

struct CONVSCOPE_API GradcheckResult {
  bool ok = false;
  double max_error = 0;  // |tape - difference| / max(1, |difference|)
  int input = -1;        // its position: input number and flat index
  std::int64_t index = -1;
  double tape = 0;
  double difference = 0;
  std::string str() const;  // "input 1 index 7: tape 0.5, difference 0.25, error 0.25"
};

// Checks the gradients of f at `inputs`, which are f64 leaves, for each input with requires_grad. f
// must be deterministic and compute in f64. Restores the values and gradients of the inputs.
CONVSCOPE_API GradcheckResult
gradcheck(const std::function<Variable(const std::vector<Variable>&)>& f,
          const std::vector<Variable>& inputs, const GradcheckOptions& options = {});

}  // namespace convscope
