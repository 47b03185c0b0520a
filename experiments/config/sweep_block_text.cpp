// SPDX-License-Identifier: Apache-2.0
// sweep_block_text.cpp: converts nodes to text, and compares them by meaning.
#include <algorithm>

#include "experiments/config/sweep_block_axes.h"
#include "framework/registry.h"

namespace convscope::config {
namespace {

std::string scalar_text(const Node& node) { return yaml_text(typed_scalar(node)); }

void write_block(const Node& map, std::size_t indent, std::string& out) {
  for (const Node::Entry& entry : map.entries) {
    out += std::string(indent, ' ') + quoted_if_needed(entry.key) + ":";
    const Node& value = entry.value;
    const bool is_map_list = value.kind == Node::Kind::list && !value.items.empty() &&
                             value.items[0].kind == Node::Kind::map;
    if (value.kind == Node::Kind::map && !value.entries.empty()) {
      out += "\n";
      write_block(value, indent + 2, out);
    } else if (is_map_list) {
      out += "\n";
      for (const Node& item : value.items) {
        out += std::string(indent + 2, ' ') + "- " + flow_text(item) + "\n";
      }
    } else {
      out += " " + flow_text(value) + "\n";
    }
  }
}

}  // namespace

std::string flow_text(const Node& node) {
  std::vector<std::string> parts;
  if (node.kind == Node::Kind::list) {
    for (const Node& item : node.items) parts.push_back(flow_text(item));
    return "[" + join(parts) + "]";
  }
  if (node.kind == Node::Kind::map) {
    for (const Node::Entry& entry : node.entries) {
      parts.push_back(quoted_if_needed(entry.key) + ": " + flow_text(entry.value));
    }
    return "{" + join(parts) + "}";
  }
  return scalar_text(node);
}

std::string block_text(const Node& node) {
  std::string out;
  write_block(node, 0, out);
  return out;
}

bool same_value(const Node& a, const Node& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == Node::Kind::list) {
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
  }
  if (a.kind == Node::Kind::map) {
    if (a.entries.size() != b.entries.size()) return false;
    return std::all_of(a.entries.begin(), a.entries.end(), [&](const Node::Entry& entry) {
      const Node::Entry* other = b.find(entry.key);
      return other != nullptr && same_value(entry.value, other->value);
    });
  }
  const auto as_number = [](OptionValue value) -> OptionValue {
    const auto* whole = std::get_if<std::int64_t>(&value);
    return whole != nullptr ? OptionValue(static_cast<double>(*whole)) : value;
  };
  return as_number(typed_scalar(a)) == as_number(typed_scalar(b));
}

}  // namespace convscope::config
