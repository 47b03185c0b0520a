// SPDX-License-Identifier: Apache-2.0
// odd_plugin.cpp: a plug-in with an invalid algorithm; CONVSCOPE_ODD_PLUGIN selects what is wrong
// with it.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "layers/plugin/plugin.h"

namespace {

using Problem = ConvscopeConv2dProblem;

std::string_view mistake() {
  const char* const said = std::getenv("CONVSCOPE_ODD_PLUGIN");
  return said == nullptr ? "" : said;
}

ConvscopeConv2dAlgorithm odd_algorithm() {
  ConvscopeConv2dAlgorithm out{.name = "odd",
                               .idea = "does nothing",
                               .error_growth = 1,
                               .forward = [](const ConvscopeConv2dCall*) {}};
  const std::string_view said = mistake();
  if (said == "throws") throw std::runtime_error("on purpose");
  if (said == "null_name") out.name = nullptr;
  if (said == "bad_name") out.name = "No Name";
  if (said == "policy_name") out.name = "auto";
  if (said == "taken_name") out.name = "direct";
  if (said == "no_idea") out.idea = nullptr;
  if (said == "no_direction") out.forward = nullptr;
  if (said == "cuda") out.device = CONVSCOPE_CUDA;
  if (said == "growth") out.error_growth = 0;
  if (said == "growth_nan") out.error_growth = std::nan("");
  if (said == "growth_infinite") out.error_growth = HUGE_VAL;
  if (said == "growth_negative") out.error_growth = -8;
  if (said == "growth_large") out.error_growth = 1e30;
  if (said == "growth_of_chain") {
    out.error_growth = 100;
    out.flags = CONVSCOPE_ONE_CHAIN;
  }
  if (said == "half_prepared") {
    out.prepared_bytes = [](const Problem*, int32_t) { return size_t{4}; };
  }
  if (said == "supports_throws") {
    out.supports = [](const Problem*, int32_t, char*, size_t) -> int32_t {
      throw std::runtime_error("on purpose");
    };
  }
  if (said == "supports_crashes") {
    out.supports = [](const Problem*, int32_t, char*, size_t) { return std::raise(SIGSEGV); };
  }
  if (said == "supports_exits") {
    out.supports = [](const Problem*, int32_t, char*, size_t) -> int32_t { std::_Exit(3); };
  }
  if (said == "no_reason") {
    out.supports = [](const Problem*, int32_t, char*, size_t) { return 0; };
  }
  if (said == "free") {
    out.cost = [](const Problem*, int32_t, ConvscopeCost* cost) { cost->flops = 0; };
  }
  if (said == "huge") {
    out.workspace_bytes = [](const Problem*, int32_t) { return SIZE_MAX; };
  }
  return out;
}

ConvscopeConv2dLadder odd_ladder() {
  ConvscopeConv2dLadder out{.name = "odd",
                            .problem = "n=1,c=2,h=6,w=6,k=2,r=3,s=3",
                            .rungs = {{.algorithm = "direct_lesson", .sentence = "the textbook"},
                                      {.algorithm = "odd", .sentence = "nothing"}}};
  if (mistake() == "ladder_name") out.name = "winograd";
  if (mistake() == "ladder_algorithm") out.rungs[1].algorithm = "nobody";
  if (mistake() == "ladder_problem") out.problem = "n=1,c=2,h=1,w=1,k=2,r=3,s=3";
  if (mistake() == "ladder_isa") out.rungs[1].isa = "mmx";
  if (mistake() == "ladder_rungs") out.rungs[0].algorithm = nullptr;
  return out;
}

// Filled in when the file is opened.
const ConvscopeConv2dAlgorithm kAlgorithms[] = {odd_algorithm()};
const ConvscopeConv2dLadder kLadders[] = {odd_ladder()};

}  // namespace
CONVSCOPE_PLUGIN_WITH_LADDERS(kAlgorithms, kLadders)
