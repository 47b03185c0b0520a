// SPDX-License-Identifier: Apache-2.0
// execute.cpp: runs a chosen algorithm. With `checked_by` it also runs the second algorithm and
// fails, with kind kRun, when the results differ by more than the sum of both error bounds.
#include "layers/dispatch/execute.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace convscope {
namespace {

Tensor like(const Tensor& tensor) {
  return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device());
}

double largest_magnitude(const Tensor& of) {
  const Tensor here = of.to(Device{});
  double largest = 0;
  for (std::int64_t i = 0; i < here.numel(); ++i) {
    largest = std::max(largest, std::abs(here.at(i)));
  }
  return largest;
}

// Returns the largest sum over all axes except one.
double largest_sum(const Tensor& of, std::int64_t rows, std::int64_t inner) {
  std::vector<double> sums(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < of.numel(); ++i) {
    sums[static_cast<std::size_t>(i / inner % rows)] += std::abs(of.at(i));
  }
  return sums.empty() ? 0 : *std::ranges::max_element(sums);
}

// Prints enough digits that two different numbers of the type look different.
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

Operands over_magnitudes(const Operands& operands, Tensor& residual) {
  Operands out = operands;
  for (Operand& input : out.in) {
    if (input.defined()) input.values = magnitudes(input.values);
  }
  for (Operand& output : out.out) {
    if (!output.defined()) continue;
    output.values = operands.accumulate ? magnitudes(output.values) : like(output.values);
  }
  // The bound is computed without the epilogue: relu never increases a difference, and a residual
  // is added below as one more term.
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

Operands over_tiles(const Operands& operands, const OperandSpecs& specs, Direction direction) {
  const OperandSpec& spec = specs.inputs[1];
  const Tensor second =
      plain_images(operands.in[1].values.to(Device{}), spec.desc.shape, spec.desc.layout);
  // Forward sums |w| for each output channel k, backward_data sums |w| for each input channel c of
  // w [K,C,...], and backward_weight sums |dy| for each k of dy [N,K,...].
  const int axis = direction == Direction::forward ? 0 : 1;
  std::int64_t inner = 1;
  for (int i = axis + 1; i < spec.desc.shape.rank(); ++i) inner *= spec.desc.shape[i];
  double size =
      largest_magnitude(operands.in[0].values) * largest_sum(second, spec.desc.shape[axis], inner);
  if (operands.in[2].defined()) size += largest_magnitude(operands.in[2].values);
  if (operands.accumulate) size += largest_magnitude(operands.out[0].values);
  if (operands.epilogue.residual != nullptr) {
    Tensor residual = like(operands.out[0].values);
    backend_of(operands.device())
        .copy_within(operands.device().index, residual.raw_data(), operands.epilogue.residual,
                     static_cast<std::size_t>(residual.size_bytes()));
    size += largest_magnitude(residual);
  }
  Operands out;
  out.out[0].values = Tensor::full({1}, size, DType::f64);
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
      // If one of the two elements is NaN or infinite, the other must be, too; the bound does not
      // apply.
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
