// SPDX-License-Identifier: Apache-2.0
// link.cpp: the connection between two processes: bandwidth in bytes per second and latency.
#include "experiments/explain/ranks/link.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "experiments/explain/text_layout.h"
#include "framework/check.h"

namespace convscope {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
// Units are decimal, as in the specifications of networks. A small b is a bit.
constexpr Unit kRates[] = {{"Mb", 1e6 / 8}, {"Gb", 1e9 / 8}, {"Tb", 1e12 / 8},
                           {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
// NVLink: an H100 has 18 links with 25 GB/s in each direction. The latency of NCCL is about 10 us.
constexpr Link kNvlink = {.bytes_per_s = 450e9, .latency_s = 10e-6};

// Parses a number and its unit; false for anything else.
template <std::size_t N>
bool parse_quantity(std::string_view text, const Unit (&units)[N], double& value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return false;
  const std::string_view word = text.substr(static_cast<std::size_t>(end - text.data()));
  const Unit* const unit = std::ranges::find(units, word, &Unit::name);
  if (unit == std::end(units)) return false;
  value *= unit->factor;
  return true;
}

}  // namespace

Link parse_link(const std::string& option, const std::string& text) {
  if (text == "nvlink") return kNvlink;
  const std::size_t comma = text.find(',');
  Link out{.latency_s = kDefaultLatencySeconds};
  if (!parse_quantity(text.substr(0, comma), kRates, out.bytes_per_s) || out.bytes_per_s == 0) {
    fail("explain", cat("expected ", option,
                        " with a bandwidth per second, as 25Gb (bits), 12.5GB (bytes; units Mb, "
                        "Gb, Tb, MB, GB, TB) or nvlink, got '",
                        text, "'"));
  }
  if (comma == std::string::npos) return out;
  if (!parse_quantity(text.substr(comma + 1), kTimes, out.latency_s)) {
    fail("explain",
         cat("expected ", option,
             " with a latency after the comma, as 25Gb,20us (units ns, us, ms, s), got '", text,
             "'"));
  }
  return out;
}

std::string link_text(const Link& link) {
  const double gigabytes = link.bytes_per_s * 1e-9;
  return cat(number_text("%.3g", 8 * gigabytes), " Gb/s (", number_text("%.3g", gigabytes),
             " GB/s), ", number_text("%.3g", link.latency_s * 1e6), " us");
}

std::string link_words(const Link& link) {
  // Three significant digits without an exponent, because parse_link() rejects exponents.
  const auto digits = [](double value) {
    const double size = value > 0 ? std::floor(std::log10(value)) : 0;
    return number_text(size >= 2   ? "%.0f"
                       : size >= 1 ? "%.1f"
                       : size >= 0 ? "%.2f"
                                   : "%.3f",
                       value);
  };
  const bool small = link.bytes_per_s < 1e9;
  return cat(digits(link.bytes_per_s * (small ? 1e-6 : 1e-9)), small ? "MB," : "GB,",
             digits(link.latency_s * 1e6), "us");
}

Link measured_shared_memory() {
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBytes) / seconds.count());
  }
  return {.bytes_per_s = best / 2, .latency_s = kDefaultLatencySeconds};
}

}  // namespace convscope
