// SPDX-License-Identifier: Apache-2.0
// config_words.h: converts the words of a command line to a config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/config/build.h"
#include "experiments/config/experiment_config.h"

namespace convscope {

// A config and overrides KEY=VALUE from the words of a command line, in any order. A file whose
// name contains '=' is the config if it is the first word, or if no other word can be the config.
// Without a config, `config` is empty; a second file is a usage error of `command`.
struct ConfigWords {
  std::string config;
  std::vector<std::string> overrides;
};
ConfigWords split_config_words(std::string_view command, const std::vector<std::string>& words);

// Returns "name=..." for --name; the text is quoted where YAML would read a number or a boolean.
std::string name_override(const std::string& name);

// Returns whether the word is the registered name of a network (resnet18). For such a name,
// sample_of_network() returns the shape and the classes of the images: those of MNIST for lenet5,
// and those of ImageNet otherwise.
bool is_network_name(const std::string& word);
SampleInfo sample_of_network(const std::string& name);

// Returns the config that a word names: a file, a shipped config, or a network. Any other word,
// such as an ONNX file, is a usage error of `command`.
ExperimentConfig config_or_network(std::string_view command, const std::string& word,
                                   const std::vector<std::string>& overrides);

}  // namespace convscope
