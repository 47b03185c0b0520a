// SPDX-License-Identifier: Apache-2.0
// resident_memory.h: how much memory this process really takes, as the system counts it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace convscope::testing {

// A line of /proc/self/status, in bytes.
inline std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// What a function takes at its highest beyond what is taken before it.
template <class F>
std::int64_t extra_resident_bytes(F&& run) {
  std::ofstream("/proc/self/clear_refs") << "5";  // the highest value begins anew
  const std::int64_t before = status_bytes("VmRSS");
  run();
  return status_bytes("VmHWM") - before;
}

}  // namespace convscope::testing
