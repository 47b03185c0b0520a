// SPDX-License-Identifier: Apache-2.0
// arithmetic.h: computes the expressions with parameters in the layers of a block:
//
//   out_channels: $width * 4        output_size: [$n / 2, $n / 2]        p: 0.1 * ($depth + 1)
//
//   sum     = product {("+" | "-") product}
//   product = factor {("*" | "/") factor}
//   factor  = "-" factor | "(" sum ")" | number | "$" name
//   number  = an integer or real number of YAML 1.2, without a sign
//   name    = letters, digits and "_", not beginning with a digit
//
// Integers have 64 bits and are divided exactly. An operation with a real operand is computed in
// double. A mere $name has the value of the parameter, of any type.
#pragma once

#include <functional>
#include <string>

#include "experiments/config/document.h"

namespace convscope::config {

// Returns whether a node is an unquoted scalar with a '$'.
bool is_expression(const Node& node);
// Returns whether a text is a name of the grammar.
bool is_parameter_name(std::string_view text);

using ParameterLookup = std::function<const Node&(const std::string& name)>;

// Returns the value at the place of the expression; a mere $name is returned with its own place.
// Throws an Error with one sentence if the expression has no value.
Node value_of_expression(const Node& expression, const ParameterLookup& parameter);

}  // namespace convscope::config
