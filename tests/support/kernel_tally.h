// SPDX-License-Identifier: Apache-2.0
// kernel_tally.h: compares the announced kernels with the kernels that ran.
#pragma once

#include <string>
#include <vector>

#include "layers/dispatch/kernel_runs.h"

namespace convscope::testing {

using KernelTally = std::map<KernelRun, std::int64_t>;

// Adds `times` runs of a kernel to the tally. The text may name a chain, as in "lanes_chain:
// c1+c2", which counts as its kernel "lanes_chain". A text "a checked by b" counts for both a and
// b.
inline void add_said(KernelTally& tally, std::string kernel, const std::string& direction,
                     const std::string& problem, std::int64_t times) {
  static const std::string kChecked = " checked by ";
  const std::size_t checked = kernel.find(kChecked);
  if (checked != std::string::npos) {
    tally[{kernel.substr(checked + kChecked.size()), direction, problem}] += times;
    kernel.resize(checked);
  }
  tally[{kernel.substr(0, kernel.find(':')), direction, problem}] += times;
}

// Compares the announced kernel runs `said` with the counted runs `ran`. Returns one sentence for
// each kernel whose numbers of runs differ.
inline std::vector<std::string> differences(const KernelTally& said, const KernelTally& ran) {
  std::vector<std::string> out;
  const auto sentence = [&](const KernelRun& run, std::int64_t times, std::int64_t really) {
    out.push_back(run.kernel + " " + run.direction + " of " + run.problem + ": said to run " +
                  std::to_string(times) + " times, ran " + std::to_string(really) + " times");
  };
  for (const auto& [run, times] : said) {
    const auto at = ran.find(run);
    const std::int64_t really = at == ran.end() ? 0 : at->second;
    if (really != times) sentence(run, times, really);
  }
  for (const auto& [run, times] : ran) {
    if (!said.contains(run)) sentence(run, 0, times);
  }
  return out;
}

}  // namespace convscope::testing
