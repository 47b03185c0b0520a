// SPDX-License-Identifier: Apache-2.0
// blocks.cpp: replaces the entries of `layers:` that use a block by the layers of the block.
#include "experiments/config/blocks.h"

#include <algorithm>
#include <map>

#include "experiments/config/arithmetic.h"
#include "experiments/config/resolve.h"
#include "experiments/run_folder/user_words.h"
#include "framework/registry.h"

namespace convscope::config {
namespace {

constexpr std::size_t kMaxEntries = 5000, kMaxNesting = 16;  // keep hostile texts cheap
constexpr const char* kInput = "input";
constexpr std::string_view kKeysOfUse[] = {"block", "name", "from", "repeat"};

Node word_node(const Origin& origin, const std::string& text) {
  Node out;
  out.kind = Node::Kind::scalar;
  out.origin = origin;
  out.text = text;
  out.quoted = true;  // always text
  return out;
}

// Returns the entry of a key that has a value.
const Node::Entry* given(const Node& node, const char* key) {
  const Node::Entry* const entry = node.find(key);
  return entry != nullptr && entry->value.kind != Node::Kind::null ? entry : nullptr;
}

// Sets the value of a key, at the place of `node`.
void set(Node& node, const char* key, Node value) {
  std::erase_if(node.entries, [&](const Node::Entry& entry) { return entry.key == key; });
  node.entries.push_back({key, node.origin, std::move(value)});
}

std::string near_text(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  if (!near.empty()) return cat("; did you mean '", near, "'?");
  return known.empty() ? "" : cat(" (known: ", join(known), ")");
}

using Parameters = std::map<std::string, Node>;

constexpr std::size_t kMaxValues = 100000;  // that parameters are replaced by; limits their levels

std::size_t count_values(const Node& node) {
  std::size_t out = 1;
  for (const Node& item : node.items) out += count_values(item);
  for (const Node::Entry& entry : node.entries) out += count_values(entry.value);
  return out;
}

// Where the entries of one list are: the top level, or one use of a block.
struct Scope {
  std::string path;                 // "layers"
  std::string prefix;               // of the names of its layers: "b.0."
  Parameters values;                // of the block's parameters
  std::vector<std::string> inputs;  // names of the inputs of a block
  std::vector<std::string> users;   // the blocks around the entries, the outermost one first
  std::map<std::string, std::string> ends = {};  // the last layer of each block used so far
};

class Lister {
 public:
  Lister(const Node* blocks, Mistakes& mistakes) : blocks_(blocks), mistakes_(mistakes) {}

  std::vector<ListedLayer> run(const Node& layers) {
    const bool plain = std::ranges::none_of(
        layers.items, [](const Node& item) { return item.find("block") != nullptr; });
    for (std::size_t i = 0; blocks_ != nullptr && i < blocks_->entries.size(); ++i) {
      check_block(blocks_->entries[i]);
    }
    Scope top{.path = "layers", .prefix = "", .values = {}, .inputs = {}, .users = {}};
    list(layers, top, /*names_all=*/!plain);
    return std::move(out_);
  }

 private:
  void check_block(const Node::Entry& block) {
    const std::string path = "blocks." + printable(block.key);
    const Node::Entry* const layers = block.value.find("layers");
    if (layers == nullptr || layers->value.kind != Node::Kind::list ||
        layers->value.items.empty()) {
      mistakes_.add(block.origin,
                    cat(path, ": expected a map with a list 'layers', got ",
                        layers == nullptr ? describe(block.value) : describe(layers->value)));
    }
    for (const Node::Entry& entry : block.value.entries) {
      if (entry.key == "layers") continue;
      if (entry.key != "parameters") {
        mistakes_.add(entry.origin, cat("unknown key '", printable(cat(path, ".", entry.key)), "'",
                                        near_text(entry.key, {"layers", "parameters"})));
      } else if (entry.value.kind != Node::Kind::map) {
        mistakes_.add(entry.value.origin,
                      cat(path, ".parameters: expected a map of names and defaults, got ",
                          describe(entry.value)));
      }
      for (const Node::Entry& parameter : entry.value.entries) {
        if (!is_parameter_name(parameter.key)) {
          mistakes_.add(parameter.origin,
                        cat(path,
                            ".parameters: expected a name of letters, digits and _ that does "
                            "not begin with a digit, got '",
                            printable(parameter.key), "'"));
        }
        if (std::ranges::count(kKeysOfUse, parameter.key) == 0) continue;
        mistakes_.add(parameter.origin,
                      cat(path, ".parameters: expected another name because '", parameter.key,
                          "' is a key of each entry that uses a block"));
      }
    }
  }

