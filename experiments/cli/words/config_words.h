// SPDX-License-Identifier: Apache-2.0
// config_words.h: from the words of a command line to a config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/config/build.h"
#include "experiments/config/experiment_config.h"

namespace convscope {

// CONFIG and KEY=VALUE of a command that takes both in any order. A file whose name holds a '=' is
// the config when it is the first word, or when no other word can be one. Without any, `config` is
// empty; a second file is a mistake in the call of `command`.
struct ConfigWords {
  std::string config;
  std::vector<std::string> overrides;
};
ConfigWords split_config_words(std::string_view command, const std::vector<std::string>& words);

// "name=..." for --name: the text as it is, were it "1" or "yes".
std::string name_override(const std::string& name);

// Whether the word is the registered name of a network (resnet18), of which sample_of_network()
// gives the images: those of ImageNet or, for lenet5, of MNIST.
bool is_network_name(const std::string& word);
SampleInfo sample_of_network(const std::string& name);

// The config that a word names: a file, a shipped config, or a network by its name. Another word,
// such as an ONNX file, is a mistake in the call of `command`, which says what is expected.
ExperimentConfig config_or_network(std::string_view command, const std::string& word,
                                   const std::vector<std::string>& overrides);

}  // namespace convscope
