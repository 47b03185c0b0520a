// SPDX-License-Identifier: Apache-2.0
// execute.cpp: runs a chosen algorithm; with `checked_by` runs the second one too and fails, with
// kind kRun, when the two differ by more than their error bounds together.
#include "layers/dispatch/execute.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace convscope {
namespace {

Tensor like(const Tensor& tensor) {
  return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
}

// The largest element in place of each.
Tensor largest_everywhere(const Tensor& sizes) {
  const Tensor here = sizes.to(Device{});
  double largest = 0;
  for (std::int64_t i = 0; i < here.numel(); ++i) largest = std::max(largest, here.at(i));
  return Tensor::full(here.shape(), largest, here.dtype()).to(sizes.device());
}

// So many digits that two different numbers of the type look different.
std::string digits_of(double value, DType type) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", type == DType::f64 ? 17 : 9, value);
  return text;
}

}  // namespace

void finish_empty(const Operands& operands) {
  if (operands.accumulate) return;
  for (const Operand& output : operands.out) {
    if (output.defined()) output.values.zero();
  }
}

Operands with_other_outputs(const Operands& operands) {
  Operands out = operands;
  for (Operand& output : out.out) {
    if (!output.defined()) continue;
    output.values = operands.accumulate ? output.values.clone() : like(output.values);
  }
  return out;
}

bool has_magnitudes(const Operands& operands) {
  const auto floats = [](const Operand& one) {
    return !one.defined() || is_floating(one.values.dtype());
  };
  return std::ranges::all_of(operands.in, floats) && std::ranges::all_of(operands.out, floats);
}

Operands over_magnitudes(const Operands& operands, Tensor& residual, bool by_tile) {
  Operands out = operands;
  for (Operand& input : out.in) {
    if (input.defined()) input.values = magnitudes(input.values);
  }
  if (by_tile) out.in[0].values = largest_everywhere(out.in[0].values);
  for (Operand& output : out.out) {
    if (!output.defined()) continue;
    output.values = operands.accumulate ? magnitudes(output.values) : like(output.values);
  }
  // relu moves no two numbers apart, and a residual is one more term of the sum.
  out.epilogue = {};
  if (operands.epilogue.residual != nullptr) {
    residual = like(operands.out[0].values);
    backend_of(operands.device())
        .copy_within(operands.device().index, residual.raw_data(), operands.epilogue.residual,
                     static_cast<std::size_t>(residual.size_bytes()));
    residual = magnitudes(residual);
    out.epilogue.residual = residual.raw_data();
  }
  return out;
}

void compare_outputs(const Comparison& comparison, const Operands& first, const Operands& second,
                     const Operands& sizes) {
  CheckResult result{.layer = comparison.layer,
                     .direction = comparison.direction,
                     .first = comparison.first_name,
                     .second = comparison.second_name,
                     .calls = 1,
                     .worst = {}};
  for (std::size_t output = 0; output < first.out.size(); ++output) {
    if (!first.out[output].defined()) continue;
    const Tensor a = first.out[output].values.to(Device{});
    const Tensor b = second.out[output].values.to(Device{});
    const Tensor size = sizes.out[output].values.to(Device{});
    double largest = 0;
    for (std::int64_t i = 0; i < size.numel(); ++i) {
      largest = std::max(largest, std::abs(size.at(i)));
    }
    const double step = is_floating(a.dtype()) ? 0 : 1;
    Difference found{.bound = comparison.relative_bound * largest + step};
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      // A NaN or infinity in one must be one in the other; the bound is no help there.
      if (!std::isfinite(a.at(i)) && !std::isfinite(b.at(i))) continue;
      const double difference = std::abs(a.at(i) - b.at(i));
      if (difference <= found.bound) {
        found.difference = std::max(found.difference, difference);
        found.value = std::max(found.value, std::abs(a.at(i)));
        continue;
      }
      fail(ErrorKind::kRun, comparison.operation,
           cat(comparison.layer.empty() ? "" : cat("layer ", comparison.layer, ": "), "expected '",
               comparison.first_name, "' and '", comparison.second_name, "' to agree within ",
               found.bound, " in ", name_of(comparison.direction), " of ", comparison.problem,
               ", got ", digits_of(a.at(i), a.dtype()), " and ", digits_of(b.at(i), b.dtype()),
               " at element ", i));
    }
    result.worst.take_worse(found);
  }
  note_check(result);
}

}  // namespace convscope
