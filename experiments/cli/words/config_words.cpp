// SPDX-License-Identifier: Apache-2.0
// config_words.cpp: converts the words of a command line to a config.
#include "experiments/cli/words/config_words.h"

#include <algorithm>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/config/document.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "layers/layer_types.h"

namespace convscope {
namespace {

bool has_equals(const std::string& word) { return word.find('=') != std::string::npos; }

bool names_a_config(const std::string& word) {
  try {
    find_config(word);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

ConfigWords split_config_words(std::string_view command, const std::vector<std::string>& words) {
  auto config = words.begin();
  if (config != words.end() && has_equals(*config) && !is_file(*config)) {
    config = std::ranges::find_if_not(words, has_equals);
    if (config == words.end()) config = std::ranges::find_if(words, is_file);
  }
  ConfigWords out;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (word == config) {
      out.config = *word;
    } else if (has_equals(*word)) {
      out.overrides.push_back(*word);
    } else {
      fail_usage(command,
                 cat("expected one config and then KEY=VALUE, got a second file '", *word, "'"));
    }
  }
  return out;
}

std::string name_override(const std::string& name) {
  return "name=" + config::quoted_if_needed(name);
}

bool is_network_name(const std::string& word) { return model_types().find(word) != nullptr; }

SampleInfo sample_of_network(const std::string& name) {
  if (name == "lenet5") return {{1, 28, 28}, 10};
  return {{3, 224, 224}, 1000};
}

ExperimentConfig config_or_network(std::string_view command, const std::string& word,
                                   const std::vector<std::string>& overrides) {
  if (is_network_name(word) && !is_file(word)) {
    // A config must name a data set, even if no data are read.
    const std::string yaml =
        cat("name: ", word, "\ndata: {set: cifar10, root: .}\n", "model: {type: ", word, "}\n",
            "optim: {type: sgd, lr: 0.01, momentum: 0.9}\n");
    return parse_config_text(yaml, word, {}, overrides);
  }
  const bool is_model_file = word.ends_with(".onnx") || word.ends_with(".safetensors") ||
                             word.ends_with(".pt") || word.ends_with(".pth");
  const bool is_path = word.find_first_of("./") != std::string::npos;
  if (is_model_file || (!is_path && !is_file(word) && !names_a_config(word))) {
    std::vector<std::string> known = model_types().names();
    const std::string networks = join(known);
    for (const ShippedConfig& config : shipped_configs()) known.push_back(config.name);
    const std::string near = is_model_file ? "" : nearest_word(word.substr(0, 100), known);
    fail_usage(command,
               cat("expected a config file, the name of a shipped config (`convscope config list`) "
                   "or a network (",
                   networks, "), got '", word, "'",
                   is_model_file ? ", a file of weights or of another format" : "",
                   near.empty() ? "" : cat("; did you mean '", near, "'?")));
  }
  return load_config(word, overrides);
}

}  // namespace convscope
