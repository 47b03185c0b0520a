// SPDX-License-Identifier: Apache-2.0
// process_memory.cpp: memory use of this process as the system reports it (Linux).
#include "experiments/bench/process_memory.h"

#include <fstream>
#include <string>

namespace convscope {

std::int64_t process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (!line.starts_with("VmHWM:")) continue;
    return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;  // "VmHWM:    12345 kB"
  }
  return 0;
}

void reset_process_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";  // proc(5): resets the peak of the resident set
}

}  // namespace convscope
