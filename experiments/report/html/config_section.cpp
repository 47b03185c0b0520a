// SPDX-License-Identifier: Apache-2.0
// config_section.cpp: config.yaml on a run's page.
#include "experiments/report/html/config_section.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/config/flat/flat_config.h"
#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/markup.h"
#include "optim/optimizer.h"

namespace convscope {
namespace {

// A value of the config, or a list of plain values.
struct Leaf {
  std::string path;   // "optim.schedule.min_lr", "model.layers.0.kernel"
  std::string key;    // as in config_keys(): "optim.schedule[cosine].min_lr"
  std::string value;  // "0.05", "[6, 16]"
  int line = 0;       // from 0
};

bool is_plain_list(const YAML::Node& node) {
  if (!node.IsSequence()) return false;
  for (const auto& entry : node) {
    if (!entry.IsScalar()) return false;
  }
  return true;
}

std::string list_text(const YAML::Node& node) {
  std::string out;
  for (const auto& entry : node) out += (out.empty() ? "" : ", ") + entry.Scalar();
  return "[" + out + "]";
}

// Returns the kind of a config block, which selects the keys that are valid in it: "lenet5" for a
// model.
std::string kind_of(const YAML::Node& block) {
  for (const char* name : {"type", "set", "method"}) {
    if (block[name] && block[name].IsScalar()) return block[name].Scalar();
  }
  return "";
}

void collect(const YAML::Node& node, const std::string& path, const std::string& block,
             std::vector<Leaf>& out) {
  const auto below = [](const std::string& outer, const std::string& name) {
    return outer.empty() ? name : outer + "." + name;
  };
  if (node.IsMap()) {
    const std::string kind = kind_of(node);
    for (const auto& entry : node) {
      const auto name = entry.first.as<std::string>("?");
      const std::string inner = below(path, name);
      const YAML::Node& value = entry.second;
      if (value.IsScalar() || is_plain_list(value)) {
        out.push_back({.path = inner,
                       .key = kind.empty() || block.empty() ? below(block, name)
                                                            : cat(block, "[", kind, "].", name),
                       .value = value.IsScalar() ? value.Scalar() : list_text(value),
                       .line = entry.first.Mark().line});
      } else {
        collect(value, inner, below(block, name), out);
      }
    }
  } else if (node.IsSequence()) {
    const std::string last = block.substr(block.rfind('.') + 1);
    for (std::size_t i = 0; i < node.size(); ++i) {
      const std::string inner = last == "layers" ? "layers" : last == "loss" ? block : block + "[]";
      collect(node[i], cat(path, ".", i), inner, out);
    }
  }
}

using Defaults = std::map<std::string, const OptionField*>;

// Returns all config keys. Each one appears twice: with the kind of its block ("data[mnist].root")
// and without it
// ("data.root").
const std::vector<ConfigKey>& all_keys() {
  static const std::vector<ConfigKey> keys = config_keys();
  return keys;
}

Defaults known_defaults() {
  Defaults out;
  for (const ConfigKey& key : all_keys()) out[key.path] = &key.field;
  return out;
}

bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  double x = 0, y = 0;
  const auto is_number = [](const std::string& text, double& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  };
  return is_number(a, x) && is_number(b, y) && x == y;
}

const OptionField* field_of(const Leaf& leaf, const Defaults& defaults) {
  if (const auto it = defaults.find(leaf.key); it != defaults.end()) return it->second;
  if (const auto it = defaults.find(leaf.path); it != defaults.end()) return it->second;
  std::string path = leaf.key;  // a key of all kinds of the block
  const std::size_t open = path.rfind('[');
  if (open != std::string::npos) {
    path.erase(open + 1, path.find(']', open) - open - 1);  // of a list: train.loss[].weight
    if (const auto it = defaults.find(path); it != defaults.end()) return it->second;
    path.erase(open, 2);
  }
  const auto it = defaults.find(path);
  return it == defaults.end() ? nullptr : it->second;
}

// Returns "none" without a default: the key is required or optional.
std::string default_text(const OptionField* field) {
  if (field == nullptr || field->required) return "none";
  const std::string text = to_text(field->default_value);
  return text.empty() || text == "null" ? "none" : text;
}

// Returns the optimiser's default rate, for configs without one.
std::string default_rate(const std::vector<Leaf>& leaves) {
  for (const Leaf& leaf : leaves) {
    if (leaf.path != "optim.type") continue;
    const OptimizerType* const type = optimizer_types().find(leaf.value);
    if (type != nullptr) return to_text(OptionValue(type->lr));
  }
  return "none";
}

// Returns whether a key is independent of the experiment.
bool is_label(const std::string& path) { return path == "schema" || path == "name"; }

std::vector<Leaf> leaves_of(const std::string& yaml) {
  std::vector<Leaf> leaves;
  try {
    flat_config(yaml, "config.yaml");  // the parser refuses large texts and cyclic references
    collect(YAML::Load(yaml), "", "", leaves);
  } catch (const Error&) {
    leaves.clear();  // RunData names the problem
  } catch (const YAML::Exception&) {
    leaves.clear();
  }
  return leaves;
}

}  // namespace

std::string config_section(const std::string& yaml) {
  if (yaml.empty()) return "";
  const Defaults defaults = known_defaults();
  const std::vector<Leaf> leaves = leaves_of(yaml);
  HtmlTable changed = {{"key", "value", "default"}};
  std::set<int> marked;
  for (const Leaf& leaf : leaves) {
    const std::string standard =
        leaf.path == "optim.lr" ? default_rate(leaves) : default_text(field_of(leaf, defaults));
    if (is_label(leaf.path) || leaf.value == "null" || same_value(leaf.value, standard)) continue;
    changed.push_back({leaf.path, leaf.value, standard});
    marked.insert(leaf.line);
  }
  std::string out;
  if (changed.size() > 1) {
    out = cat("<p>", changed.size() - 1, " of ", leaves.size(),
              " values are not the defaults.</p>\n", html_table(changed));
  }
  out += "<details><summary>the whole config.yaml, these values marked</summary>\n<pre>";
  std::istringstream lines(yaml);
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const std::string text = escape_markup(line);
    out += marked.contains(number) ? "<mark>" + text + "</mark>\n" : text + "\n";
  }
  return out + "</pre></details>\n";
}

}  // namespace convscope
