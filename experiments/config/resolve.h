// SPDX-License-Identifier: Apache-2.0
// resolve.h: converts a tree of YAML nodes to a typed config and notes every mistake.
#pragma once

#include "experiments/config/document.h"
#include "experiments/config/experiment_config.h"

namespace convscope::config {

ExperimentConfig resolve(const Node& root, const std::string& default_name, Mistakes& mistakes);

// Returns the value of a node for a field. If the value does not fit, notes the mistake and returns
// nothing.
std::optional<OptionValue> read_value(const Node& node, const OptionField& field,
                                      const std::string& path, Mistakes& mistakes);

// Converts a whole number to a real number or to a list of one element, as the field's type
// requires.
OptionValue in_form_of(const OptionField& field, const OptionValue& value);

// Returns the sentence of an Error without its "[operation] ".
std::string sentence_of(const Error& error);

// Returns "optim.lr" for the block "optim" and the key "lr".
std::string joined(const std::string& path, const std::string& key);
// Returns what to do about an unknown key of a block: "; did you mean 'epochs'?".
std::string hint_for(const Node::Entry& entry, const std::string& path,
                     const std::vector<std::string>& known);
// Returns the origin to report for an error sentence about a block. If the sentence names keys of
// the block, returns the origin of their latest value; otherwise returns the origin of the block.
const Origin& blamed(const Node& block, const std::string& sentence);

}  // namespace convscope::config
