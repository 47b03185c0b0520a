// SPDX-License-Identifier: Apache-2.0
// problem.cpp: the description of a sparse convolution: map, sizes and types.
#include "layers/sparse_conv/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

namespace convscope {
namespace {

// "64k-128k": between two powers of 2.
std::string count_bucket(std::int64_t count) {
  const auto floor = std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, count)));
  const auto text = [](std::uint64_t value) {
    return value >= 1024 ? cat(value / 1024, "k") : std::to_string(value);
  };
  return count == 0 ? "0" : cat(text(floor), "-", text(2 * floor));
}

// Formats a ratio as "11.3-16", the powers of the square root of 2 around it.
std::string ratio_bucket(double ratio) {
  if (ratio <= 0) return "0";
  const double step = std::floor(2 * std::log2(ratio));
  const auto text = [](double power) {
    char out[32];
    std::snprintf(out, sizeof out, "%.3g", std::exp2(power / 2));
    return std::string(out);
  };
  return cat(text(step), "-", text(step + 1));
}

}  // namespace

Shape SparseConvProblem::w_shape() const {
  Shape out{k, c};
  for (int axis = 3 - map->rank(); axis < 3; ++axis) {
    out.push_back(map->kernel().size[static_cast<std::size_t>(axis)]);
  }
  return out;
}

OperandSpecs SparseConvProblem::operands(Direction direction) const {
  const OperandSpec x{.name = "x", .desc = {.shape = x_shape(), .dtype = dtype}};
  const OperandSpec w{
      .name = "w", .desc = {.shape = w_shape(), .dtype = dtype}, .is_weights = true};
  const OperandSpec y{.name = "y", .desc = {.shape = y_shape(), .dtype = dtype}};
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

std::string SparseConvProblem::bucket_text() const {
  const double outputs = static_cast<double>(std::max<std::int64_t>(1, out_count()));
  std::string out = cat(name_of(map->kind()), ",", map->kernel().text(map->rank()),
                        ",sites=", count_bucket(in_count()));
  if (map->kind() != SparseKind::submanifold) out += ",out_sites=" + count_bucket(out_count());
  out += ",pairs_per_site=" + ratio_bucket(static_cast<double>(map->pairs()) / outputs);
  return out + text_behind_map();
}

std::string SparseConvProblem::text() const { return map->text() + text_behind_map(); }

std::string SparseConvProblem::text_behind_map() const {
  std::string out = cat(",c=", c, ",k=", k);
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
