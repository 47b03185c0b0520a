// SPDX-License-Identifier: Apache-2.0
// document.h: one YAML text as a tree of nodes that know where they stand, and the list of
// mistakes found so far. Stricter than YAML: duplicate keys, merge keys (<<), anchors, aliases,
// tags and second documents are mistakes. Nothing outside this folder includes it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options.h"

namespace convscope::config {

// A place in a file, or the override "key=value" given on the command line.
struct Origin {
  std::shared_ptr<const std::string> source;  // file name, or the override's text
  int line = 0, column = 0;                   // from 1; 0 = the whole file
  int layer = 0;  // files count up from the innermost `extends`, overrides come after
  bool is_override = false;
  bool is_dotted = false;  // the key is a whole path, so a hint at another key must be one too

  std::string prefix() const;   // "mnist.yaml:3:5: error: " or "error: override 'a=b': "
  std::string comment() const;  // "mnist.yaml:3" or "override"
};

struct Node {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  Origin origin;
  std::string text;            // of a scalar
  bool quoted = false;         // a quoted or block scalar is always text
  std::vector<Node> items;     // of a list
  std::vector<Entry> entries;  // of a map, in file order

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Node::Entry {
  std::string key;
  Origin origin;  // of the key
  Node value;
};

// All mistakes of one load, reported in one go.
class Mistakes {
 public:
  void add(const Origin& origin, std::string_view sentence);
  // A mistake that leaves the rest of the text readable: what follows is checked as well.
  void add_and_go_on(const Origin& origin, std::string_view sentence) {
    add(origin, sentence);
    ++harmless_;
  }
  bool empty() const { return list_.empty(); }
  // False after a mistake that may hide a part of the text.
  bool all_harmless() const { return harmless_ == list_.size(); }
  // Throws an Error of kind kConfig with one line for each mistake, in the order of the files; a
  // mistake that was met twice (by two members of a sweep) is one.
  void throw_if_any() const;

 private:
  struct Mistake {
    Origin origin;
    std::string sentence;
  };
  std::vector<Mistake> list_;
  std::size_t harmless_ = 0;
};

// A config is written by hand; these bounds keep hostile texts cheap.
inline constexpr std::size_t kMaxTextBytes = 256 * 1024;
inline constexpr int kMaxNodes = 20000;
inline constexpr int kMaxDepth = 32;

// Parses the text; an empty text is an empty map when it is a file. Mistakes of syntax end the
// parsing: what was read until there is returned.
Node parse_document(std::string_view text, const Origin& origin, Mistakes& mistakes);

// The value of an override: a YAML flow value ([1, 2], {a: 1}, "1"), else plain text as it stands.
// Comments, tags, anchors and document marks mean nothing here.
Node parse_override_value(std::string_view text, const Origin& origin, Mistakes& mistakes);

// What a scalar means in YAML 1.2's core schema: null, true, 12, 0x1f, 1e-3, .inf, text.
OptionValue typed_scalar(const Node& scalar);
// "a map", "a list", "'text'": for messages; cut short and without control characters.
std::string describe(const Node& node);
std::string printable(std::string_view text);
// The text as a YAML scalar, in a block or a flow, that YAML 1.1 and 1.2 read back as the same
// text; quoted only when it must be.
std::string quoted_if_needed(const std::string& text);
// The same for any value. All YAML that the program writes is made of these two.
std::string yaml_text(const OptionValue& value);

}  // namespace convscope::config
