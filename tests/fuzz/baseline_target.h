// SPDX-License-Identifier: Apache-2.0
// baseline_target.h: a fuzz target in the form of a plug-in (experiments/bench/baseline.h). The
// fuzzer's bytes determine the plug-in's table, texts, numbers and results. The plug-in never
// writes beyond a buffer, because the program could not prevent such a write.
// tests/experiments/bench/bad_plugins_test.cpp covers other defects.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "experiments/bench/baseline_check.h"
#include "experiments/bench/bench_report.h"
#include "experiments/bench/conv2d_bench.h"
#include "framework/check.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// Holds the bytes that are not used yet. If none are left, baseline_byte() returns 0.
inline Bytes& baseline_bytes() {
  static Bytes left;
  return left;
}
inline std::uint8_t baseline_byte() {
  Bytes& left = baseline_bytes();
  if (left.empty()) return 0;
  const std::uint8_t out = left[0];
  left = left.subspan(1);
  return out;
}
inline std::uint64_t baseline_number() {
  std::uint64_t out = 0;
  for (int i = 0; i < 8; ++i) out = out << 8 | baseline_byte();
  return out;
}
// Returns false for one byte in eight: the answer is missing.
inline bool baseline_has() { return baseline_byte() % 8 != 7; }
inline const char* baseline_text() {
  static const char* const texts[] = {"direct", "", "\x1b[31m", "a,b|c\n", "\xff\xfe"};
  return baseline_has() ? texts[baseline_byte() % 5] : nullptr;
}
inline void baseline_may_throw() {
  if (baseline_byte() == 0xEE) throw std::runtime_error("on purpose");
}

template <class Function>
Function baseline_function(Function function) {
  return baseline_byte() == 0xDD ? nullptr : function;
}

inline const ConvscopeBaseline* drawn_baseline() {
  static ConvscopeBaseline baseline;
  static ConvscopeBaselineVariant variants[4];
  if (baseline_byte() == 0xCC) return nullptr;
  baseline = {};
  baseline.abi =
      baseline_has() ? CONVSCOPE_BASELINE_ABI : static_cast<std::int32_t>(baseline_number());
  baseline.name = baseline_text();
  baseline.version = baseline_text();
  baseline.device = baseline_text();
  baseline.variant_count = baseline_has() ? baseline_byte() % 5
                                          : static_cast<std::int32_t>(baseline_number() | 1u << 31);
  for (ConvscopeBaselineVariant& variant : variants) {
    variant.algorithm = baseline_text();
    variant.layout = baseline_byte() % 3;
    variant.error_growth = baseline_has() ? 4 : std::bit_cast<double>(baseline_number());
  }
  baseline.variants = baseline_byte() == 0xBB ? nullptr : variants;
  baseline.set_threads = baseline_function(+[](std::int32_t) { baseline_may_throw(); });
  baseline.create =
      baseline_function(+[](const ConvscopeBaselineProblem*, std::int32_t,
                            const ConvscopeBaselineInputs*, char* reason, std::size_t bytes) {
        baseline_may_throw();
        static int something = 0;
        if (baseline_has()) return reinterpret_cast<ConvscopeBaselineCase*>(&something);
        std::memset(reason, baseline_byte(), baseline_number() % (bytes + 1));
        return static_cast<ConvscopeBaselineCase*>(nullptr);
      });
  baseline.run = baseline_function(+[](ConvscopeBaselineCase*) -> std::int32_t {
    baseline_may_throw();
    return baseline_has() ? 0 : -1;
  });
  baseline.read = baseline_function(+[](ConvscopeBaselineCase*, void* output) -> std::int32_t {
    baseline_may_throw();
    *static_cast<float*>(output) =
        std::bit_cast<float>(static_cast<std::uint32_t>(baseline_number()));
    return baseline_has() ? 0 : 1;
  });
  baseline.implementation = baseline_function(+[](ConvscopeBaselineCase*) {
    baseline_may_throw();
    return baseline_text();
  });
  baseline.workspace_bytes = baseline_function(+[](ConvscopeBaselineCase*) -> std::size_t {
    baseline_may_throw();
    return baseline_number();
  });
  baseline.destroy = baseline_function(+[](ConvscopeBaselineCase*) { baseline_may_throw(); });
  return &baseline;
}

inline void bench_drawn_baseline(Bytes bytes) {
  baseline_bytes() = bytes;
  const ConvscopeBaseline* const baseline = drawn_baseline();
  if (!problem_of_baseline(baseline).empty()) return;
  Conv2dBenchOptions options;
  options.min_seconds = 1e-9;
  options.least_samples = 1;
  options.baseline = baseline;
  const Conv2dBenchGroup group = bench_conv2d(options, Conv2dProblem::parse("n=1,c=1,h=1,w=1,k=1"),
                                              Direction::forward, [](const std::string&) {});
  bench_table(group);
  BenchReportSettings settings;
  settings.baseline_name = baseline->name;
  settings.baseline_version = baseline->version;
  bench_json({group}, settings);
}

inline std::vector<FuzzTarget> baseline_targets() {
  return {{"baseline", bench_drawn_baseline, [] {
             return std::vector<std::string>{std::string(64, '\1'),
                                             std::string("\0\0\0\0\0\0\0\0\0\4", 10)};
           }}};
}

}  // namespace convscope::testing
