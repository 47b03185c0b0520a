// SPDX-License-Identifier: Apache-2.0
// integer_case.h: one convolution on integers with its epilogue, and the expected result, computed
// in f64 arithmetic.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"

namespace convscope::matrix {

// The types of x, w, accumulators and y with which integer algorithms are checked.
inline constexpr const char* kCodeTypes[] = {"u8:i8:i32:u8", "i8:i8:i32:i8", "u8:i8:i32:f32",
                                             "i8:i8:i32:u8", "u8:i8:i32:i8", "f32:i8:i32:u8"};

struct Int8Options {
  bool bias = true;
  std::optional<DType> residual = {};  // u8, i8 or f32
  bool relu = false;
  float most = std::numeric_limits<float>::infinity();
  std::int32_t low = std::numeric_limits<std::int32_t>::min();  // of y
  std::int32_t high = std::numeric_limits<std::int32_t>::max();
  std::int32_t x_low = -128, x_high = 127;  // of f32 images
  bool extreme = false;                     // inputs with the largest possible accumulators
  double near_ties = 0;  // distance of each channel's first pixel from a rounding boundary
  double step = 0;       // step of y; 0: chosen so that few results are clipped
};

inline Conv2dProblem with_types(Conv2dProblem problem, const char* types) {
  OperandTypes parsed;
  CONVSCOPE_CHECK(OperandTypes::parse(types, parsed), "integers", "expected operand types, got ",
                  types);
  problem.set_integer_types(parsed);
  return problem;
}

// Returns the epilogue options of problem number i; consecutive numbers have different options.
inline Int8Options options_by_turns(std::uint64_t i, DType y) {
  Int8Options options;
  options.bias = i % 3 != 0;
  options.relu = i % 4 == 1;
  if (i % 8 == 1) options.most = 6;
  if (i % 5 == 2) options.residual = DType::u8;
  if (i % 5 == 3) options.residual = DType::i8;
  if (i % 5 == 4) options.residual = DType::f32;
  if (i % 7 == 3) {
    options.low = y == DType::i8 ? -8 : 0;
    options.high = 7;
  }
  if (i % 2 == 0) {
    options.x_low = 0;
    options.x_high = 15;
  }
  return options;
}

// Takes a problem that has types and a layout.
class Int8Case {
 public:
  Int8Case(const Conv2dProblem& problem, const Int8Options& options, std::uint64_t seed)
      : problem_(problem), options_(options), random_(seed, 5) {
    const OperandTypes& t = *problem.types;
    x_ = codes(problem.x_shape(), t.x);
    w_ = codes(problem.w_shape(), t.w);
    if (!problem.weight_format.is_dense()) keep_blocks();
    stored_x_ = stored_images(x_, problem.layout.x);
    s_w_ = Tensor::empty({problem.k}, DType::f64);
    b_ = Tensor::empty({problem.k}, DType::f64);
    for (std::int64_t k = 0; k < problem.k; ++k) {
      s_w_.data<double>()[k] =
          std::ldexp(0.5 + 0.5 * random_.uniform(), -7) * (k % 5 == 4 ? -1 : 1);
      b_.data<double>()[k] = 4 * random_.normal();
    }
    const double terms =
        problem.nominal_flops() / 2 / static_cast<double>(problem.y_shape().numel());
    s_y_ = options.step > 0 ? options.step : 0.02 * std::sqrt(terms) * (options.extreme ? 30 : 1);
    if (options.residual) {
      residual_ = codes(problem.y_shape(), *options.residual);
      stored_residual_ = stored_images(residual_, problem.layout.y);
    }
    find_codes();
    if (options.near_ties > 0) bring_near_ties();
    expect();
  }

  const Conv2dProblem& problem() const { return problem_; }
  std::int64_t ties() const { return ties_; }

  // Runs each instruction set of this CPU, with and without VNNI, with one and two threads. All
  // runs must give the same integers. Returns "", or what is wrong with y and with which settings.
  std::string check_everywhere(const Conv2dAlgorithm& algorithm) {
    const Isa before = current_isa();
    const bool allowed = uses_vnni() || !supports_vnni(before);
    std::vector<double> first;
    std::string wrong;
    for (int i = 0; i < kIsaCount && wrong.empty(); ++i) {
      const Isa isa = static_cast<Isa>(i);
      if (!supports_isa(isa)) continue;
      set_isa(isa);
      for (const bool vnni : {false, true}) {
        if (vnni && !supports_vnni(isa)) continue;
        set_vnni(vnni);
        for (const int threads : {1, 2}) {
          set_num_threads(threads);
          std::vector<double> values;
          std::string said = check(algorithm, &values);
          // y in f32 has different bits with and without FMA.
          if (said.empty() && problem_.types->y != DType::f32) {
            if (first.empty()) first = values;
            if (first != values) said = "other codes than on the first instruction set";
          }
          if (said.empty() || !wrong.empty()) continue;
          wrong = cat(said, " (", name_of(isa), vnni ? " with VNNI" : "", ", ", threads,
                      threads == 1 ? " thread)" : " threads)");
        }
      }
    }
    set_isa(before);
    set_vnni(allowed);
    return wrong;
  }

