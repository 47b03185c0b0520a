// SPDX-License-Identifier: Apache-2.0
// document.cpp: converts the events of yaml-cpp's parser to nodes. yaml-cpp's own Node class keeps
// the first of two equal keys silently and forgets whether a scalar was quoted.
#include "experiments/config/document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>

#include "framework/check.h"

namespace convscope::config {
namespace {

// Ends the parsing when a mistake makes the rest of the text meaningless.
struct StopParsing {};

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const Origin& origin, Mistakes& mistakes) : base_(origin), mistakes_(mistakes) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) stop(mark, "expected one YAML document, got a second one ('---')");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(leaf(mark, Node::Kind::null));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    stop(mark, "expected no alias (*name): a config contains each value, or uses 'extends'");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!") refuse_tag(mark);
    Node node = leaf(mark, Node::Kind::scalar);
    node.text = value;
    node.quoted = tag == "!";
    if (!node.quoted && typed_scalar(node).index() == 0) node.kind = Node::Kind::null;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::list);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Node::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    Node node;
    bool has_key = false;
    bool keep = true;  // false: the value of a duplicate or refused key
    std::string key;
    Origin key_origin;
  };

  Origin at(const YAML::Mark& mark) const {
    Origin origin = base_;
    origin.line = mark.line + 1;
    origin.column = mark.column + 1;
    return origin;
  }
  Node leaf(const YAML::Mark& mark, Node::Kind kind) {
    if (++nodes_ > kMaxNodes) stop(mark, cat("expected at most ", kMaxNodes, " values"));
    Node node;
    node.kind = kind;
    node.origin = at(mark);
    return node;
  }

  [[noreturn]] void stop(const YAML::Mark& mark, std::string_view sentence) {
    mistakes_.add(at(mark), sentence);
    throw StopParsing{};
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) {
      stop(mark, "expected no anchor (&name): a config contains each value, or uses 'extends'");
    }
  }
  void refuse_tag(const YAML::Mark& mark) {
    stop(mark, "expected no tag (!name): the type of a value follows from its key");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            Node::Kind kind) {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?" && tag != "!") refuse_tag(mark);
    if (static_cast<int>(levels_.size()) >= kMaxDepth) {
      stop(mark, cat("expected at most ", kMaxDepth, " levels of lists and maps"));
    }
    levels_.push_back({leaf(mark, kind), false, true, {}, {}});
  }

  void close() {
    Node node = std::move(levels_.back().node);
    levels_.pop_back();
    add(std::move(node));
  }

  void add(Node node) {
    if (levels_.empty()) {
      root_ = std::move(node);
      return;
    }
    Level& level = levels_.back();
    if (level.node.kind == Node::Kind::list) {
      level.node.items.push_back(std::move(node));
    } else if (!level.has_key) {
      take_key(level, node);
    } else {
      if (level.keep) {
        level.node.entries.push_back({level.key, level.key_origin, std::move(node)});
      }
      level.has_key = false;
    }
  }

  void take_key(Level& level, const Node& node) {
    level.has_key = true;
    level.keep = false;
    if (node.kind != Node::Kind::scalar) {
      mistakes_.add(node.origin, cat("expected a word as key, got ", describe(node)));
    } else if (node.text == "<<" && !node.quoted) {
      mistakes_.add(node.origin, "expected no merge key (<<); use 'extends' to build on a file");
    } else if (const Node::Entry* first = level.node.find(node.text)) {
      const std::string where =
          base_.is_override ? "" : cat(", first given in line ", first->origin.line);
      mistakes_.add_and_go_on(node.origin,
                              cat("duplicate key '", printable(node.text), "'", where));
    } else {
      level.keep = true;
      level.key = node.text;
      level.key_origin = node.origin;
    }
  }

  Origin base_;
  Mistakes& mistakes_;
  std::vector<Level> levels_;
  Node root_;
  int documents_ = 0;
  int nodes_ = 0;
};

