// SPDX-License-Identifier: Apache-2.0
// odd_plugin.cpp: a plug-in with an invalid algorithm; CONVSCOPE_ODD_PLUGIN selects what is wrong
// with it.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "layers/conv2d/plugin.h"
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

Conv2dSupport takes_all(const Conv2dProblem&, Direction) { return {}; }

void does_nothing(const Conv2dForwardArgs&) {}

Conv2dAlgorithm algorithm() {
  return {.name = "odd",
          .idea = "does nothing",
          .supports = takes_all,
          .cost = one_product_in<8>,
          .workspace_bytes = empty_blackboard,
          .auto_ok = false,
          .forward = does_nothing};
}

std::string_view mistake() {
  const char* const said = std::getenv("CONVSCOPE_ODD_PLUGIN");
  return said == nullptr ? "" : said;
}

Conv2dAlgorithm odd_algorithm() {
  Conv2dAlgorithm out = algorithm();
  const std::string_view said = mistake();
  if (said == "throws") throw std::runtime_error("on purpose");
  if (said == "throws_a_number") throw 7;
  if (said == "null_name") out.name = nullptr;
  if (said == "bad_name") out.name = "No Name";
  if (said == "policy_name") out.name = "auto";
  if (said == "taken_name") out.name = "direct";
  if (said == "no_idea") out.idea = nullptr;
  if (said == "no_supports") out.supports = nullptr;
  if (said == "no_cost") out.cost = nullptr;
  if (said == "no_workspace_bytes") out.workspace_bytes = nullptr;
  if (said == "no_direction") out.forward = nullptr;
  if (said == "cuda") out.device = DeviceType::cuda;
  if (said == "growth") out.error_growth = 0;
  if (said == "growth_nan") out.error_growth = std::nan("");
  if (said == "growth_infinite") out.error_growth = HUGE_VAL;
  if (said == "growth_negative") out.error_growth = -8;
  if (said == "growth_large") out.error_growth = 1e30;
  if (said == "growth_of_chain") {
    out.error_growth = 100;
    out.one_chain = true;
  }
  if (said == "half_prepared") {
    out.prepared_bytes = [](const Conv2dProblem&, Direction) { return std::size_t{4}; };
  }
  if (said == "supports_throws") {
    out.supports = [](const Conv2dProblem&, Direction) -> Conv2dSupport {
      throw std::runtime_error("on purpose");
    };
  }
  if (said == "supports_crashes") {
    out.supports = [](const Conv2dProblem&, Direction) -> Conv2dSupport {
      std::raise(SIGSEGV);
      return {};
    };
  }
  if (said == "supports_exits") {
    out.supports = [](const Conv2dProblem&, Direction) -> Conv2dSupport { std::_Exit(3); };
  }
  if (said == "no_reason") {
    out.supports = [](const Conv2dProblem&, Direction) { return Conv2dSupport::no(""); };
  }
  if (said == "free") {
    out.cost = [](const Conv2dProblem&, Direction) { return Conv2dCost{}; };
  }
  if (said == "huge") {
    out.workspace_bytes = [](const Conv2dProblem&, Direction) { return SIZE_MAX; };
  }
  return out;
}

Conv2dLadder ladder() {
  Conv2dLadder out{.name = "odd",
                   .device = DeviceType::cpu,
                   .problem = "n=1,c=2,h=6,w=6,k=2,r=3,s=3",
                   .rungs = {{.algorithm = "direct_lesson", .sentence = "the textbook"},
                             {.algorithm = "odd", .sentence = "nothing"}}};
  if (mistake() == "ladder_name") out.name = "winograd";
  if (mistake() == "ladder_algorithm") out.rungs[1].algorithm = "nobody";
  if (mistake() == "ladder_problem") out.problem = "n=1,c=2,h=1,w=1,k=2,r=3,s=3";
  if (mistake() == "ladder_isa") out.rungs[1].isa = "mmx";
  if (mistake() == "ladder_rungs") out.rungs.clear();
  return out;
}

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_PLUGIN(convscope::odd_algorithm(), convscope::ladder())
