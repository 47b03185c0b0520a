// SPDX-License-Identifier: Apache-2.0
// sampled_reference.cpp: compares a sample of a convolution's result with f64 dot products. The
// check is exact enough to reject a wrong kernel and cheap enough to run before every timing.
#include "experiments/bench/sampled_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/parallel.h"
#include "framework/random.h"

namespace convscope {
namespace {

using Index = std::int64_t;

// One element of the result, and the sum of the absolute values of its products.
struct Sum {
  double value = 0, magnitude = 0;
  void add(float a, float b) {
    const double product = static_cast<double>(a) * static_cast<double>(b);
    value += product;
    magnitude += std::abs(product);
  }
};

Index offset(const Shape& shape, Index i0, Index i1, Index i2, Index i3) {
  return ((i0 * shape.at(1) + i1) * shape.at(2) + i2) * shape.at(3) + i3;
}

// Computes one element of y, dx or dw by the formula of problem.h.
class DotProducts {
 public:
  DotProducts(const Conv2dProblem& problem, Direction direction, const Conv2dInputs& inputs)
      : z_(problem), direction_(direction), in_(inputs) {}

  Sum at(Index flat) const {
    const Shape shape = output_shape(z_, direction_);
    const Index i3 = flat % shape.at(3), i2 = flat / shape.at(3) % shape.at(2);
    const Index i1 = flat / (shape.at(3) * shape.at(2)) % shape.at(1);
    const Index i0 = flat / (shape.at(3) * shape.at(2) * shape.at(1));
    if (direction_ == Direction::forward) return forward(i0, i1, i2, i3);
    if (direction_ == Direction::backward_data) return backward_data(i0, i1, i2, i3);
    return backward_weight(i0, i1, i2, i3);
  }

 private:
  Sum forward(Index n, Index k, Index p, Index q) const {
    Sum sum;
    const Index g = k / z_.k_per_group();
    for (Index c = 0; c < z_.c_per_group(); ++c) {
      for (Index r = 0; r < z_.r; ++r) {
        const Index h = p * z_.stride_h - z_.pad_top + r * z_.dilation_h;
        if (h < 0 || h >= z_.h) continue;
        for (Index s = 0; s < z_.s; ++s) {
          const Index w = q * z_.stride_w - z_.pad_left + s * z_.dilation_w;
          if (w < 0 || w >= z_.w) continue;
          sum.add(in_.first[offset(x_, n, g * z_.c_per_group() + c, h, w)],
                  in_.second[offset(w_, k, c, r, s)]);
        }
      }
    }
    return sum;
  }

  Sum backward_data(Index n, Index channel, Index h, Index w) const {
    Sum sum;
    const Index g = channel / z_.c_per_group(), c = channel % z_.c_per_group();
    for (Index k = g * z_.k_per_group(); k < (g + 1) * z_.k_per_group(); ++k) {
      for (Index r = 0; r < z_.r; ++r) {
        const Index down = h + z_.pad_top - r * z_.dilation_h;
        if (down < 0 || down % z_.stride_h != 0 || down / z_.stride_h >= y_.at(2)) continue;
        for (Index s = 0; s < z_.s; ++s) {
          const Index right = w + z_.pad_left - s * z_.dilation_w;
          if (right < 0 || right % z_.stride_w != 0 || right / z_.stride_w >= y_.at(3)) continue;
          sum.add(in_.first[offset(y_, n, k, down / z_.stride_h, right / z_.stride_w)],
                  in_.second[offset(w_, k, c, r, s)]);
        }
      }
    }
    return sum;
  }

  Sum backward_weight(Index k, Index c, Index r, Index s) const {
    Sum sum;
    const Index channel = k / z_.k_per_group() * z_.c_per_group() + c;
    for (Index n = 0; n < z_.n; ++n) {
      for (Index p = 0; p < y_.at(2); ++p) {
        const Index h = p * z_.stride_h - z_.pad_top + r * z_.dilation_h;
        if (h < 0 || h >= z_.h) continue;
        for (Index q = 0; q < y_.at(3); ++q) {
          const Index w = q * z_.stride_w - z_.pad_left + s * z_.dilation_w;
          if (w < 0 || w >= z_.w) continue;
          sum.add(in_.first[offset(x_, n, channel, h, w)], in_.second[offset(y_, n, k, p, q)]);
        }
      }
    }
    return sum;
  }

