// SPDX-License-Identifier: Apache-2.0
// sampled_reference.h: compares a sample of a convolution's result with f64 dot products. The check
// is exact enough to reject a wrong kernel and cheap enough to run before every timing.
//
// All elements of a small result are compared. For a large result, a random sample is compared, and
// half of it is at the borders, where kernels fail first. The expected values are plain dot
// products in f64. The bound is that of the tests: |error| <= error_growth * eps * M, where M is
// the largest element of conv(|x|,|w|) in the sample. For quantised results, the expected value is
// clipped to the range of the integer type, and the bound is half a step larger.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// The epilogue of forward: out = clip(relu(sum + bias[k]), low, high), rounded to a multiple of the
// step of y.
struct Conv2dBehind {
  const double* bias = nullptr;  // [K], or null
  bool relu = false;
  double step = 0;  // of codes; 0: not codes
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// The two inputs of a direction: x and w, dy and w, or x and dy; f32, row-major, on the host.
struct Conv2dInputs {
  const float* first = nullptr;
  const float* second = nullptr;
  Conv2dBehind behind = {};
};

CONVSCOPE_API Shape output_shape(const Conv2dProblem& problem, Direction direction);

class CONVSCOPE_API SampledReference {
 public:
  // Takes a sample of at least 64 elements. The sample has more elements if they need at most about
  // `most_products` products. `seed` selects the elements.
  SampledReference(const Conv2dProblem& problem, Direction direction, const Conv2dInputs& inputs,
                   double most_products = 2e7, std::uint64_t seed = 7);

  struct Verdict {
    double error_ratio = 0;  // largest error / allowed error; correct up to 1
    std::string wrong;       // a sentence when the result is wrong, else ""
  };
  // Checks `output`, which has the shape of the direction's result. Every element must be a number;
  // with `in_blocks`, NaN elements are skipped.
  Verdict judge(const float* output, double error_growth, bool in_blocks = false) const;

  std::int64_t looked_at() const { return static_cast<std::int64_t>(index_.size()); }
  bool complete() const { return looked_at() == count_; }
  // Returns the share of elements whose expected value is at an end of the range of the integer
  // type.
  double clipped() const { return clipped_; }

 private:
  std::int64_t count_ = 0;  // elements of the result
  std::vector<std::int64_t> index_;
  std::vector<double> expected_;
  double largest_ = 0;  // M
  double half_step_ = 0, clipped_ = 0;
};

}  // namespace convscope