  // Runs the algorithm and checks its y, [N,K,P,Q]. Returns "", or what is wrong.
  std::string check(const Conv2dAlgorithm& algorithm, std::vector<double>* values = nullptr) {
    const DType type = problem_.types->y;
    const Shape stored = stored_shape(problem_.y_shape(), problem_.layout.y);
    Tensor y = Tensor::empty(stored, type);
    std::memset(y.raw_data(), 0x5a, static_cast<std::size_t>(y.size_bytes()));
    const Device device{algorithm.device, 0};
    const auto there = [&](const Tensor& of) { return of.defined() ? of.to(device) : Tensor(); };
    y = there(y);
    const Operand blocks = blocks_.to(device);
    const Tensor x = there(stored_x_), w = blocks_.defined() ? blocks.values : there(w_);
    const Tensor residual = there(stored_residual_);
    const Tensor b = there(b_), s_x = there(single(s_x_)), s_w = there(s_w_);
    const Tensor s_y = there(single(s_y_)), s_r = there(single(s_r_));
    const Scratch<Conv2dProblem> scratch(algorithm, problem_, Direction::forward, device);
    OperandViews views;
    views.x = {.scales = s_x.data<double>(), .low = options_.x_low, .high = options_.x_high};
    views.w = {.scales = s_w.data<double>(), .per_channel = true};
    if (blocks_.defined()) views.w_blocks = blocks.blocks();
    if (type != DType::f32) {
      views.y = {.scales = s_y.data<double>(), .low = options_.low, .high = options_.high};
    }
    if (options_.residual && *options_.residual != DType::f32) {
      views.residual = {.scales = s_r.data<double>()};
    }
    const void* const prepared = scratch.prepare(w.raw_data(), views);
    algorithm.forward({problem_,
                       x.raw_data(),
                       w.raw_data(),
                       options_.bias ? b.raw_data() : nullptr,
                       y.raw_data(),
                       scratch.workspace(),
                       {.residual = options_.residual ? residual.raw_data() : nullptr,
                        .relu = options_.relu,
                        .most = options_.most,
                        .residual_type = options_.residual.value_or(DType::f32)},
                       prepared,
                       views});
    y = y.to(Device{});
    if (!has_clean_lanes(y, problem_.y_shape(), problem_.layout.y)) {
      return cat(algorithm.name, " of ", problem_.text(),
                 ": lanes after the last channel are not 0");
    }
    const Tensor plain = plain_images(y, problem_.y_shape(), problem_.layout.y);
    for (std::int64_t i = 0; i < plain.numel(); ++i) {
      const double got = plain.at(i), right = right_[static_cast<std::size_t>(i)];
      if (values != nullptr) values->push_back(got);
      // f32 rounds five times (accumulator, factor, shift, two products), each time by at most
      // 2^-24.
      const double allowed =
          type == DType::f32 ? 5 * 0x1p-24 * size_[static_cast<std::size_t>(i)] : 0;
      if (std::abs(got - right) <= allowed || (type != DType::f32 && is_tie(i))) continue;
      return cat(algorithm.name, " of ", problem_.text(), ": expected ", right, " at ", i, ", got ",
                 got, " (real ", real_[static_cast<std::size_t>(i)], ")");
    }
    return "";
  }

 private:
  Tensor codes(const Shape& shape, DType type) {
    const Tensor out = Tensor::empty(shape, type);
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      if (type == DType::u8) {
        out.data<std::uint8_t>()[i] =
            static_cast<std::uint8_t>(options_.extreme ? 255 : random_.below(256));
      } else if (type == DType::i8) {
        const int code = static_cast<int>(random_.below(256)) - 128;
        out.data<std::int8_t>()[i] = static_cast<std::int8_t>(
            !options_.extreme                                             ? code
            : i / std::max<std::int64_t>(1, shape.numel() / shape[0]) % 2 ? 127
                                                                          : -128);
      } else {
        out.data<float>()[i] = 2 * random_.normal();
      }
    }
    return out;
  }

  // Blocks at random positions keep their codes.
  void keep_blocks() {
    const OperandSpec spec = problem_.operands(Direction::forward).inputs[1];
    blocks_ = random_operand(spec, Device{}, 2);
    const Tensor dense = w_;
    w_ = Tensor::zeros(dense.shape(), dense.dtype());
    for_each_stored(blocks_, spec, [&](std::int64_t stored, std::int64_t at) {
      w_.data<std::int8_t>()[at] = dense.data<std::int8_t>()[at];
      blocks_.values.data<std::int8_t>()[stored] = dense.data<std::int8_t>()[at];
    });
  }

