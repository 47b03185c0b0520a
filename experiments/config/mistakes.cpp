// SPDX-License-Identifier: Apache-2.0
// mistakes.cpp: the sentences of a config's mistakes, each with its place.
#include <algorithm>

#include "experiments/config/document.h"
#include "experiments/config/resolve.h"
#include "framework/check.h"
#include "framework/registry.h"

namespace convscope::config {
namespace {

// Returns the types for which the block has the key: "mnist" for block "data" and key "root",
// because of "data[mnist].root".
std::vector<std::string> types_with(const std::string& block, const std::string& key) {
  std::vector<std::string> out;
  for (const ConfigKey& known : config_keys()) {
    const std::size_t open = known.path.find('['), close = known.path.find("].");
    if (close == std::string::npos || open + 1 == close) continue;
    if (known.path.substr(0, open) != block || known.path.substr(close + 2) != key) continue;
    out.push_back(known.path.substr(open + 1, close - open - 1));
  }
  return out;
}

}  // namespace

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

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::string hint_for(const Node::Entry& entry, const std::string& path,
                     const std::vector<std::string>& known) {
  if (entry.key.size() <= 64) {
    const std::string near = nearest_word(entry.key, known);
    if (!near.empty()) {
      return cat("; did you mean '", entry.origin.is_dotted ? joined(path, near) : near, "'?");
    }
    const std::vector<std::string> owners = types_with(path, entry.key);
    if (!owners.empty()) {
      return cat("; it belongs to ", join(owners), " (known here: ", join(known), ")");
    }
    std::string elsewhere;  // a known key in the wrong block
    for (const ConfigKey& key : config_keys()) {
      if (key.field.name != entry.key || key.path.find('[') != std::string::npos) continue;
      if (!elsewhere.empty()) return cat(" (known: ", join(known), ")");
      elsewhere = key.path;
    }
    if (!elsewhere.empty()) return cat("; did you mean '", elsewhere, "'?");
  }
  return cat(" (known: ", join(known), ")");
}

const Origin& blamed(const Node& block, const std::string& sentence) {
  const auto names = [&](const std::string& key) {
    constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
    for (std::size_t at = sentence.find(key); at != std::string::npos;
         at = sentence.find(key, at + 1)) {
      const std::size_t end = at + key.size();
      const bool begins = at == 0 || kLetters.find(sentence[at - 1]) == std::string_view::npos;
      const bool ends =
          end == sentence.size() || kLetters.find(sentence[end]) == std::string_view::npos;
      if (begins && ends) return true;
    }
    return false;
  };
  const Origin* out = nullptr;
  for (const Node::Entry& entry : block.entries) {
    const Origin& origin = entry.value.origin;
    if (names(entry.key) && (out == nullptr || origin.layer >= out->layer)) out = &origin;
  }
  return out != nullptr ? *out : block.origin;
}

}  // namespace convscope::config
