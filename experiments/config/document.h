// SPDX-License-Identifier: Apache-2.0
// document.h: a YAML text as a tree of nodes with their positions in the text, and the list of
// mistakes. Stricter than YAML: duplicate keys, merge keys (<<), anchors, aliases, tags and second
// documents are mistakes. Only this folder includes this header.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options.h"

namespace convscope::config {

// A position in a file, or an override "key=value" of the command line.
struct Origin {
  std::shared_ptr<const std::string> source;  // file name, or the override's text
  int line = 0, column = 0;                   // from 1; 0 = the whole file
  int layer = 0;  // counts up from the innermost `extends`; overrides come last
  bool is_override = false;
  bool is_dotted = false;  // an override's key is a whole path, so hints name paths

  std::string prefix() const;   // "mnist.yaml:3:5: error: " or "error: override 'a=b': "
  std::string comment() const;  // "mnist.yaml:3" or "override"
};

struct Node {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  Origin origin;
  std::string text;            // for a scalar
  bool quoted = false;         // a quoted or block scalar is always text
  std::vector<Node> items;     // for a list
  std::vector<Entry> entries;  // for a map, in file order

  const Entry* find(std::string_view key) const;
  Entry* find(std::string_view key);
};

struct Node::Entry {
  std::string key;
  Origin origin;  // place of the key
  Node value;
};

// All mistakes of one load, reported together.
class Mistakes {
 public:
  void add(const Origin& origin, std::string_view sentence);
  // Adds a mistake after which the text stays readable; parsing continues.
  void add_and_go_on(const Origin& origin, std::string_view sentence) {
    add(origin, sentence);
    ++harmless_;
  }
  bool empty() const { return list_.empty(); }
  std::size_t count() const { return list_.size(); }
  // Returns false after a mistake that may hide a part of the text.
  bool all_harmless() const { return harmless_ == list_.size(); }
  // Throws an Error of kind kConfig with one line per mistake, in the order of the files; a mistake
  // found twice (by two members of a sweep) is reported once.
  void throw_if_any() const;

 private:
  struct Mistake {
    Origin origin;
    std::string sentence;
  };
  std::vector<Mistake> list_;
  std::size_t harmless_ = 0;
};

// Limits that keep hostile texts cheap; configs written by hand are far below them.
inline constexpr std::size_t kMaxTextBytes = 256 * 1024;
inline constexpr int kMaxNodes = 20000;
inline constexpr int kMaxDepth = 32;

// Parses the text; an empty file is an empty map. A syntax mistake ends the parsing, and the tree
// so far is returned.
Node parse_document(std::string_view text, const Origin& origin, Mistakes& mistakes);

// Parses the value of an override: a YAML flow value ([1, 2], {a: 1}, "1"), else plain text.
// Comments, tags, anchors and document marks have no meaning here.
Node parse_override_value(std::string_view text, const Origin& origin, Mistakes& mistakes);

// Returns the scalar's value in YAML 1.2's core schema: null, true, 12, 0x1f, 1e-3, .inf, text.
OptionValue typed_scalar(const Node& scalar);
// Returns "a map", "a list" or "'text'" for messages, cut short and without control characters.
std::string describe(const Node& node);
std::string printable(std::string_view text);
// Returns the text as a YAML scalar that YAML 1.1 and 1.2 read back unchanged, in block and flow
// style; quoted only if necessary.
std::string quoted_if_needed(const std::string& text);
// Returns any value as YAML. The program writes all YAML with yaml_text() and quoted_if_needed().
std::string yaml_text(const OptionValue& value);

}  // namespace convscope::config
