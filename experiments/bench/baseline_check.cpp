// SPDX-License-Identifier: Apache-2.0
// baseline_check.cpp: checks that the table of a plug-in (baseline.h) is complete.
#include "experiments/bench/baseline_check.h"

#include <cmath>

namespace convscope {
namespace {

constexpr std::int32_t kMaxVariants = 1000;  // oneDNN has six

std::string problem_of_variant(const ConvscopeBaselineVariant& variant, std::int32_t number) {
  if (variant.algorithm == nullptr) return cat("has no name for variant ", number);
  if (variant.layout != CONVSCOPE_BASELINE_OWN_LAYOUT &&
      variant.layout != CONVSCOPE_BASELINE_PLAIN) {
    return cat("has the layout ", variant.layout, " for variant ", number);
  }
  if (!std::isfinite(variant.error_growth) || variant.error_growth < 0) {
    return cat("has the error_growth ", variant.error_growth, " for variant ", number);
  }
  return "";
}

}  // namespace

std::string problem_of_baseline(const ConvscopeBaseline* baseline) {
  if (baseline == nullptr) return "has no table";
  // The version is checked first, because the layout of another version's table is unknown.
  if (baseline->abi != CONVSCOPE_BASELINE_ABI) {
    return cat("has version ", baseline->abi, " of the interface, not ", CONVSCOPE_BASELINE_ABI);
  }
  const struct {
    const char* name;
    bool there;
  } parts[] = {{"name", baseline->name != nullptr},
               {"version", baseline->version != nullptr},
               {"device", baseline->device != nullptr},
               {"function set_threads", baseline->set_threads != nullptr},
               {"function create", baseline->create != nullptr},
               {"function run", baseline->run != nullptr},
               {"function read", baseline->read != nullptr},
               {"function implementation", baseline->implementation != nullptr},
               {"function workspace_bytes", baseline->workspace_bytes != nullptr},
               {"function destroy", baseline->destroy != nullptr}};
  for (const auto& part : parts) {
    if (!part.there) return cat("has no ", part.name);
  }
  const std::int32_t count = baseline->variant_count;
  if (count < 0 || count > kMaxVariants) return cat("has ", count, " variants");
  if (count > 0 && baseline->variants == nullptr) return "has no variants";
  for (std::int32_t i = 0; i < count; ++i) {
    const std::string problem = problem_of_variant(baseline->variants[i], i);
    if (!problem.empty()) return problem;
  }
  return "";
}

}  // namespace convscope
