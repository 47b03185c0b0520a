// SPDX-License-Identifier: Apache-2.0
// features.h: what a convolution algorithm takes, in words that one can demand: `check --require`.
//
// A feature of problems is taken when the card takes each of its problems forward, and in each
// direction of the way back that it offers; one of directions when it offers them.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct FeatureAnswer {
  std::string name = {};  // "stride"
  bool takes = false;
  std::string reason = {};  // why not: "refuses forward of n=2,...: expects stride 1, got stride 2"
};

// "kernels", "pointwise", "stride", "padding", ..., "backward".
CONVSCOPE_API std::vector<std::string> feature_names();
// In that order.
CONVSCOPE_API std::vector<FeatureAnswer> features_of(const Conv2dAlgorithm& card);
// None for a feature of directions.
CONVSCOPE_API std::vector<Conv2dProblem> problems_of_feature(const std::string& name);
// "stride,groups" or "all"; a mistake in the command line is an error of kind kInvalid that names
// the nearest feature.
CONVSCOPE_API std::vector<std::string> parse_features(const std::string& text);

}  // namespace convscope
