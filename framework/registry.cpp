// SPDX-License-Identifier: Apache-2.0
// registry.cpp: a generic table that maps names to entries: algorithms, layers, optimisers,
// schedules, data sets.
#include "framework/registry.h"

#include <algorithm>

namespace convscope {
namespace {

// Returns the edit distance with swaps of neighbours (Damerau 1964, Levenshtein 1966).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> d((a.size() + 1) * width);
  for (std::size_t i = 0; i <= a.size(); ++i) d[i * width] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t best = d[(i - 1) * width + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      best = std::min({best, d[(i - 1) * width + j] + 1, d[i * width + j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        best = std::min(best, d[(i - 2) * width + j - 2] + 1);
      }
      d[i * width + j] = best;
    }
  }
  return d.back();
}

constexpr std::size_t kShortestBeginning = 4;

// Returns the shortest known word that shares a beginning with `word` (im2col_gemm for im2col), or
// "" when there is none.
std::string with_beginning(std::string_view word, const std::vector<std::string>& known) {
  std::string shortest;
  for (const std::string& candidate : known) {
    if (candidate.size() <= word.size()) continue;
    std::size_t distance = word.size();
    for (const std::size_t length : {word.size() - 1, word.size(), word.size() + 1}) {
      distance =
          std::min(distance, edit_distance(word, std::string_view(candidate).substr(0, length)));
    }
    if (distance > word.size() / 4) continue;
    if (shortest.empty() || candidate.size() < shortest.size()) shortest = candidate;
  }
  return shortest;
}

}  // namespace

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;  // farther does not help
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  if (nearest.empty() && word.size() >= kShortestBeginning) return with_beginning(word, known);
  return nearest;
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += separator;
    out += words[i];
  }
  return out;
}

}  // namespace convscope
