// SPDX-License-Identifier: Apache-2.0
// to_yaml.cpp: writes a resolved config as YAML with every key, which loads to the same config, and
// the list of all keys.
#include <algorithm>

#include "datasets/dataset.h"
#include "experiments/config/document.h"
#include "experiments/config/schema.h"
#include "experiments/config/slurm/slurm_settings.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "sparsity/sparsity_options.h"

namespace convscope {
namespace config {
namespace {

class Writer {
 public:
  Writer(const ExperimentConfig& config, bool with_origins)
      : config_(config), with_origins_(with_origins) {}

  std::string run() {
    keys(top_keys(), config_, "");
    write_data();
    write_network();
    write_conv();
    if (config_.quant) write_quant(*config_.quant);
    write_sparsity();
    write_optim();
    write_train();
    block("checkpoint", checkpoint_keys(), config_.checkpoint);
    block("log", log_keys(), config_.log);
    if (config_.early_stop.patience) block("early_stop", early_stop_keys(), config_.early_stop);
    block("expect", expect_keys(), config_.expect);
    return std::move(out_);
  }

 private:
  // Writes one line. `path` is the dotted path of the value and ends with `key`.
  void line(const std::string& path, const std::string& key, const std::string& value) {
    std::string text = std::string(indent_, ' ') + (first_of_item_ ? "- " : "") + key + ":" +
                       (value.empty() ? "" : " " + value);
    if (first_of_item_) {
      first_of_item_ = false;
      indent_ += 2;
    }
    const auto origin = config_.origins.find(path);
    if (with_origins_ && origin != config_.origins.end()) {
      text += std::string(text.size() < 38 ? 38 - text.size() : 1, ' ') + " # " + origin->second;
    }
    out_ += text + "\n";
  }

  template <class Block>
  void keys(const Keys<Block>& list, const Block& values, const std::string& path) {
    for (const Key<Block>& key : list) {
      const OptionValue value = key.get(values);
      if (std::holds_alternative<std::monostate>(value)) continue;
      line(path + key.field.name, key.field.name, yaml_text(value));
    }
  }

  template <class Entry>
  void options(const Registry<Entry>& table, const std::string& type, const Options& values,
               const std::string& path) {
    const Entry* entry = table.find(type);
    if (entry == nullptr) return;
    for (const OptionField& field : entry->fields) {
      if (!values.has(field.name)) continue;
      line(path + field.name, field.name, yaml_text(values.get(field.name)));
    }
  }

  template <class Block>
  void block(const std::string& name, const Keys<Block>& list, const Block& values) {
    const bool any = std::any_of(list.begin(), list.end(), [&](const Key<Block>& key) {
      return !std::holds_alternative<std::monostate>(key.get(values));
    });
    if (!any) return;
    open(name);
    keys(list, values, name + ".");
    close();
  }

  void open(const std::string& name) {
    line("", name, "");
    indent_ += 2;
  }
  void close() { indent_ -= 2; }

  void write_data() {
    const DataConfig& data = config_.data;
    open("data");
    line("data.set", "set", yaml_text(data.set));
    options(dataset_types(), data.set, data.options, "data.");
    const Keys<DataConfig> rest(data_keys().begin() + 1, data_keys().end());
    keys(rest, data, "data.");
    open("augment");
    keys(augment_keys(), data.augment, "data.augment.");
    close();
    close();
  }

  void write_network() {
    if (config_.model.layers.empty()) {
      open("model");
      keys(model_keys(), config_.model, "model.");
      options(model_types(), config_.model.type, config_.model.options, "model.");
      close();
      return;
    }
    line("layers", "layers", "");
    indent_ += 2;
    for (std::size_t i = 0; i < config_.model.layers.size(); ++i) {
      const LayerSpec& layer = config_.model.layers[i];
      const std::string path = cat("layers.", i, ".");
      first_of_item_ = true;
      line(path + "type", "type", yaml_text(layer.type));
      if (!layer.name.empty()) line(path + "name", "name", yaml_text(layer.name));
      if (!layer.from.empty()) line(path + "from", "from", yaml_text(layer.from));
      options(layer_types(), layer.type, layer.options, path);
      close();
    }
    close();
  }

