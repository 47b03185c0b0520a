// SPDX-License-Identifier: Apache-2.0
// sampled_reference.h: is a convolution's result right? Exact enough to refuse a wrong kernel and
// cheap enough to ask before every timing.
//
// A small problem is compared element by element; of a large one a random sample, half of it at the
// borders of each axis, where kernels go wrong first. The expected values are plain dot products in
// double. The bound is that of the tests: |error| <= error_growth * eps * M, with M the largest of
// the same sums over magnitudes, conv(|x|,|w|), among the elements looked at. Of codes the expected
// number ends where they end, and half a step more is allowed: they are rounded.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// What happens to a sum of forward: out = clip(relu(sum + bias[k]), low, high), rounded to steps.
struct Conv2dBehind {
  const double* bias = nullptr;  // [K], or null
  bool relu = false;
  double step = 0;  // of codes; 0: no codes
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// The two inputs of a direction, f32, row-major, on the host: x and w, or dy and w, or x and dy.
struct Conv2dInputs {
  const float* first = nullptr;
  const float* second = nullptr;
  Conv2dBehind behind = {};
};

CONVSCOPE_API Shape output_shape(const Conv2dProblem& problem, Direction direction);

class CONVSCOPE_API SampledReference {
 public:
  // At most about `most_products` products are summed; at least 64 elements are looked at, others
  // for another `seed`.
  SampledReference(const Conv2dProblem& problem, Direction direction, const Conv2dInputs& inputs,
                   double most_products = 2e7, std::uint64_t seed = 7);

  struct Verdict {
    double error_ratio = 0;  // largest error / allowed error: right when at most 1
    std::string wrong;       // a sentence when the result is wrong, "" when it is right
  };
  // `output` has the shape of the direction's result. Every element of it must be a number; with
  // `in_blocks` those that are none were not asked for.
  Verdict judge(const float* output, double error_growth, bool in_blocks = false) const;

  std::int64_t looked_at() const { return static_cast<std::int64_t>(index_.size()); }
  bool complete() const { return looked_at() == count_; }
  // The part of them whose expected number lies at an end of the codes.
  double clipped() const { return clipped_; }

 private:
  std::int64_t count_ = 0;  // elements of the result
  std::vector<std::int64_t> index_;
  std::vector<double> expected_;
  double largest_ = 0;  // M
  double half_step_ = 0, clipped_ = 0;
};

}  // namespace convscope
