// SPDX-License-Identifier: Apache-2.0
// link.h: what lies between two processes: how many bytes pass in a second, and how long the first
// one takes.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
};

// Over Ethernet with TCP, the wire and both programs together. InfiniBand has 2 to 5 us.
constexpr double kDefaultLatencySeconds = 50e-6;

// "25Gb" (bits in a second), "12.5GB" (bytes), "100Gb,5us", "nvlink". A usage error of `option`
// says what is wrong with the text.
CONVSCOPE_API Link parse_link(const std::string& option, const std::string& text);
// "25 Gb/s (3.12 GB/s), 50 us"
CONVSCOPE_API std::string link_text(const Link& link);
// So that parse_link() reads the same: "1.9GB,85us"
CONVSCOPE_API std::string link_words(const Link& link);

// Between two processes of this machine: what one thread copies, into shared memory and out of it.
CONVSCOPE_API Link measured_shared_memory();

}  // namespace convscope
