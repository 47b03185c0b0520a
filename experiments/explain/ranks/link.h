// SPDX-License-Identifier: Apache-2.0
// link.h: the connection between two processes: bandwidth in bytes per second and latency.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
};

// The latency of TCP over Ethernet, including the time in both programs. InfiniBand has 2 to 5 us.
constexpr double kDefaultLatencySeconds = 50e-6;

// Parses "25Gb" (bits per second), "12.5GB" (bytes), "100Gb,5us" or "nvlink". Throws a usage error
// that names `option` and what is wrong.
CONVSCOPE_API Link parse_link(const std::string& option, const std::string& text);
// Returns "25 Gb/s (3.12 GB/s), 50 us".
CONVSCOPE_API std::string link_text(const Link& link);
// Returns text that parse_link() reads: "1.9GB,85us"
CONVSCOPE_API std::string link_words(const Link& link);

// Estimates the link between two processes of this machine: a thread copies into shared memory and
// out of it.
CONVSCOPE_API Link measured_shared_memory();

}  // namespace convscope
