// SPDX-License-Identifier: Apache-2.0
// features.h: the features of a convolution algorithm that a user can require: `check --require`.
//
// A feature such as "stride" has a list of problems. An algorithm supports the feature when it
// accepts all of these problems in the forward pass and in each backward direction that it offers.
// A feature such as "backward" is a set of directions, which the algorithm must offer.
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

// Returns "kernels", "pointwise", "stride", "padding", ..., "backward".
CONVSCOPE_API std::vector<std::string> feature_names();
// Returns one answer per feature, in the order of feature_names().
CONVSCOPE_API std::vector<FeatureAnswer> features_of(const Conv2dAlgorithm& algorithm);
// Returns the problems of a feature; none if the feature is a set of directions.
CONVSCOPE_API std::vector<Conv2dProblem> problems_of_feature(const std::string& name);
// Parses "stride,groups" or "all". For an unknown name, throws an error of kind kInvalid that
// suggests the nearest feature.
CONVSCOPE_API std::vector<std::string> parse_features(const std::string& text);

}  // namespace convscope
