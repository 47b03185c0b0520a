// SPDX-License-Identifier: Apache-2.0
// sampled_reference.h: is a convolution's result right? Exact enough to refuse a wrong kernel and
// cheap enough to ask before every timing.
//
// A small problem is compared element by element; of a large one a random sample, half of it at the
// borders of each axis, where kernels go wrong first. The expected values are plain dot products in
// double. The bound is that of the tests: |error| <= error_growth * eps * M, with M the largest of
// the same sums over magnitudes, conv(|x|,|w|), among the elements looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// The two inputs of a direction, f32, row-major, on the host: x and w, or dy and w, or x and dy.
struct Conv2dInputs {
  const float* first = nullptr;
  const float* second = nullptr;
};

CONVSCOPE_API Shape output_shape(const Conv2dProblem& problem, Direction direction);

class CONVSCOPE_API SampledReference {
 public:
  // At most about `most_products` products are summed; at least 64 elements are looked at.
  SampledReference(const Conv2dProblem& problem, Direction direction, const Conv2dInputs& inputs,
                   double most_products = 2e7);

  struct Verdict {
    double error_ratio = 0;  // largest error / allowed error: right when at most 1
    std::string wrong;       // a sentence when the result is wrong, "" when it is right
  };
  // `output` has the shape of the direction's result. Every element of it must be a number; with
  // `in_blocks` those that are none were not asked for.
  Verdict judge(const float* output, double error_growth, bool in_blocks = false) const;

  std::int64_t looked_at() const { return static_cast<std::int64_t>(index_.size()); }
  bool complete() const { return looked_at() == count_; }

 private:
  std::int64_t count_ = 0;  // elements of the result
  std::vector<std::int64_t> index_;
  std::vector<double> expected_;
  double largest_ = 0;  // M
};

}  // namespace convscope
