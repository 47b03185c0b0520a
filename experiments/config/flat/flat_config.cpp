// SPDX-License-Identifier: Apache-2.0
// flat_config.cpp: the values of a config by their dotted keys, for tables.
#include "experiments/config/flat/flat_config.h"

#include <algorithm>
#include <set>

#include "experiments/config/document.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/sweep_block_axes.h"

namespace convscope {
namespace {

using config::Node;

void flatten(const Node& node, const std::string& path, FlatConfig& out) {
  const auto inside = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  const auto is_map = [](const Node& item) { return item.kind == Node::Kind::map; };
  if (node.kind == Node::Kind::map) {
    for (const Node::Entry& entry : node.entries) flatten(entry.value, inside(entry.key), out);
  } else if (node.kind == Node::Kind::list && std::ranges::any_of(node.items, is_map)) {
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      flatten(node.items[i], inside(std::to_string(i)), out);
    }
  } else if (path.empty()) {
    return;  // a text that is a single value has no key
  } else if (node.kind == Node::Kind::list) {
    out[path] = config::flow_text(node);
  } else {
    out[path] = node.kind == Node::Kind::null ? OptionValue() : config::typed_scalar(node);
  }
}

// Gives `train.loss` a value in each form of the key: the type of the loss, or the types of a sum.
void name_losses(FlatConfig& flat) {
  std::vector<std::string> types;
  if (const auto one = flat.extract("train.loss.type"); !one.empty()) {
    types.push_back(to_text(one.mapped()));
  }
  for (auto at = flat.find("train.loss.0.type"); at != flat.end();
       at = flat.find(cat("train.loss.", types.size(), ".type"))) {
    types.push_back(to_text(at->second));
  }
  if (!types.empty()) flat["train.loss"] = join(types, " + ");
}

// Returns "optim.momentum" for "optim[sgd].momentum", as written in a file.
std::string plain_path(std::string path) {
  if (const std::size_t open = path.find('['); open != std::string::npos) {
    path.erase(open, path.find(']') + 1 - open);
  }
  return path;
}

}  // namespace

FlatConfig flat_config(std::string_view yaml, std::string_view file_name) {
  config::Mistakes mistakes;
  config::Origin origin;
  origin.source = std::make_shared<const std::string>(file_name);
  const config::Node root = config::parse_document(yaml, origin, mistakes);
  mistakes.throw_if_any();
  FlatConfig out;
  flatten(root, "", out);
  name_losses(out);
  return out;
}

const FlatConfig& default_config() {
  static const FlatConfig defaults = [] {
    FlatConfig out;
    for (const ConfigKey& key : config_keys()) {
      if (!key.field.required) out.emplace(plain_path(key.path), key.field.default_value);
    }
    return out;
  }();
  return defaults;
}

const std::vector<std::string>& known_config_keys() {
  static const std::vector<std::string> keys = [] {
    std::set<std::string> out;
    for (const ConfigKey& key : config_keys()) {
      if (key.path.starts_with("layers") || key.path.starts_with("blocks")) continue;
      out.insert(plain_path(key.path));
    }
    return std::vector<std::string>(out.begin(), out.end());
  }();
  return keys;
}

}  // namespace convscope