  void policy(const Conv2dPolicy& policy, const std::string& path) {
    if (policy.forward == policy.backward_data && policy.forward == policy.backward_weight) {
      line(path + "algorithm", "algorithm", yaml_text(policy.forward));
    } else {
      keys(policy_keys(), policy, path);
    }
  }

  void write_conv() {
    open("conv");
    policy(config_.conv.policy, "conv.");
    keys(conv_keys(), config_.conv, "conv.");
    if (!config_.conv.per_layer.empty()) {
      open("per_layer");
      for (const auto& [layer, own] : config_.conv.per_layer) {
        open(quoted_if_needed(layer));
        policy(own, "conv.per_layer." + layer + ".");
        close();
      }
      close();
    }
    close();
  }

  void write_quant(const QuantConfig& quant) {
    open("quant");
    keys(quant_keys(), quant, "quant.");
    if (!quant.per_layer.empty()) {
      open("per_layer");
      for (const auto& [layer, bits] : quant.per_layer) {
        if (bits == LayerBits{}) continue;
        open(quoted_if_needed(layer));
        keys(layer_bits_keys(), bits, "quant.per_layer." + layer + ".");
        close();
      }
      close();
    }
    close();
  }

  void write_sparsity() {
    if (config_.sparsity.values().empty()) return;
    open("sparsity");
    for (const OptionField& field : sparsity_fields()) {
      if (!config_.sparsity.has(field.name)) continue;
      line("sparsity." + field.name, field.name, yaml_text(config_.sparsity.get(field.name)));
    }
    close();
  }

  void write_train() {
    open("train");
    keys(train_keys(), config_.train, "train.");
    const std::vector<LossTerm>& losses = config_.train.loss;
    const auto write = [&](const LossTerm& term, const std::string& path) {
      keys(loss_keys(), term, path);
      options(loss_types(), term.type, term.options, path);
      close();
    };
    if (losses.size() == 1 && is_plain(losses[0])) {
      line("train.loss", "loss", yaml_text(losses[0].type));
    } else if (losses.size() == 1) {
      open("loss");
      write(losses[0], "train.loss.");
    } else {
      open("loss");
      for (std::size_t i = 0; i < losses.size(); ++i) {
        first_of_item_ = true;
        write(losses[i], cat("train.loss.", i, "."));
      }
      close();
    }
    close();
  }

  // Returns whether the name of a loss says all about it.
  static bool is_plain(const LossTerm& term) {
    const LossType* const type = loss_types().find(term.type);
    const Options standard(type != nullptr ? type->fields : std::vector<OptionField>());
    return term.weight == 1 && std::ranges::all_of(term.options.values(), [&](const auto& option) {
             return option.second == standard.get(option.first);
           });
  }

  void write_optim() {
    const OptimConfig& optim = config_.optim;
    open("optim");
    keys(optim_keys(), optim, "optim.");
    options(optimizer_types(), optim.type, optim.options, "optim.");
    open("schedule");
    keys(schedule_keys(), optim.schedule, "optim.schedule.");
    options(schedule_types(), optim.schedule.type, optim.schedule.options, "optim.schedule.");
    close();
    const auto within = [&](const char* name, const auto& list, const auto& values) {
      open(name);
      keys(list, values, cat("optim.", name, "."));
      close();
    };
    if (optim.ema.decay > 0) within("ema", ema_keys(), optim.ema);
    if (optim.lookahead.k > 0) within("lookahead", lookahead_keys(), optim.lookahead);
    if (!optim.groups.empty()) {
      open("groups");
      for (std::size_t i = 0; i < optim.groups.size(); ++i) {
        first_of_item_ = true;
        keys(group_keys(), optim.groups[i], cat("optim.groups.", i, "."));
        close();
      }
      close();
    }
    close();
  }