  static Tensor single(double value) {
    const Tensor out = Tensor::empty({1}, DType::f64);
    out.data<double>()[0] = value;
    return out;
  }

  // Returns the code of an element of x.
  double code(std::int64_t i) const {
    if (problem_.types->x != DType::f32) return x_.at(i);
    return std::nearbyint(std::clamp<double>(x_.at(i) / s_x_, options_.x_low, options_.x_high));
  }

  void find_codes() {
    for (std::int64_t i = 0; i < x_.numel(); ++i) codes_.push_back(code(i));
  }

  std::int64_t sum_of(std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) const {
    const Conv2dProblem& z = problem_;
    std::int64_t sum = 0;
    for (std::int64_t c = 0; c < z.c_per_group(); ++c) {
      const std::int64_t from = k / z.k_per_group() * z.c_per_group() + c;
      for (std::int64_t r = 0; r < z.r; ++r) {
        const std::int64_t h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        if (h < 0 || h >= z.h) continue;
        for (std::int64_t s = 0; s < z.s; ++s) {
          const std::int64_t w = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (w < 0 || w >= z.w) continue;
          sum += static_cast<std::int64_t>(
              codes_[static_cast<std::size_t>(((n * z.c + from) * z.h + h) * z.w + w)] *
              w_.at(((k * z.c_per_group() + c) * z.r + r) * z.s + s));
        }
      }
    }
    return sum;
  }

  // Returns the real number that the residual adds to element i of y.
  double beside_of(std::int64_t i) const {
    if (!options_.residual) return 0;
    return residual_.at(i) * (*options_.residual == DType::f32 ? 1 : s_r_);
  }

  // Moves some results of each channel close to a rounding boundary, alternately just above and
  // just below it.
  void bring_near_ties() {
    for (std::int64_t k = 0; k < problem_.k; ++k) {
      const double product = s_x_ * s_w_.at(k) * static_cast<double>(sum_of(0, k, 0, 0));
      const double beside = k % 2 == 0 ? options_.near_ties : -options_.near_ties;
      const double code = static_cast<double>(k % 251) + 0.5 + beside;
      const std::int64_t first = k * problem_.p() * problem_.q();
      if (options_.bias) {
        b_.data<double>()[k] = code * s_y_ - product - beside_of(first);
      } else {
        residual_.data<float>()[first] = static_cast<float>(code * s_y_ - product);
      }
    }
    if (!options_.bias) {
      stored_residual_ = stored_images(residual_, problem_.layout.y);
    }
  }

  void expect() {
    const Conv2dProblem& z = problem_;
    const OperandTypes& t = *z.types;
    for (std::int64_t i = 0; i < z.y_shape().numel(); ++i) {
      const std::int64_t q = i % z.q(), p = i / z.q() % z.p(), k = i / z.q() / z.p() % z.k;
      const std::int64_t n = i / z.q() / z.p() / z.k;
      const std::int64_t sum = sum_of(n, k, p, q);
      const double product = s_x_ * s_w_.at(k) * static_cast<double>(sum);
      const double shift = options_.bias ? b_.at(k) : 0;
      const double beside = beside_of(i);
      double real = product + shift + beside;
      if (options_.relu) real = std::clamp<double>(real, 0, static_cast<double>(options_.most));
      size_.push_back(std::abs(product) + std::abs(shift) + std::abs(beside));
      if (t.y == DType::f32) {
        right_.push_back(real);
        real_.push_back(real);
        continue;
      }
      const std::int32_t low = std::max(options_.low, t.y == DType::i8 ? -128 : 0);
      const std::int32_t high = std::min(options_.high, t.y == DType::i8 ? 127 : 255);
      real_.push_back(real / s_y_);
      right_.push_back(std::nearbyint(std::clamp<double>(real / s_y_, low, high)));
      ties_ += is_tie(i) ? 1 : 0;
    }
  }

  // Returns whether element i is within 1e-6 of a rounding boundary.
  bool is_tie(std::int64_t i) const {
    const double u = real_[static_cast<std::size_t>(i)];
    return std::abs(std::abs(u - std::nearbyint(u)) - 0.5) <= 1e-6;
  }

  const Conv2dProblem problem_;
  const Int8Options options_;
  Generator random_;
  Operand blocks_;  // of sparse weights
  Tensor x_, w_, residual_, stored_x_, stored_residual_, s_w_, b_;
  const double s_x_ = 0.013, s_r_ = 0.031;
  double s_y_ = 1;
  std::vector<double> codes_, right_, real_, size_;
  std::int64_t ties_ = 0;
};

}  // namespace convscope::matrix
