// SPDX-License-Identifier: Apache-2.0
// candidates.cpp: shell completion of the last word of a command line.
#include "experiments/cli/guide/candidates.h"

#include <algorithm>
#include <map>
#include <optional>

#include "datasets/dataset.h"
#include "experiments/config/experiment_config.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "layers/conv2d/algorithm.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"

namespace convscope {
namespace {

using Facts = CommandOption::Facts;

// Finds an option of the command or of an outer one.
std::optional<Facts> option_named(const CommandLine& line, const std::string& word) {
  for (const CommandLine* here = &line; here != nullptr; here = here->outer()) {
    for (const Facts& option : here->options()) {
      for (const std::string& name : option.names) {
        if (word == "--" + name) return option;
      }
      for (const std::string& name : option.short_names) {
        if (word == "-" + name) return option;
      }
    }
  }
  return std::nullopt;
}

const CommandLine* nested_named(const CommandLine& line, const std::string& word) {
  const auto found = std::ranges::find(line.nested(), word, &CommandLine::name);
  return found == line.nested().end() ? nullptr : &*found;
}

// Returns "optim.momentum" for "optim[sgd].momentum". Returns "" for keys that contain an index or
// the name of a layer.
std::string plain_key(const std::string& path) {
  const std::size_t open = path.find('['), close = path.find(']');
  if (path.find('<') != std::string::npos || path == "extends") return "";
  if (open == std::string::npos) return path;
  if (close == open + 1 || path.starts_with("layers")) return "";
  return path.substr(0, open) + path.substr(close + 1);
}

std::map<std::string, OptionField> keys_of_configs() {
  std::map<std::string, OptionField> out;
  for (const ConfigKey& key : config_keys()) {
    const std::string path = plain_key(key.path);
    if (!path.empty()) out.emplace(path, key.field);
  }
  return out;
}

std::vector<std::string> values_of(const std::string& key, const OptionField& field) {
  if (key == "data.set") return dataset_types().names();
  if (key == "model.type") return model_types().names();
  if (key == "optim.type") return optimizer_types().names();
  if (key == "optim.schedule.type") return schedule_types().names();
  if (key == "device") return {"cpu", "cuda"};
  if (key.starts_with("conv.")) {
    std::vector<std::string> names = conv2d_algorithms(DeviceType::cpu).names();
    names.insert(names.begin(), {"auto", "measure"});
    return names;
  }
  if (field.type == OptionType::boolean) return {"true", "false"};
  return field.choices;
}

class Finder {
 public:
  Finder(const CommandLine& program, const std::vector<std::string>& words)
      : program_(program), here_(&program), last_(words.empty() ? "" : words.back()) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) pass(words[i]);
  }

  Candidates find() {
    if (value_of_) {
      add_value(*value_of_);
    } else if (last_.starts_with("-")) {
      add_options();
    } else {
      if (given_.empty()) add_commands(*here_);
      add_positional();
    }
    return std::move(out_);
  }

 private:
  void pass(const std::string& word) {
    if (value_of_) {
      value_of_.reset();
    } else if (word.starts_with("-")) {
      const std::optional<Facts> option = option_named(*here_, word);
      if (option && option->values > 0) value_of_ = option;
    } else if (const CommandLine* nested = nested_named(*here_, word);
               nested != nullptr && given_.empty()) {
      here_ = nested;
    } else {
      given_.push_back(word);
    }
  }

  void add(const std::string& text, const std::string& about) {
    if (text.starts_with(last_)) out_.words.push_back({text, about.substr(0, about.find('\n'))});
  }

  void add_names(const std::vector<std::string>& names) {
    for (const std::string& name : names) add(name, "");
  }

  void add_commands(const CommandLine& line) {
    for (const CommandLine& nested : line.nested()) add(nested.name(), nested.description());
  }

  void add_options() {
    for (const CommandLine* here = here_; here != nullptr; here = here->outer()) {
      for (const Facts& option : here->options()) {
        for (const std::string& name : option.names) add("--" + name, option.description);
        for (const std::string& name : option.short_names) add("-" + name, option.description);
      }
    }
  }

  void add_value(const Facts& option) {
    add_names(option.choices);
    if (!option.choices.empty() || option.type == "N" || option.type == "INT") return;
    (option.type == "DIR" || option.type == "RUN" ? out_.folders : out_.files) = true;
  }

  // Adds completions of a positional argument; the last one may take several words.
  void add_positional() {
    std::vector<Facts> places;
    for (const Facts& option : here_->options()) {
      if (option.is_positional) places.push_back(option);
    }
    if (places.empty()) return;
    const Facts& place = places[std::min(given_.size(), places.size() - 1)];
    const bool many = place.values > 1;
    if (place.name == "COMMAND") return add_commands_behind();
    if (place.name == "SET") return add_names(dataset_types().names());
    if (place.name == "CONFIG|MODEL|RUN") add_names(model_types().names());
    if (place.name.starts_with("CONFIG") && (!many || given_.empty())) return add_configs();
    if (place.name.starts_with("CONFIG") || place.name == "KEY=VALUE") return add_keys();
    add_names(place.choices);
    out_.files = place.choices.empty() && place.name != "TEXT";
  }

  void add_commands_behind() {
    const CommandLine* line = &program_;
    for (const std::string& word : given_) {
      line = nested_named(*line, word);
      if (line == nullptr) return;
    }
    add_commands(*line);
  }

  void add_configs() {
    for (const ShippedConfig& config : shipped_configs()) add(config.name, config.about);
    out_.files = true;
  }

  void add_keys() {
    const std::size_t equals = last_.find('=');
    for (const auto& [key, field] : keys_of_configs()) {
      if (equals == std::string::npos) {
        add(key + "=", field.doc);
      } else if (key == last_.substr(0, equals)) {
        for (const std::string& value : values_of(key, field)) add(cat(key, "=", value), "");
      }
    }
  }

  const CommandLine& program_;
  const CommandLine* here_;
  std::string last_;
  std::vector<std::string> given_;  // positional words
  std::optional<Facts> value_of_;   // the option that the next word belongs to
  Candidates out_;
};

}  // namespace

Candidates candidates_for(const CommandLine& program, const std::vector<std::string>& words) {
  return Finder(program, words).find();
}

}  // namespace convscope