  const Conv2dProblem z_;
  const Direction direction_;
  const Conv2dInputs in_;
  const Shape x_ = z_.x_shape(), w_ = z_.w_shape(), y_ = z_.y_shape();
};

double products_per_element(const Conv2dProblem& z, Direction direction) {
  const Index count = direction == Direction::forward         ? z.c_per_group() * z.r * z.s
                      : direction == Direction::backward_data ? z.k_per_group() * z.r * z.s
                                                              : z.n * z.p() * z.q();
  return std::max(1.0, static_cast<double>(count));
}

// Returns element indices. Every second element is, along each axis, at the border or next to it.
std::vector<Index> sample(const Shape& shape, Index how_many, std::uint64_t seed) {
  Generator random(seed, 41);
  const auto coordinate = [&](Index size, bool border) {
    const auto place = static_cast<Index>(random.below(static_cast<std::uint32_t>(size)));
    if (!border) return place;
    const Index step = std::min<Index>(static_cast<Index>(random.below(2)), size - 1);
    return random.below(2) == 0 ? step : size - 1 - step;
  };
  std::vector<Index> out;
  for (Index i = 0; i < how_many; ++i) {
    Index flat = 0;
    for (int axis = 0; axis < 4; ++axis) {
      flat = flat * shape.at(axis) + coordinate(shape.at(axis), i % 2 == 1);
    }
    out.push_back(flat);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Shape output_shape(const Conv2dProblem& problem, Direction direction) {
  return direction == Direction::forward         ? problem.y_shape()
         : direction == Direction::backward_data ? problem.x_shape()
                                                 : problem.w_shape();
}

SampledReference::SampledReference(const Conv2dProblem& problem, Direction direction,
                                   const Conv2dInputs& inputs, double most_products,
                                   std::uint64_t seed) {
  const Conv2dBehind& behind = inputs.behind;
  const Shape shape = output_shape(problem, direction);
  count_ = shape.numel();
  const double affordable =
      std::max(64.0, most_products / products_per_element(problem, direction));
  if (static_cast<double>(count_) <= affordable) {
    index_.resize(static_cast<std::size_t>(count_));
    for (Index i = 0; i < count_; ++i) index_[static_cast<std::size_t>(i)] = i;
  } else {
    index_ = sample(shape, static_cast<Index>(affordable), seed);
  }
  std::vector<Sum> sums(index_.size());
  const DotProducts products(problem, direction, inputs);
  parallel_for(looked_at(), 16, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sums[at] = products.at(index_[at]);
    }
  });
  half_step_ = 0.5 * behind.step;
  std::int64_t clipped = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Index channel = index_[i] / (shape.at(2) * shape.at(3)) % shape.at(1);
    const double shift = behind.bias == nullptr ? 0 : behind.bias[channel];
    const double sum = sums[i].value + shift;
    const double real = behind.relu ? std::max(sum, 0.0) : sum;
    expected_.push_back(std::clamp(real, behind.low, behind.high));
    clipped += real > behind.high || real < behind.low ? 1 : 0;
    largest_ = std::max(largest_, sums[i].magnitude + std::abs(shift));
  }
  clipped_ = static_cast<double>(clipped) / static_cast<double>(std::max<Index>(1, looked_at()));
}

SampledReference::Verdict SampledReference::judge(const float* output, double error_growth,
                                                  bool in_blocks) const {
  for (Index i = 0; i < count_; ++i) {
    if (std::isfinite(output[i]) || (in_blocks && std::isnan(output[i]))) continue;
    return {.error_ratio = std::numeric_limits<double>::infinity(),
            .wrong = cat("element ", i, " of ", count_, " is ",
                         std::isnan(output[i]) ? "not a number or was not written" : "infinite")};
  }
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  const double allowed = error_growth * kEps * largest_ + half_step_;
  Verdict verdict;
  for (std::size_t i = 0; i < index_.size(); ++i) {
    const double got = output[index_[i]];
    if (in_blocks && std::isnan(got)) continue;
    const double error = std::abs(got - expected_[i]);
    const double ratio = error == 0      ? 0.0
                         : allowed > 0.0 ? error / allowed
                                         : std::numeric_limits<double>::infinity();
    verdict.error_ratio = std::max(verdict.error_ratio, ratio);
    if (ratio <= 1 || !verdict.wrong.empty()) continue;
    verdict.wrong = cat("element ", index_[i], " of ", count_, ": got ", got, ", expected ",
                        expected_[i], ", an error of ", error, " where ", allowed, " is allowed");
  }
  return verdict;
}

}  // namespace convscope