  // Appends the layers of a list. Returns the name of the last one.
  std::string list(const Node& layers, Scope& scope, bool names_all) {
    std::map<std::string, int> count_of_type;
    std::string last;
    for (std::size_t i = 0; i < layers.items.size(); ++i) {
      if (++entries_ > kMaxEntries) {
        if (entries_ == kMaxEntries + 1) {
          mistakes_.add(layers.items[i].origin,
                        cat("layers: expected at most ", kMaxEntries, " layers, got more"));
        }
        return last;
      }
      ListedLayer entry{layers.items[i], cat(scope.path, ".", i)};
      Node& node = entry.node;
      if (node.kind == Node::Kind::map) {
        const std::size_t mistakes = mistakes_.count();
        fill_in(node, scope.values, scope.users.empty());
        const bool is_block = node.find("block") != nullptr;
        if (is_block && mistakes_.count() > mistakes) continue;  // others would follow from these
        const Node::Entry* const type = node.find(is_block ? "block" : "type");
        const std::string word = type != nullptr ? type->value.text : "layer";
        const int number = ++count_of_type[word];
        if (names_all && given(node, "name") == nullptr) {
          set(node, "name", word_node(node.origin, cat(word, "_", number)));
        }
        resolve_from(node, scope, last);
        if (is_block) {
          last = use_block(entry, scope, last);
          continue;
        }
        if (Node::Entry* const name = node.find("name")) {
          if (!scope.prefix.empty()) check_own_name(*name);
          name->value.text = scope.prefix + name->value.text;
          last = name->value.text;
        }
      }
      out_.push_back(std::move(entry));
    }
    return last;
  }

  void check_own_name(const Node::Entry& name) {
    if (is_expression(name.value)) return;  // reported by fill_in()
    try {
      check_word(name.value.text, "_-", "because dots join the names of blocks and layers");
    } catch (const Error& error) {
      mistakes_.add(name.value.origin, sentence_of(error));
    }
  }

  // Replaces expressions by their values.
  void fill_in(Node& node, const Parameters& values, bool is_top_level) {
    for (Node& item : node.items) fill_in(item, values, is_top_level);
    for (Node::Entry& entry : node.entries) fill_in(entry.value, values, is_top_level);
    if (!is_expression(node)) return;
    const auto parameter = [&](const std::string& name) -> const Node& {
      const auto value = values.find(name);
      if (value != values.end()) return value->second;
      std::vector<std::string> known;
      for (const auto& [other, unused] : values) known.push_back("$" + other);
      fail(ErrorKind::kConfig, "config",
           cat("unknown parameter '$", printable(name), "'",
               is_top_level ? ", because only a block has parameters"
                            : near_text("$" + name, known)));
    };
    if (filled_values_ > kMaxValues) return;  // reported before
    try {
      Node value = value_of_expression(node, parameter);
      filled_values_ += count_values(value);
      if (filled_values_ > kMaxValues) {
        fail(ErrorKind::kConfig, "config",
             cat("expected parameters that are replaced by at most ", kMaxValues,
                 " values in all, got more"));
      }
      node = std::move(value);
    } catch (const Error& error) {
      mistakes_.add(node.origin, sentence_of(error));
    }
  }

  // Makes `from` a list of whole names. The first layer of a block reads the block's inputs.
  void resolve_from(Node& node, const Scope& scope, const std::string& before) {
    if (given(node, "from") == nullptr) {
      if (before.empty() && !scope.users.empty()) {
        set(node, "from", word_node(node.origin, kInput));
      } else {
        return;
      }
    }
    Node words = node.find("from")->value;
    if (words.kind == Node::Kind::map) return;  // reported when its value is read
    if (words.kind == Node::Kind::scalar) words.items = {words};
    words.kind = Node::Kind::list;
    if (words.items.empty()) {
      mistakes_.add(words.origin, "from: expected the name of a layer, got an empty list");
    }
    std::vector<Node> resolved;
    for (const Node& word : words.items) {
      if (word.kind != Node::Kind::scalar) {
        resolved.push_back(word);
        continue;
      }
      for (const std::string& name : whole_names(word, scope)) {
        resolved.push_back(word_node(word.origin, name));
      }
    }
    words.items = std::move(resolved);
    node.find("from")->value = std::move(words);
  }

  std::vector<std::string> whole_names(const Node& word, const Scope& scope) {
    const std::string& text = word.text;
    const std::string first = text.substr(0, text.find('.'));
    if (first == kInput && !scope.users.empty()) {
      if (text == kInput) return scope.inputs;
      for (std::size_t i = 0; i < scope.inputs.size(); ++i) {
        if (text == cat(kInput, ".", i)) return {scope.inputs[i]};
      }
      mistakes_.add(word.origin, cat("from: expected an input of the block from input.0 to input.",
                                     scope.inputs.size() - 1, ", got '", printable(text), "'"));
      return {};
    }
    if (text == kInput) return {text};
    // A block, one of its repetitions, or a layer; perhaps with the number of a result.
    const std::size_t dot = text.rfind('.');
    const bool has_number = dot != std::string::npos &&
                            text.find_first_not_of("0123456789", dot + 1) == std::string::npos;
    for (const std::size_t end : {text.size(), has_number ? dot : text.size()}) {
      const auto last = scope.ends.find(text.substr(0, end));
      if (last != scope.ends.end()) return {last->second + text.substr(end)};
    }
    return {scope.prefix + text};
  }

