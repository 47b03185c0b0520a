// SPDX-License-Identifier: Apache-2.0
// problems.h: problems as Python names them: by a text, by arrays and their sizes, or by a map.
#pragma once

#include <memory>
#include <string>

#include "experiments/python/arrays.h"
#include "layers/dispatch/operator_use.h"

namespace convscope::python {

// Returns the question which algorithm a word selects for a problem. The problem is a text
// ("n=8,c=64,..."), or a SparseConvProblem that Python holds.
std::shared_ptr<const OperatorUse> use_of(const std::string& operation, const nb::object& problem,
                                          const std::string& algorithm);

// Returns the type of a name such as "f64"; f32 for an unknown name.
DType dtype_of_name(const std::string& name);

}  // namespace convscope::python
