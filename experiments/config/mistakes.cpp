// SPDX-License-Identifier: Apache-2.0
// mistakes.cpp: the sentences of a config's mistakes, each with its place.
#include <algorithm>

#include "experiments/config/document.h"
#include "experiments/config/resolve.h"
#include "framework/check.h"
#include "framework/registry.h"

namespace convscope::config {

std::string Origin::prefix() const {
  const std::string name = source == nullptr ? "config" : *source;
  if (is_override) return cat("error: override '", printable(name), "': ");
  if (line <= 0) return cat(name, ": error: ");
  return cat(name, ":", line, ":", column, ": error: ");
}

std::string Origin::comment() const {
  if (is_override) return "override";
  return cat(source == nullptr ? "config" : *source, ":", line);
}

const Node::Entry* Node::find(std::string_view key) const {
  for (const Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

Node::Entry* Node::find(std::string_view key) {
  for (Entry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

void Mistakes::add(const Origin& origin, std::string_view sentence) {
  constexpr std::size_t kLongest = 1000;
  std::string clean(sentence.substr(0, kLongest));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  if (sentence.size() > kLongest) clean += "...";
  list_.push_back({origin, clean});
}

void Mistakes::throw_if_any() const {
  if (list_.empty()) return;
  std::vector<Mistake> sorted = list_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    if (a.origin.layer != b.origin.layer) return a.origin.layer < b.origin.layer;
    if (a.origin.line != b.origin.line) return a.origin.line < b.origin.line;
    return a.origin.column < b.origin.column;
  });
  std::vector<std::string> lines;
  for (const Mistake& mistake : sorted) {
    std::string line = mistake.origin.prefix() + mistake.sentence;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  constexpr std::size_t kMaxLines = 50;  // more lines do not help
  const std::size_t all = lines.size();
  if (all > kMaxLines) {
    lines.resize(kMaxLines);
    lines.push_back(cat("... and ", all - kMaxLines, " more"));
  }
  fail(ErrorKind::kConfig, "config", join(lines, "\n"));
}

std::string sentence_of(const Error& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace convscope::config
