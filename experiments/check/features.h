// SPDX-License-Identifier: Apache-2.0
// features.h: the features of an algorithm that a user can require: `check --require`.
//
// A feature such as "stride" has a list of problems. An algorithm supports the feature when it
// accepts all of these problems in the forward pass and in each backward direction that it offers.
// A feature such as "backward" is a set of directions, which the algorithm must offer.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

struct Feature {
  const char* name;
  std::vector<const char*> problems;  // as texts
  std::vector<Direction> directions;
};
// Returns "forward", "backward", "backward_data", "backward_weight".
CONVSCOPE_API const std::vector<Feature>& direction_features();
// Returns "kernels", "pointwise", "stride", "padding", ..., and the directions.
CONVSCOPE_API const std::vector<Feature>& conv2d_features();
CONVSCOPE_API std::vector<std::string> names_of(const std::vector<Feature>& features);

struct FeatureAnswer {
  std::string name = {};  // "stride"
  bool takes = true;
  std::string reason = {};  // why not: "refuses forward of n=2,...: expects stride 1, got stride 2"

  void refuse(std::string why) {
    if (takes) reason = std::move(why);
    takes = false;
  }
};

// Returns one answer per feature. `parse` makes a problem of a text.
template <class Problem, class Parse>
std::vector<FeatureAnswer> features_of(const Algorithm<Problem>& algorithm,
                                       const std::vector<Feature>& features, const Parse& parse) {
  std::vector<FeatureAnswer> out;
  for (const Feature& feature : features) {
    FeatureAnswer& answer = out.emplace_back(FeatureAnswer{.name = feature.name});
    for (const Direction direction : feature.directions) {
      if (!algorithm.offers(direction)) answer.refuse(cat("does not compute ", name_of(direction)));
    }
    for (const char* const text : feature.problems) {
      const Problem problem = parse(text);
      for (const Direction direction : kDirections) {
        if (direction != Direction::forward && !algorithm.offers(direction)) continue;
        const Support support = support_of(algorithm, problem, direction);
        if (support.yes) continue;
        answer.refuse(
            cat("refuses ", name_of(direction), " of ", problem.text(), ": ", support.reason));
      }
    }
  }
  return out;
}

// Parses "stride,groups" or "all". For a name that is not in `known`, throws an error of kind
// kInvalid that suggests the nearest one.
CONVSCOPE_API std::vector<std::string> parse_features(const std::string& text,
                                                      const std::vector<std::string>& known);

}  // namespace convscope