// Returns the bytes of the UTF-8 character at `text[i]`, or 0 when it is invalid.
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
  const unsigned char lead = byte(i);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  const unsigned char second = byte(i + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

// Refuses texts whose encoding yaml-cpp would guess, and control characters that it would
// interpret.
bool is_readable_text(std::string_view text, const Origin& origin, Mistakes& mistakes) {
  Origin here = origin;
  here.line = here.column = 1;
  if (text.size() > kMaxTextBytes) {
    mistakes.add(here,
                 cat("expected a config of at most ", kMaxTextBytes, " bytes, got ", text.size()));
    return false;
  }
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(text, i);
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control =
        (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F;
    if (length == 0 || control) {
      mistakes.add(here,
                   cat("expected ", control ? "text without control characters" : "UTF-8 text",
                       ", got the byte ", static_cast<int>(byte)));
      return false;
    }
    i += length;
    ++here.column;
    if (byte == '\n') {
      ++here.line;
      here.column = 1;
    }
  }
  return true;
}

// Moves `place` to a tab in the indentation of its line or of the previous line: such a tab is the
// usual cause of an error there. Returns false when there is none.
bool move_to_tab(std::string_view text, Origin& place) {
  int line = 1;
  for (std::size_t begin = 0; begin < text.size() && line <= place.line; ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view here = text.substr(begin, end - begin);
    const std::size_t tab = here.substr(0, here.find_first_not_of(" \t")).find('\t');
    if (line >= place.line - 1 && tab != std::string_view::npos) {
      place.line = line;
      place.column = static_cast<int>(tab) + 1;
      return true;
    }
    begin = end + 1;
  }
  return false;
}

// What flow_extent() finds about the flow value ([...], {...} or quotes) at the start of a text.
struct FlowExtent {
  std::size_t end = std::string_view::npos;  // after the closing mark; npos: no closing mark
  bool has_comment = false;
};

// Returns the position after the closing quote; text[i] is the opening quote.
std::size_t end_of_quotes(std::string_view text, std::size_t i) {
  const char quote = text[i];
  for (++i; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      const bool doubled = quote == '\'' && text.substr(i + 1).starts_with(quote);
      if (!doubled) return i + 1;
      ++i;
    }
  }
  return std::string_view::npos;
}

FlowExtent flow_extent(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  FlowExtent out;
  int depth = 0;
  bool begins = true;  // a value may begin here; later quotes are letters
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (begins && (c == '"' || c == '\'')) {
      i = end_of_quotes(text, i);
      begins = false;
      if (i == std::string_view::npos) return out;
    } else {
      if (c == '#' && (begins || is_blank(text[i - 1]))) out.has_comment = true;
      if (c == '[' || c == '{') ++depth;
      if (c == ']' || c == '}') --depth;
      const bool colon = c == ':' && i + 1 < text.size() && is_blank(text[i + 1]);
      if (!is_blank(c)) begins = c == '[' || c == '{' || c == ',' || colon;
      ++i;
    }
    if (depth <= 0) {
      out.end = i;
      return out;
    }
  }
  return out;
}

}  // namespace

Node parse_document(std::string_view text, const Origin& origin, Mistakes& mistakes) {
  TreeBuilder builder(origin, mistakes);
  if (is_readable_text(text, origin, mistakes)) {
    try {
      std::istringstream stream{std::string(text)};
      YAML::Parser parser(stream);
      while (parser.HandleNextDocument(builder)) {
      }
    } catch (const StopParsing&) {
    } catch (const YAML::Exception& error) {
      Origin here = origin;
      here.line = error.mark.is_null() ? 1 : error.mark.line + 1;
      here.column = error.mark.is_null() ? 1 : error.mark.column + 1;
      if (move_to_tab(text, here)) {
        mistakes.add(here, "expected spaces as indentation, got a tab");
      } else {
        mistakes.add(here, cat("expected YAML, got: ", printable(error.msg)));
      }
    }
  }
  Node root = builder.take();
  if (root.origin.source == nullptr) {
    root.origin = origin;
    if (!origin.is_override) root.origin.line = root.origin.column = 1;
  }
  return root;
}

Node parse_override_value(std::string_view text, const Origin& origin, Mistakes& mistakes) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (!text.empty() && std::string_view("[{\"'").find(text[0]) != std::string_view::npos) {
    const FlowExtent extent = flow_extent(text);
    constexpr std::string_view kQuotes = "; text with such characters needs its own quotes";
    if (extent.has_comment) {
      mistakes.add(origin, cat("expected one value, got a comment ('#') in it", kQuotes));
      return {};
    }
    if (extent.end < text.size()) {
      mistakes.add(origin, cat("expected one value, got '", printable(text.substr(0, extent.end)),
                               "' and then '", printable(text.substr(extent.end)), "'", kQuotes));
      return {};
    }
    return parse_document(text, origin, mistakes);
  }
  Node node;
  node.origin = origin;
  node.origin.line = node.origin.column = 1;
  if (!is_readable_text(text, origin, mistakes)) return node;
  node.kind = Node::Kind::scalar;
  node.text = text;
  if (typed_scalar(node).index() == 0) node.kind = Node::Kind::null;
  return node;
}

}  // namespace convscope::config