  const ExperimentConfig& config_;
  bool with_origins_;
  std::string out_;
  std::size_t indent_ = 0;
  bool first_of_item_ = false;
};

template <class Block>
void list_keys(const Keys<Block>& keys, const std::string& path, std::vector<ConfigKey>& out) {
  for (const Key<Block>& key : keys) out.push_back({path + key.field.name, key.field});
}

template <class Entry>
void list_options(const Registry<Entry>& table, const std::string& block,
                  std::vector<ConfigKey>& out) {
  for (const auto& [name, entry] : table.entries()) {
    for (const OptionField& field : entry.fields) {
      out.push_back({cat(block, "[", name, "].", field.name), field});
    }
  }
}

void add_key(std::vector<ConfigKey>& out, const std::string& path, OptionType type,
             const std::string& doc) {
  out.push_back({path, {.name = path.substr(path.rfind('.') + 1), .type = type, .doc = doc}});
}

// blocks.cpp reads these keys.
void list_block_keys(std::vector<ConfigKey>& out) {
  add_key(out, "layers[].block", OptionType::text,
          "instead of type: a block of 'blocks', whose parameters are keys of the entry");
  add_key(out, "layers[].repeat", OptionType::integer,
          "with block: how often its layers follow each other; their names are <name>.0.<layer>");
  add_key(out, "blocks.<block>.parameters", OptionType::texts,
          "map of parameters to defaults (null: none); layers use $parameter or $parameter * 2");
  add_key(out, "blocks.<block>.layers", OptionType::texts,
          "list of layers, as in 'layers'; input = the inputs of the block");
}

// sweep_block_axes.cpp reads these keys.
void list_sweep_keys(std::vector<ConfigKey>& out) {
  const auto add = [&](const std::string& path, OptionType type, const std::string& doc) {
    add_key(out, path, type, doc);
  };
  add("sweep.members", OptionType::texts,
      "list of maps: name of a row, any keys, and 'reference' with published figures");
  add("sweep.zip", OptionType::texts,
      "map of keys to lists of one length; member i takes value i of each list");
  add("sweep.grid", OptionType::texts, "map of keys to lists; all combinations of their values");
  add("sweep.exclude", OptionType::texts, "list of maps; members with these values are left out");
  add("sweep.seeds", OptionType::integers, "seeds; each row is trained with each seed");
  for (const SlurmKey& key : slurm_keys()) {
    add("sweep.slurm." + key.name, OptionType::text,
        cat("--launcher slurm: ", key.doc, "; ", key.expected));
  }
}

}  // namespace
}  // namespace config

std::string to_yaml(const ExperimentConfig& config, bool with_origins) {
  return config::Writer(config, with_origins).run();
}

std::vector<ConfigKey> config_keys() {
  using namespace config;
  std::vector<ConfigKey> out;
  out.push_back({"extends",
                 {.name = "extends",
                  .type = OptionType::texts,
                  .doc = "base file or list of base files, relative to this one"}});
  list_keys(top_keys(), "", out);
  list_keys(data_keys(), "data.", out);
  list_keys(augment_keys(), "data.augment.", out);
  list_options(dataset_types(), "data", out);
  list_keys(model_keys(), "model.", out);
  list_options(model_types(), "model", out);
  list_keys(layer_keys(), "layers[].", out);
  list_options(layer_types(), "layers", out);
  list_block_keys(out);
  out.push_back({"conv.algorithm", algorithm_field()});
  list_keys(policy_keys(), "conv.", out);
  list_keys(conv_keys(), "conv.", out);
  out.push_back({"conv.per_layer.<layer>", algorithm_field()});
  out.back().field.doc = "an algorithm, or a map with the keys of 'conv'";
  list_keys(quant_keys(), "quant.", out);
  list_keys(layer_bits_keys(), "quant.per_layer.<layer>.", out);
  for (const OptionField& field : sparsity_fields()) {
    out.push_back({"sparsity." + field.name, field});
  }
  list_keys(optim_keys(), "optim.", out);
  list_options(optimizer_types(), "optim", out);
  list_keys(schedule_keys(), "optim.schedule.", out);
  list_options(schedule_types(), "optim.schedule", out);
  list_keys(ema_keys(), "optim.ema.", out);
  list_keys(lookahead_keys(), "optim.lookahead.", out);
  list_keys(group_keys(), "optim.groups[].", out);
  list_keys(train_keys(), "train.", out);
  out.push_back({"train.loss", loss_field()});
  list_keys(loss_keys(), "train.loss[].", out);
  list_options(loss_types(), "train.loss", out);
  list_keys(early_stop_keys(), "early_stop.", out);
  list_keys(checkpoint_keys(), "checkpoint.", out);
  list_keys(log_keys(), "log.", out);
  list_keys(expect_keys(), "expect.", out);
  list_sweep_keys(out);
  return out;
}

}  // namespace convscope
