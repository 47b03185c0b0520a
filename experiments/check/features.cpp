// SPDX-License-Identifier: Apache-2.0
// features.cpp: the features of an algorithm that a user can require.
#include "experiments/check/features.h"

#include <algorithm>
#include <iterator>

#include "experiments/bench/problem_list.h"
#include "experiments/run_folder/user_words.h"
#include "framework/registry.h"

namespace convscope {
const std::vector<Feature>& direction_features() {
  static const std::vector<Feature> kFeatures = {
      {"forward", {}, {Direction::forward}},
      {"backward", {}, {Direction::backward_data, Direction::backward_weight}},
      {"backward_data", {}, {Direction::backward_data}},
      {"backward_weight", {}, {Direction::backward_weight}}};
  return kFeatures;
}

const std::vector<Feature>& conv2d_features() {
  static const std::vector<Feature> kFeatures = [] {
    std::vector<Feature> out = {
        {"kernels",
         {"n=2,c=4,h=9,w=8,k=8,r=3,s=3", "n=1,c=3,h=11,w=9,k=4,r=5,s=5",
          "n=1,c=2,h=7,w=8,k=3,r=2,s=3"},
         {}},
        {"pointwise", {"n=2,c=8,h=7,w=6,k=12"}, {}},
        {"stride",
         {"n=2,c=4,h=9,w=12,k=6,r=3,s=3,stride=2", "n=1,c=3,h=9,w=9,k=4,r=3,s=3,stride=1x2"},
         {}},
        {"padding",
         {"n=2,c=4,h=9,w=8,k=6,r=3,s=3,pad=1", "n=1,c=3,h=6,w=7,k=4,r=3,s=3,pad=1x0x2x0"},
         {}},
        {"dilation", {"n=2,c=4,h=12,w=11,k=6,r=3,s=3,dilation=2"}, {}},
        {"groups", {"n=2,c=4,h=9,w=8,k=6,r=3,s=3,pad=1,groups=2"}, {}},
        {"depthwise", {"n=2,c=6,h=9,w=8,k=6,r=3,s=3,pad=1,groups=6"}, {}}};
    std::ranges::copy(direction_features(), std::back_inserter(out));
    return out;
  }();
  return kFeatures;
}

std::vector<std::string> names_of(const std::vector<Feature>& features) {
  std::vector<std::string> out;
  for (const Feature& feature : features) out.emplace_back(feature.name);
  return out;
}

std::vector<std::string> parse_features(const std::string& text,
                                        const std::vector<std::string>& known) {
  if (text == "all") return known;
  std::vector<std::string> words = known, out;
  words.emplace_back("all");
  for (const std::string& word : split_commas(text)) {
    CONVSCOPE_CHECK(std::ranges::count(known, word) > 0, "check",
                    "expected --require to be all or some of ", join(known, ","), ", got '", word,
                    "'", did_you_mean(word, words));
    if (std::ranges::count(out, word) == 0) out.push_back(word);
  }
  return out;
}

}  // namespace convscope
