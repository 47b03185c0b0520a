// SPDX-License-Identifier: Apache-2.0
// check_lines.h: reports what the policy check:a,b (run a, compare with b) has found in this
// process. There is a line per layer and direction:
//   check  c1 forward: direct against fft, largest difference 3.1e-06 of 1.2 (bound 2e-05), 9 calls
#pragma once

#include <string>
#include <vector>

#include "layers/dispatch/check_results.h"

namespace convscope {

inline std::vector<std::string> check_lines() {
  std::vector<std::string> out;
  for (const CheckResult& result : check_results()) out.push_back("check  " + result.text());
  return out;
}

}  // namespace convscope
