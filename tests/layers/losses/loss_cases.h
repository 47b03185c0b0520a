// SPDX-License-Identifier: Apache-2.0
// loss_cases.h: every loss of the table without options, losses with options, and a sum, for tests
// that all losses pass.
#pragma once

#include <string>
#include <vector>

#include "layers/losses/loss.h"

namespace convscope::testing {

inline Options options_of(std::vector<std::pair<std::string, OptionValue>> values) {
  Options out;
  for (auto& [name, value] : values) out.set(name, std::move(value));
  return out;
}

// Returns unequal weights, one of which is 0.
inline std::vector<double> some_weights(std::int64_t classes) {
  std::vector<double> out = {0.5, 2, 0, 1.5};
  while (std::ssize(out) < classes) out.push_back(0.25 * static_cast<double>(out.size()));
  out.resize(static_cast<std::size_t>(classes));
  return out;
}

struct LossCase {
  std::string name;
  Loss loss;
};

inline std::vector<LossCase> all_losses(std::int64_t classes) {
  const std::vector<double> weights = some_weights(classes);
  const Options all_of_focal =
      options_of({{"gamma", 1.5}, {"alpha", 0.25}, {"class_weights", weights}});
  std::vector<LossCase> out;
  for (const std::string& name : loss_types().names()) out.push_back({name, Loss(name)});
  const auto add = [&](const std::string& type, const Options& options) {
    std::string name = type;
    for (const auto& [key, value] : options.values()) name += cat(" ", key, "=", to_text(value));
    out.push_back({name, Loss(type, options)});
  };
  add("cross_entropy", options_of({{"label_smoothing", 0.1}}));
  add("cross_entropy", options_of({{"class_weights", weights}}));
  add("cross_entropy", options_of({{"label_smoothing", 0.3}, {"class_weights", weights}}));
  add("focal", options_of({{"gamma", 0.0}}));
  add("focal", options_of({{"gamma", 0.5}}));
  add("focal", all_of_focal);
  add("bce", options_of({{"pos_weight", weights}}));
  out.push_back({"sum", Loss({{.type = "cross_entropy", .weight = 0.5},
                              {.type = "dice", .weight = 2},
                              {.type = "focal", .options = all_of_focal}})});
  return out;
}

}  // namespace convscope::testing
