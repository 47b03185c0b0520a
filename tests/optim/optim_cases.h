// SPDX-License-Identifier: Apache-2.0
// optim_cases.h: parameters of small networks, with given gradients, for tests of the optimisers.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace convscope::optim_test {

// The sizes are: multiples of the vector widths and their neighbours, 0, and 66000, which exceeds
// the 64 Ki elements that a thread processes at a time.
inline const std::vector<std::int64_t> kSizes = {1, 7, 8, 9, 15, 16, 17, 0, 31, 66000, 33};

// Returns a value in [-1, 1) that depends only on the arguments.
inline double noise(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu + 1;
  x ^= x >> 31;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1.0;
}

inline void set_element(const Tensor& tensor, std::int64_t i, double value) {
  if (tensor.dtype() == DType::f64) {
    tensor.data<double>()[i] = value;
  } else {
    tensor.data<float>()[i] = static_cast<float>(value);
  }
}

inline void set_gradient(const Variable& variable, const std::vector<double>& values) {
  const Tensor& w = variable.value();
  Tensor dw = Tensor::empty(w.shape(), w.dtype());
  for (std::size_t i = 0; i < values.size(); ++i) {
    set_element(dw, static_cast<std::int64_t>(i), values[i]);
  }
  variable.state()->grad = dw;
  variable.state()->grad_is_zero = false;
}

inline OptimParameter parameter(const std::string& name, const std::vector<double>& values,
                                DType dtype = DType::f32) {
  Tensor w = Tensor::empty(Shape{static_cast<std::int64_t>(values.size())}, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    set_element(w, static_cast<std::int64_t>(i), values[i]);
  }
  return {name, Variable(w, true)};
}

// Returns parameters of kSizes in two groups; the second group has another weight decay and
// learning rate.
inline std::vector<ParameterGroup> noisy_groups(DType dtype) {
  std::vector<ParameterGroup> groups(2);
  groups[0] = {.name = "weights", .parameters = {}, .lr_scale = 1.0, .weight_decay = 0.01};
  groups[1] = {.name = "biases", .parameters = {}, .lr_scale = 0.5, .weight_decay = 0.0};
  for (std::size_t p = 0; p < kSizes.size(); ++p) {
    std::vector<double> values(static_cast<std::size_t>(kSizes[p]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(noise(p, i, 99));
    }
    groups[p % 2].parameters.push_back(parameter("p" + std::to_string(p), values, dtype));
  }
  return groups;
}

// Returns the gradient of a parameter in step `step`. The values are exact in float but stored as
// double, so that both element types get the same gradient.
inline std::vector<double> noisy_gradient(std::size_t parameter, std::size_t count, int step) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(noise(parameter, i, static_cast<std::uint64_t>(step)));
  }
  return values;
}

inline void set_noisy_gradients(const std::vector<ParameterGroup>& groups, int step) {
  std::size_t p = 0;
  for (const ParameterGroup& group : groups) {
    for (const OptimParameter& each : group.parameters) {
      const auto count = static_cast<std::size_t>(each.variable.value().numel());
      set_gradient(each.variable, noisy_gradient(p++, count, step));
    }
  }
}

inline std::vector<double> values_of(const std::vector<ParameterGroup>& groups) {
  std::vector<double> out;
  for (const ParameterGroup& group : groups) {
    for (const OptimParameter& each : group.parameters) {
      const Tensor& w = each.variable.value();
      for (std::int64_t i = 0; i < w.numel(); ++i) out.push_back(w.at(i));
    }
  }
  return out;
}

inline double greatest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(a[i] - b[i]);
    if (!(difference <= greatest)) greatest = difference;  // NaN counts as a difference
  }
  return greatest;
}

}  // namespace convscope::optim_test
