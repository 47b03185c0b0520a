// SPDX-License-Identifier: Apache-2.0
// problems.h: the problems that Python passes to algorithms() and explain(), either as a text or as
// a map of a sparse convolution.
#pragma once

#include <memory>
#include <string>

#include "experiments/python/arrays.h"
#include "layers/dispatch/operator_use.h"

namespace convscope::python {

// Returns the operator for a problem with the policy `algorithm` (a name, or a policy such as
// "auto"). It can be asked which algorithms accept the problem. The problem is a text
// ("n=8,c=64,...") or a Python object that holds a SparseConvProblem.
std::shared_ptr<const OperatorUse> use_of(const std::string& operation, const nb::object& problem,
                                          const std::string& algorithm);

// Returns the element type with this name ("f64"), or f32 for an unknown name.
DType dtype_of_name(const std::string& name);

}  // namespace convscope::python
