// SPDX-License-Identifier: Apache-2.0
// problem.cpp: one struct that says everything about a sparse convolution except its numbers.
#include "layers/sparse_conv/problem.h"

namespace convscope {

Shape SparseConvProblem::w_shape() const {
  Shape out{k, c};
  for (int axis = 3 - map->rank(); axis < 3; ++axis) {
    out.push_back(map->kernel().size[static_cast<std::size_t>(axis)]);
  }
  return out;
}

OperandSpecs SparseConvProblem::operands(Direction direction) const {
  const OperandSpec x{.name = "x", .shape = x_shape(), .type = dtype};
  const OperandSpec w{.name = "w", .shape = w_shape(), .type = dtype, .is_weights = true};
  const OperandSpec y{.name = "y", .shape = y_shape(), .type = dtype};
  switch (direction) {
    case Direction::forward:
      return {{x, w}, {y}};
    case Direction::backward_data:
      return {{y, w}, {x}};
    case Direction::backward_weight:
      return {{x, y}, {w}};
  }
  return {};
}

double SparseConvProblem::nominal_flops() const {
  return 2.0 * static_cast<double>(map->pairs()) * static_cast<double>(c) * static_cast<double>(k);
}

double SparseConvProblem::nominal_bytes() const {
  return static_cast<double>(size_of(dtype)) *
             static_cast<double>(in_count() * c + out_count() * k + k * c * taps()) +
         static_cast<double>(map->bytes());
}

void SparseConvProblem::check() const {
  constexpr const char* kSparseConv = "sparse_conv";
  CONVSCOPE_CHECK(map != nullptr, kSparseConv, "expected a map, got none");
  CONVSCOPE_CHECK(c >= 1 && k >= 1, kSparseConv, "expected at least one channel, got ", text());
  CONVSCOPE_CHECK(!types && weight_format.is_dense(), kSparseConv,
                  "expected x, w and y of one type and dense weights, got ", text());
  x_shape().numel();  // errors when elements do not fit 63 bits
  y_shape().numel();
  w_shape().numel();
}

std::string SparseConvProblem::text() const {
  std::string out = cat(map->text(), ",c=", c, ",k=", k);
  if (dtype != DType::f32) out += cat(",dtype=", name_of(dtype));
  if (math != MathMode::f32) out += cat(",precision=", name_of(math));
  if (types) out += ",types=" + types->text();
  if (!weight_format.is_dense()) out += ",weights=" + weight_format.text();
  return out;
}

std::string SparseConvProblem::kernel_text() const {
  std::string out;
  for (int axis = 3 - map->rank(); axis < 3; ++axis) {
    out += cat(out.empty() ? "" : "x", map->kernel().size[static_cast<std::size_t>(axis)]);
  }
  return out;
}

}  // namespace convscope
