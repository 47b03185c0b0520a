// SPDX-License-Identifier: Apache-2.0
// former_names.cpp: the table of former names, and the warnings.
#include "framework/io/former_names.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <mutex>
#include <set>
#include <span>

#include "framework/check.h"

namespace convscope {
namespace {

struct Renamed {
  std::string_view former, today;
};
// Words that users write.
constexpr Renamed kAlgorithms[] = {
    {"winograd_f4x3_halves", "winograd_f4x3_fp16x3"},
    {"implicit_gemm_tma_halves", "implicit_gemm_tma_fp16x3"},
    {"depthwise_channels_last", "depthwise_nhwc"},
};
constexpr Renamed kLayouts[] = {
    {"blocked", "nchw16c"},
    {"blocked_y", "nchw:nchw16c"},
    {"nchw16c_y", "nchw:nchw16c"},
    {"channels_last", "nhwc"},
};
// Columns and keys of files. A short word counts only with its quotes.
constexpr Renamed kKeys[] = {
    {"\"peer\"", "\"baseline\""},
    {"peer_version", "baseline_version"},
    {"peer_algorithm", "baseline_algorithm"},
    {"peer_median_ms", "baseline_median_ms"},
    {"peer_plain_median_ms", "baseline_plain_median_ms"},
    {"peer_ms", "baseline_ms"},
    {"peer_rows", "baseline_rows"},
    {"ratio_to_peer", "ratio_to_baseline"},
    {"ratio_to_peer_min", "ratio_to_baseline_min"},
    {"ratio_to_peer_plain", "ratio_to_baseline_plain"},
    {"ratio_to_peer_algorithms", "ratio_to_baseline_algorithms"},
    {"convscope peer sparse_net 1", "convscope baseline sparse_net 1"},
    {"\"ceilings\"", "\"peaks\""},
    {"\"gpu_ceilings\"", "\"gpu_peaks\""},
};

bool is_first(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> warned;
  const std::scoped_lock lock(mutex);
  return warned.emplace(name).second;
}

void warn(const std::string& sentence) {
  std::fprintf(stderr, "convscope: warning: [names] %s\n", sentence.c_str());
}

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// Returns where `name` begins as a whole word at or after `from`.
std::size_t find_word(const std::string& text, std::string_view name, std::size_t from) {
  for (;; ++from) {
    from = text.find(name, from);
    if (from == std::string::npos) return from;
    const std::size_t end = from + name.size();
    const bool begins = from == 0 || !is_part_of_word(text[from - 1]);
    if (begins && (end == text.size() || !is_part_of_word(text[end]))) return from;
  }
}

}  // namespace

void warn_of_former_name(std::string_view former, std::string_view today) {
  if (is_first(former)) {
    warn(cat("'", former, "' is now called '", today,
             "'; the next version will not know the former name"));
  }
}

std::string_view todays_name(std::string_view word) {
  using Names = std::span<const Renamed>;
  for (const Names names : {Names(kAlgorithms), Names(kLayouts)}) {
    const auto found = std::ranges::find(names, word, &Renamed::former);
    if (found != names.end()) return found->today;
  }
  return word;
}

std::string_view accepted_name(std::string_view word) {
  const std::string_view today = todays_name(word);
  if (today != word) warn_of_former_name(word, today);
  return today;
}

std::string with_todays_names(std::string text, const std::string& file) {
  const auto replace = [&](std::string_view former, std::string_view today) {
    std::size_t at = find_word(text, former, 0);
    if (at != std::string::npos && is_first("files")) {
      warn(cat(file, " has names of an older version, such as ", former, " for ", today,
               "; the next version will not read them"));
    }
    for (; at != std::string::npos; at = find_word(text, former, at + today.size())) {
      text.replace(at, former.size(), today);
    }
  };
  for (const auto& [former, today] : kAlgorithms) replace(former, today);
  for (const auto& [former, today] : kLayouts) {  // of problems
    replace(cat("layout=", former), cat("layout=", today));
  }
  for (const auto& [former, today] : kKeys) replace(former, today);
  return text;
}

}  // namespace convscope
