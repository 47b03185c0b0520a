// SPDX-License-Identifier: Apache-2.0
// targets.h: lists the parsers of all untrusted files. libFuzzer runs them (fuzz_main.cpp), and
// each test run has a short test of them (tests/datasets/hostile_bytes_test.cpp). A parser may
// throw convscope::Error and nothing else.
#pragma once

#include "tests/fuzz/baseline_target.h"
#include "tests/fuzz/checkpoint_target.h"
#include "tests/fuzz/config_targets.h"
#include "tests/fuzz/format_targets.h"
#include "tests/fuzz/quantized_target.h"
#include "tests/fuzz/report_targets.h"

namespace convscope::testing {

inline const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = [] {
    std::vector<FuzzTarget> out;
    for (const auto& part : {format_targets(), config_targets(), report_targets(),
                             checkpoint_targets(), quantized_targets(), baseline_targets()}) {
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }();
  return targets;
}

inline const FuzzTarget* find_fuzz_target(std::string_view name) {
  for (const FuzzTarget& target : fuzz_targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

}  // namespace convscope::testing
