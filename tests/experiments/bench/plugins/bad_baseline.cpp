// SPDX-License-Identifier: Apache-2.0
// bad_baseline.cpp: a plug-in with one mistake. The macro BAD_BASELINE names the mistake, and the
// file is built once for each.
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "experiments/bench/baseline.h"

namespace {

constexpr std::string_view kMistake = BAD_BASELINE;

ConvscopeBaselineCase* create(const ConvscopeBaselineProblem* z, int32_t,
                              const ConvscopeBaselineInputs*, char* reason, size_t bytes) {
  std::snprintf(reason, bytes, "direction %d of x [%d,%d,%d,%d], y [%d,%d,%d,%d]", z->direction,
                int(z->n), int(z->c), int(z->h), int(z->w), int(z->n), int(z->k), int(z->p),
                int(z->q));
  return nullptr;
}

ConvscopeBaseline table() {
  static const ConvscopeBaselineVariant variants[] = {{"direct", CONVSCOPE_BASELINE_OWN_LAYOUT, 4},
                                                      {nullptr, CONVSCOPE_BASELINE_PLAIN, 4}};
  ConvscopeBaseline out{};
  out.abi = CONVSCOPE_BASELINE_ABI;
  if (kMistake == "other_version") out.abi = CONVSCOPE_BASELINE_ABI + 1;  // the rest stays empty
  if (kMistake == "other_version" || kMistake == "no_functions") return out;
  out.name = "bad";
  out.version = "1";
  out.device = "cpu";
  out.variant_count = kMistake == "many_variants" ? 2'000'000'000 : kMistake == "says" ? 1 : 2;
  out.variants = kMistake == "no_variants" ? nullptr : variants;
  out.set_threads = [](int32_t) {};
  out.create = create;
  out.run = [](ConvscopeBaselineCase*) -> int32_t { return 1; };
  out.read = [](ConvscopeBaselineCase*, void*) -> int32_t { return 1; };
  out.implementation = [](ConvscopeBaselineCase*) { return ""; };
  out.workspace_bytes = [](ConvscopeBaselineCase*) -> size_t { return 0; };
  out.destroy = [](ConvscopeBaselineCase*) {};
  return out;
}

}  // namespace

#ifndef BAD_BASELINE_WITHOUT_ENTRY
extern "C" __attribute__((visibility("default"))) const ConvscopeBaseline* convscope_baseline(
    void) {
  if (kMistake == "throws") throw std::runtime_error("on purpose");
  if (kMistake == "throws_a_number") throw 7;
  if (kMistake == "no_table") return nullptr;
  static const ConvscopeBaseline baseline = table();
  return &baseline;
}
#endif