  // Appends the layers of a block, once for each repetition. Returns the name of the last layer.
  std::string use_block(const ListedLayer& entry, Scope& scope, const std::string& before) {
    const Node& node = entry.node;
    const Node* const layers = layers_of_block(node, scope);
    if (layers == nullptr) return before;
    const std::string block = node.find("block")->value.text;
    const Node::Entry& named = *node.find("name");
    const std::string& name = named.value.text;
    check_own_name(named);
    if (scope.ends.contains(name)) {
      mistakes_.add(named.value.origin,
                    cat("expected layers with different names, got '", name, "' twice"));
    }
    Scope inner{.path = cat("blocks.", block, ".layers"),
                .prefix = "",
                .values = values_of(node, block),
                .inputs = inputs_of(node, before),
                .users = scope.users};
    inner.users.push_back(block);
    const Node::Entry* const repeat = node.find("repeat");
    std::string last = before;
    for (std::int64_t i = 0; i < repetitions(repeat); ++i) {
      const std::string own = repeat != nullptr ? cat(name, ".", i) : name;
      inner.prefix = scope.prefix + own + ".";
      inner.ends.clear();
      last = list(*layers, inner, /*names_all=*/true);
      scope.ends[own] = scope.ends[name] = last;
      inner.inputs = {last};
      if (entries_ > kMaxEntries) break;
    }
    return last;
  }

  std::int64_t repetitions(const Node::Entry* repeat) {
    if (repeat == nullptr) return 1;
    const OptionField field{.name = "repeat",
                            .type = OptionType::integer,
                            .doc = "",
                            .required = true,
                            .min = 1,
                            .max = 1000};
    const auto value = read_value(repeat->value, field, "repeat", mistakes_);
    return value ? std::get<std::int64_t>(*value) : 1;
  }

  static std::vector<std::string> inputs_of(const Node& node, const std::string& before) {
    std::vector<std::string> out;
    if (const Node::Entry* const from = given(node, "from")) {
      for (const Node& word : from->value.items) out.push_back(word.text);
    }
    if (out.empty()) out.push_back(before.empty() ? kInput : before);
    return out;
  }

  // Returns the list of the block that an entry names, or null after a mistake.
  const Node* layers_of_block(const Node& node, const Scope& scope) {
    const Node::Entry& named = *node.find("block");
    const auto refuse = [&](const Origin& origin, const std::string& sentence) {
      mistakes_.add(origin, sentence);
      return nullptr;
    };
    if (const Node::Entry* const type = node.find("type")) {
      return refuse(type->origin, "expected either 'type' or 'block', got both");
    }
    const std::string& word = named.value.text;
    const Node::Entry* const block = blocks_ != nullptr ? blocks_->find(word) : nullptr;
    if (block == nullptr) {
      std::vector<std::string> known;
      for (std::size_t i = 0; blocks_ != nullptr && i < blocks_->entries.size(); ++i) {
        known.push_back(blocks_->entries[i].key);
      }
      return refuse(named.value.origin,
                    cat("unknown block ", describe(named.value), near_text(word, known)));
    }
    if (std::ranges::count(scope.users, word) > 0) {
      return refuse(named.value.origin, cat("expected a block that does not use itself, got ",
                                            join(scope.users, " > "), " > ", word));
    }
    if (scope.users.size() >= kMaxNesting) {
      return refuse(named.value.origin,
                    cat("expected at most ", kMaxNesting, " blocks in each other, got more"));
    }
    const Node::Entry* const layers = block->value.find("layers");
    if (layers == nullptr) return nullptr;  // reported already
    return &layers->value;
  }

  // Returns the values of the parameters: those given, else the defaults, which may use the
  // parameters before them.
  Parameters values_of(const Node& node, const std::string& block) {
    Parameters out;
    std::vector<std::string> known;
    const Node::Entry* const parameters = blocks_->find(block)->value.find("parameters");
    for (std::size_t i = 0; parameters != nullptr && i < parameters->value.entries.size(); ++i) {
      const Node::Entry& parameter = parameters->value.entries[i];
      known.push_back(parameter.key);
      const Node::Entry* const own = node.find(parameter.key);
      Node value = own != nullptr ? own->value : parameter.value;
      if (own == nullptr) fill_in(value, out, /*is_top_level=*/false);
      out[parameter.key] = std::move(value);
      if (own == nullptr && parameter.value.kind == Node::Kind::null) {
        mistakes_.add(node.origin,
                      cat("missing parameter '", parameter.key, "' of the block '", block, "'"));
      }
    }
    for (const Node::Entry& entry : node.entries) {
      if (std::ranges::count(kKeysOfUse, entry.key) > 0 ||
          std::ranges::count(known, entry.key) > 0) {
        continue;
      }
      mistakes_.add(entry.origin, cat("unknown parameter '", printable(entry.key),
                                      "' of the block '", block, "'", near_text(entry.key, known)));
    }
    return out;
  }

  const Node* blocks_;
  Mistakes& mistakes_;
  std::vector<ListedLayer> out_;
  std::size_t entries_ = 0;
  std::size_t filled_values_ = 0;
};

}  // namespace

std::vector<ListedLayer> listed_layers(const Node& layers, const Node* blocks, Mistakes& mistakes) {
  return Lister(blocks, mistakes).run(layers);
}

}  // namespace convscope::config
