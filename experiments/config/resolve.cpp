// SPDX-License-Identifier: Apache-2.0
// resolve.cpp: converts a tree of YAML nodes to a typed config and notes every mistake.
#include "experiments/config/resolve.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "datasets/dataset.h"
#include "experiments/config/blocks.h"
#include "experiments/config/schema.h"
#include "experiments/plugins/plugins.h"
#include "layers/conv2d/select.h"
#include "layers/layer_graph/connections.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "sparsity/sparsity_options.h"

namespace convscope::config {
namespace {

const OptionField* field_named(const std::vector<OptionField>& fields, std::string_view name) {
  for (const OptionField& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

class Resolver {
 public:
  Resolver(Mistakes& mistakes, ExperimentConfig& config) : mistakes_(mistakes), config_(config) {}

  void run(const Node& root, const std::string& default_name) {
    Map top(*this, root, "", {"extends"});
    read_keys(top, top_keys(), config_);
    if (config_.name.empty()) config_.name = default_name;
    open_plugins(top);
    read_data(top);
    read_network(top);
    if (const Node* node = top.map_at("conv")) read_conv(*node);
    if (const Node* node = top.map_at("quant")) read_quant(*node);
    if (const Node* node = top.map_at("sparsity")) read_sparsity(*node);
    read_optim(top.map_at("optim"), root);
    read_train(top);
    read_block(top, "checkpoint", checkpoint_keys(), config_.checkpoint);
    read_block(top, "log", log_keys(), config_.log);
    read_early_stop(top);
    read_block(top, "expect", expect_keys(), config_.expect);
    refuse_sweep(top);
    top.refuse_the_rest();
  }

 private:
  // A map that is being read. It keeps the names that the resolver has asked for, so that all other
  // entries can be reported as unknown.
  class Map {
   public:
    Map(Resolver& owner, const Node& node, std::string path, std::set<std::string> reserved = {})
        : owner_(owner), node_(node), path_(std::move(path)), known_(std::move(reserved)) {}

    const Node::Entry* take(const std::string& key) {
      known_.insert(key);
      const Node::Entry* entry = node_.find(key);
      if (entry != nullptr && entry->value.kind != Node::Kind::map &&
          entry->value.kind != Node::Kind::null) {
        owner_.config_.origins[joined(path_, key)] = entry->value.origin.comment();
      }
      return entry;
    }
    // Returns the map under a key; null when it is absent, null or not a map.
    const Node* map_at(const std::string& key) {
      const Node::Entry* entry = take(key);
      if (entry == nullptr || entry->value.kind == Node::Kind::null) return nullptr;
      if (entry->value.kind == Node::Kind::map) return &entry->value;
      const std::string& text = entry->value.text;
      const bool block = entry->value.origin.is_override && text.find(": ") != std::string::npos;
      owner_.mistakes_.add(entry->value.origin,
                           cat(joined(path_, key), ": expected a map, got ", describe(entry->value),
                               block ? cat("; write {", printable(text), "}") : ""));
      return nullptr;
    }
    void allow(const std::string& key) { known_.insert(key); }
    void allow_everything() { all_allowed_ = true; }

    void refuse_the_rest() {
      if (all_allowed_) return;
      const std::vector<std::string> known(known_.begin(), known_.end());
      for (const Node::Entry& entry : node_.entries) {
        if (known_.contains(entry.key)) continue;
        owner_.mistakes_.add(entry.origin, cat("unknown key '", printable(joined(path_, entry.key)),
                                               "'", hint_for(entry, path_, known)));
      }
    }

    const Node& node() const { return node_; }
    const std::string& path() const { return path_; }

   private:
    Resolver& owner_;
    const Node& node_;
    std::string path_;
    std::set<std::string> known_;
    bool all_allowed_ = false;
  };

  void refuse_sweep(Map& top) {
    const Node::Entry* sweep = top.take("sweep");
    if (sweep == nullptr || sweep->value.kind == Node::Kind::null) return;
    mistakes_.add(sweep->origin,
                  "expected the config of one run, got a sweep; `convscope sweep` trains its "
                  "members, sweep=null leaves them out");
  }

  template <class Block>
  void read_keys(Map& map, const Keys<Block>& keys, Block& block) {
    for (const Key<Block>& key : keys) {
      const Node::Entry* entry = map.take(key.field.name);
      if (entry == nullptr) {
        if (key.field.required) missing(map, key.field);
        continue;
      }
      const std::string path = joined(map.path(), key.field.name);
      const auto value = read_value(entry->value, key.field, path, mistakes_);
      if (!value || entry->value.kind == Node::Kind::null) continue;
      try {
        key.set(block, *value);
      } catch (const Error& error) {
        mistakes_.add(entry->value.origin, cat(path, ": ", sentence_of(error)));
      }
    }
  }

  // A block with other keys, but without the key `needed`, would do nothing.
  template <class Block>
  void read_block(Map& top, const std::string& name, const Keys<Block>& keys, Block& block,
                  const std::string& needed = "") {
    const Node* node = top.map_at(name);
    if (node == nullptr) return;
    Map map(*this, *node, joined(top.path(), name));
    read_keys(map, keys, block);
    map.refuse_the_rest();
    if (needed.empty() || node->entries.empty() || node->find(needed) != nullptr) return;
    mistakes_.add(node->origin, cat(map.path(), ": expected the key '", needed, "', got none"));
  }

  void missing(const Map& map, const OptionField& field) {
    mistakes_.add(map.node().origin,
                  cat("missing key '", joined(map.path(), field.name), "' (", field.doc, ")"));
  }

  // Reads the keys that belong to `type` (an entry of a table), in addition to the common keys of
  // the block.
  template <class Entry>
  void read_options(Map& map, const Registry<Entry>& table, const std::string& type,
                    const std::string& type_key, Options& options) {
    const Entry* entry = table.find(type);
    const Node::Entry* named = map.node().find(type_key);
    if (entry == nullptr) {
      map.allow_everything();  // the owner of the keys is unknown
      if (named != nullptr && named->value.kind != Node::Kind::scalar) return;  // reported already
      if (named == nullptr && type.empty()) return;
      try {
        table.get(type);
      } catch (const Error& error) {
        mistakes_.add(named != nullptr ? named->value.origin : map.node().origin,
                      cat(joined(map.path(), type_key), ": ", sentence_of(error)));
      }
      return;
    }
    for (const OptionField& field : entry->fields) {
      options.set(field.name, in_form_of(field, field.default_value));
      const Node::Entry* given = map.take(field.name);
      if (given == nullptr) {
        if (field.required) missing(map, field);
        continue;
      }
      const auto value = read_value(given->value, field, joined(map.path(), field.name), mistakes_);
      if (value) options.set(field.name, *value);
    }
    if (named != nullptr) forgive_replaced(map, table, named->value.origin.layer);
  }

  // When a later `type` replaces an earlier one, removes the earlier keys that only the replaced
  // type has: `optim.type=adam` over a file with `type: sgd, momentum: 0.9` removes momentum.
  template <class Entry>
  void forgive_replaced(Map& map, const Registry<Entry>& table, int layer) {
    for (const Node::Entry& given : map.node().entries) {
      if (given.origin.layer >= layer) continue;
      for (const auto& [name, other] : table.entries()) {
        if (field_named(other.fields, given.key) != nullptr) map.allow(given.key);
      }
    }
  }

  // Makes the paths of plug-ins absolute, so that a resumed run finds the files. Opens the plug-ins
  // here, because later keys may name their algorithms.
  void open_plugins(Map& top) {
    const std::vector<std::string> words = std::exchange(config_.plugins, {});
    const auto take = [&](const std::string& file) {
      if (std::ranges::count(config_.plugins, file) == 0) config_.plugins.push_back(file);
    };
    const Node::Entry* const entry = top.node().find("plugins");
    for (std::size_t i = 0; i < words.size(); ++i) {
      const Node& node = entry->value;
      const Origin& origin = node.kind == Node::Kind::list ? node.items[i].origin : node.origin;
      const bool in_file = !origin.is_override && origin.source != nullptr;
      const auto folder =
          in_file ? std::filesystem::path(*origin.source).parent_path() : std::filesystem::path();
      try {
        for (const std::string& file : plugin_files((folder / words[i]).string())) {
          open_plugin(file);
          take(file);
        }
      } catch (const Error& error) {
        has_all_plugins_ = false;
        mistakes_.add_and_go_on(origin, cat("plugins: ", sentence_of(error)));
      }
    }
    for (const std::string& file : plugins_of_command_line()) take(file);
  }

  void read_data(Map& top) {
    const Node* node = top.map_at("data");
    if (node == nullptr) {
      if (top.node().find("data") == nullptr) {
        mistakes_.add(top.node().origin, "missing key 'data' (the data set and its batches)");
      }
      return;
    }
    Map map(*this, *node, "data");
    read_keys(map, data_keys(), config_.data);
    if (const Node* augment = map.map_at("augment")) {
      Map inner(*this, *augment, "data.augment");
      read_keys(inner, augment_keys(), config_.data.augment);
      inner.refuse_the_rest();
    }
    read_options(map, dataset_types(), config_.data.set, "set", config_.data.options);
    map.refuse_the_rest();
  }

  void read_network(Map& top) {
    const Node::Entry* model = top.take("model");
    const Node::Entry* layers = top.take("layers");
    const bool has_model = model != nullptr && model->value.kind != Node::Kind::null;
    const bool has_layers = layers != nullptr && layers->value.kind != Node::Kind::null;
    if (!has_model && !has_layers) {
      mistakes_.add(top.node().origin,
                    "missing key 'model' (a whole network) or 'layers' (a list)");
      return;
    }
    bool use_layers = has_layers;
    if (has_model && has_layers) {
      if (model->origin.layer == layers->origin.layer) {
        mistakes_.add(layers->origin, "expected either 'model' or 'layers', got both");
        return;
      }
      use_layers = layers->origin.layer > model->origin.layer;  // the later one wins
    }
    const Node* const blocks = top.map_at("blocks");
    if (use_layers) {
      read_layers(layers->value, blocks);
    } else if (const Node* node = top.map_at("model")) {
      Map map(*this, *node, "model");
      read_keys(map, model_keys(), config_.model);
      read_options(map, model_types(), config_.model.type, "type", config_.model.options);
      map.refuse_the_rest();
    }
  }

  void read_layers(const Node& list, const Node* blocks) {
    if (list.kind != Node::Kind::list || list.items.empty()) {
      mistakes_.add(list.origin,
                    cat("layers: expected a list of layers, got ",
                        list.kind == Node::Kind::list ? "an empty list" : describe(list)));
      return;
    }
    const std::size_t before = mistakes_.count();
    const std::vector<ListedLayer> layers = listed_layers(list, blocks, mistakes_);
    if (mistakes_.count() > before) return;  // later mistakes would follow from these
    for (const auto& [item, path] : layers) {
      if (item.kind != Node::Kind::map) {
        mistakes_.add(item.origin,
                      cat(path, ": expected a map such as {type: relu}, got ", describe(item)));
        continue;
      }
      Map map(*this, item, path);
      LayerSpec spec;
      read_keys(map, layer_keys(), spec);
      read_options(map, layer_types(), spec.type, "type", spec.options);
      map.refuse_the_rest();
      const Origin& origin = item.origin;
      if (origin.line > 0) spec.place = cat(origin.comment(), ":", origin.column);
      config_.model.layers.push_back(std::move(spec));
    }
    if (config_.model.layers.size() == layers.size()) check_connections(layers);
    set_origins(layers);
  }

  void check_connections(const std::vector<ListedLayer>& layers) {
    for (const auto& [index, key, entry, sentence] :
         connect_layers(config_.model.layers).mistakes) {
      const auto& [item, path] = layers[index];
      const Node::Entry* const named = key.empty() ? nullptr : item.find(key);
      const Origin* origin = named != nullptr ? &named->value.origin : &item.origin;
      if (key == "from") origin = &named->value.items.at(entry).origin;
      mistakes_.add(*origin, cat(path, key.empty() ? "" : ".", key, ": ", sentence));
    }
  }

  // The resolved config lists all layers without blocks, so their values have other paths.
  void set_origins(const std::vector<ListedLayer>& layers) {
    std::erase_if(config_.origins, [](const auto& one) {
      return one.first.starts_with("layers.") || one.first.starts_with("blocks.");
    });
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (const Node::Entry& entry : layers[i].node.entries) {
        config_.origins[cat("layers.", i, ".", entry.key)] = entry.value.origin.comment();
      }
    }
  }

  void read_train(Map& top) {
    const Node* const node = top.map_at("train");
    if (node == nullptr) return;
    Map map(*this, *node, "train");
    read_keys(map, train_keys(), config_.train);
    if (const Node::Entry* loss = map.take("loss")) read_loss(loss->value);
    map.refuse_the_rest();
  }

  // Reads a name, a map with a type, its options and a weight, or a list of these.
  void read_loss(const Node& node) {
    if (node.kind == Node::Kind::null) return;
    const bool is_list = node.kind == Node::Kind::list;
    if (is_list && node.items.empty()) {
      mistakes_.add(node.origin, "train.loss: expected at least one loss, got an empty list");
    }
    config_.train.loss.clear();
    const std::vector<Node> one = {node};
    for (const Node& item : is_list ? node.items : one) {
      const std::size_t i = config_.train.loss.size();
      read_loss_term(item, is_list ? cat("train.loss.", i) : "train.loss");
    }
  }

  void read_loss_term(const Node& node, const std::string& path) {
    const std::size_t before = mistakes_.count();
    LossTerm& term = config_.train.loss.emplace_back();
    term.place = node.origin.prefix();
    if (node.kind == Node::Kind::map) {
      Map map(*this, node, path);
      read_keys(map, loss_keys(), term);
      read_options(map, loss_types(), term.type, "type", term.options);
      map.refuse_the_rest();
    } else if (const auto word = read_value(node, loss_field(), path, mistakes_)) {
      term.type = std::get<std::string>(*word);
      term.options = Options(loss_types().get(term.type).fields);
    }
    if (mistakes_.count() > before) return;
    try {
      const Loss loss({term});
    } catch (const Error& error) {
      mistakes_.add(blamed(node, error.what()), cat(path, ": ", sentence_of(error)));
    }
  }

  void read_early_stop(Map& top) {
    const Node* const node = top.map_at("early_stop");
    if (node == nullptr) return;
    Map map(*this, *node, "early_stop");
    read_keys(map, early_stop_keys(), config_.early_stop);
    map.refuse_the_rest();
    if (config_.early_stop.patience && config_.data.val_split == 0) {
      mistakes_.add(node->origin,
                    "early_stop: expected data.val_split above 0, because a run that stops by its "
                    "test images no longer measures anything with them, got 0");
    }
    if (!config_.early_stop.patience && !node->entries.empty() &&
        node->find("patience") == nullptr) {
      mistakes_.add(node->origin, "early_stop: expected a patience, got none");
    }
  }

  // Reads `algorithm`, which sets all three directions, and the keys of the directions. A key of a
  // direction does not count if a later file or override sets `algorithm`.
  void read_policy(Map& map, Conv2dPolicy& policy) {
    const Node::Entry* all = map.take("algorithm");
    const auto word =
        all == nullptr ? std::nullopt : read_algorithm(all->value, joined(map.path(), "algorithm"));
    for (const Key<Conv2dPolicy>& key : policy_keys()) {
      if (word) key.set(policy, *word);
      const Node::Entry* own = map.take(key.field.name);
      if (own == nullptr || (all != nullptr && own->origin.layer < all->origin.layer)) continue;
      const auto own_word = read_algorithm(own->value, joined(map.path(), key.field.name));
      if (own_word) key.set(policy, *own_word);
    }
  }

  // Returns the words of "a,b" or of the list [a, b], joined by commas.
  std::optional<std::string> read_words(const Node& node, const std::string& path) {
    std::vector<Node> items = {node};
    if (node.kind == Node::Kind::list) items = node.items;
    if (items.empty()) mistakes_.add(node.origin, cat(path, ": expected text, got an empty list"));
    OptionField word = algorithm_field();
    word.required = node.kind == Node::Kind::list;
    std::vector<std::string> words;
    for (const Node& item : items) {
      const auto value = read_value(item, word, path, mistakes_);
      if (!value) return std::nullopt;
      words.push_back(std::get<std::string>(*value));
    }
    return words.empty() ? std::nullopt : std::optional<std::string>(join(words, ","));
  }

  // Accepts algorithms of the config's device, and the selection words of policy_text.h. If the
  // device is not available here, any name is accepted, and a wrong name is reported when the run
  // starts.
  std::optional<std::string> read_algorithm(const Node& node, const std::string& path) {
    const std::optional<std::string> given = read_words(node, path);
    if (!given || node.kind == Node::Kind::null) return std::nullopt;
    std::string word = *given;
    try {
      word = parse_policy("conv2d", word).text();
      if (has_all_plugins_ && status_of(config_.device.type).available) {
        check_conv2d_policy(word, config_.device);
      }
    } catch (const Error& error) {
      mistakes_.add(node.origin, cat(path, ": ", sentence_of(error)));
      return std::nullopt;
    }
    return word;
  }

  void read_conv(const Node& node) {
    Map map(*this, node, "conv");
    read_policy(map, config_.conv.policy);
    read_keys(map, conv_keys(), config_.conv);
    if (const Node* layers = map.map_at("per_layer")) {
      for (const Node::Entry& entry : layers->entries) {
        const std::string path = joined("conv.per_layer", entry.key);
        Conv2dPolicy policy = config_.conv.policy;
        if (entry.value.kind == Node::Kind::map) {
          Map inner(*this, entry.value, path);
          read_policy(inner, policy);
          inner.refuse_the_rest();
        } else if (entry.value.kind != Node::Kind::null) {
          const std::optional<std::string> word = read_algorithm(entry.value, path);
          if (!word) continue;
          for (const Key<Conv2dPolicy>& key : policy_keys()) key.set(policy, *word);
          config_.origins[path] = entry.value.origin.comment();
        }
        config_.conv.per_layer[entry.key] = policy;
      }
    }
    map.refuse_the_rest();
  }

  void read_quant(const Node& node) {
    Map map(*this, node, "quant");
    QuantConfig& quant = config_.quant.emplace();
    read_keys(map, quant_keys(), quant);
    if (const Node* layers = map.map_at("per_layer")) {
      for (const Node::Entry& entry : layers->entries) {
        const std::string path = joined("quant.per_layer", entry.key);
        LayerBits& bits = quant.per_layer[entry.key];
        if (entry.value.kind == Node::Kind::null) continue;
        if (entry.value.kind != Node::Kind::map) {
          mistakes_.add(entry.value.origin, cat(path, ": expected a map such as {w_bits: 8}, got ",
                                                describe(entry.value)));
          continue;
        }
        Map inner(*this, entry.value, path);
        read_keys(inner, layer_bits_keys(), bits);
        inner.refuse_the_rest();
      }
    }
    map.refuse_the_rest();
  }

  void read_sparsity(const Node& node) {
    Map map(*this, node, "sparsity");
    Options options;
    bool complete = true, has_method = false;
    for (const OptionField& field : sparsity_fields()) {
      options.set(field.name, in_form_of(field, field.default_value));
      const Node::Entry* given = map.take(field.name);
      if (given == nullptr) continue;
      has_method = has_method || std::string_view(field.name) == "method";
      const std::string path = joined(map.path(), field.name);
      const auto value = read_value(given->value, field, path, mistakes_);
      if (value && given->value.kind != Node::Kind::null) options.set(field.name, *value);
      complete = complete && value.has_value();
    }
    map.refuse_the_rest();
    if (!has_method) {
      complete = false;
      mistakes_.add(node.origin,
                    "sparsity: expected a method (magnitude, filter, channel, n_m, block, rigl; or "
                    "none), because without one nothing is pruned, got none");
    }
    if (!complete) return;  // reported already
    try {
      parse_sparsity(options);
      config_.sparsity = options;
    } catch (const Error& error) {
      const std::string sentence = sentence_of(error);
      mistakes_.add(blamed(node, sentence), cat("sparsity: ", sentence));
    }
  }

  void read_optim(const Node* node, const Node& root) {
    Node nothing;
    nothing.kind = Node::Kind::map;
    nothing.origin = root.origin;
    Map map(*this, node != nullptr ? *node : nothing, "optim");
    read_keys(map, optim_keys(), config_.optim);
    read_options(map, optimizer_types(), config_.optim.type, "type", config_.optim.options);
    const Node::Entry* const lr = map.node().find("lr");
    const bool has_lr = lr != nullptr && lr->value.kind != Node::Kind::null;
    const OptimizerType* const type = optimizer_types().find(config_.optim.type);
    if (type != nullptr && !has_lr) config_.optim.lr = type->lr;
    const Node* schedule = map.map_at("schedule");
    read_schedule(schedule != nullptr ? *schedule : nothing);
    read_block(map, "ema", ema_keys(), config_.optim.ema, "decay");
    read_block(map, "lookahead", lookahead_keys(), config_.optim.lookahead, "k");
    if (const Node::Entry* groups = map.take("groups")) read_groups(groups->value);
    map.refuse_the_rest();
  }

  void read_schedule(const Node& node) {
    Map map(*this, node, "optim.schedule");
    ScheduleConfig& schedule = config_.optim.schedule;
    read_keys(map, schedule_keys(), schedule);
    read_options(map, schedule_types(), schedule.type, "type", schedule.options);
    map.refuse_the_rest();
    if (schedule.warmup_epochs > 0 && schedule.warmup_steps > 0) {
      mistakes_.add(node.find("warmup_steps")->origin,
                    "optim.schedule: expected either warmup_epochs or warmup_steps, got both");
    }
  }

  void read_groups(const Node& list) {
    if (list.kind == Node::Kind::null) return;
    if (list.kind != Node::Kind::list) {
      mistakes_.add(list.origin,
                    cat("optim.groups: expected a list of maps, got ", describe(list)));
      return;
    }
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const std::string path = cat("optim.groups.", i);
      const Node& item = list.items[i];
      if (item.kind != Node::Kind::map) {
        mistakes_.add(item.origin, cat(path,
                                       ": expected a map such as {match: '*.bias', lr_scale: "
                                       "2}, got ",
                                       describe(item)));
        continue;
      }
      Map map(*this, item, path);
      GroupConfig group;
      read_keys(map, group_keys(), group);
      map.refuse_the_rest();
      config_.optim.groups.push_back(std::move(group));
    }
  }

  Mistakes& mistakes_;
  ExperimentConfig& config_;
  bool has_all_plugins_ = true;
};

}  // namespace

ExperimentConfig resolve(const Node& root, const std::string& default_name, Mistakes& mistakes) {
  ExperimentConfig config;
  Resolver(mistakes, config).run(root, default_name);
  return config;
}

}  // namespace convscope::config
