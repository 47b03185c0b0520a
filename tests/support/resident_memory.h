// SPDX-License-Identifier: Apache-2.0
// resident_memory.h: the memory that this process uses, as the operating system reports it.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace convscope::testing {

// Returns a value of /proc/self/status in bytes.
inline std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// Returns the peak memory while a function runs, minus the memory in use before.
template <class F>
std::int64_t extra_resident_bytes(F&& run) {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const std::int64_t before = status_bytes("VmRSS");
  run();
  return status_bytes("VmHWM") - before;
}

}  // namespace convscope::testing
