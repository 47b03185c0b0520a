// SPDX-License-Identifier: Apache-2.0
// starter_config.h: a config to begin with, for a data set and a network, as text with every key:
// those of the recipe as they are, the others as comments with their default. Made from the tables
// of keys (config_keys()), so that a new key is in it by itself.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct StarterRequest {
  std::string data, model;  // names in dataset_types() and model_types()
  std::string file;         // that the text is for: its comment says how to run it
};
// Throws Error when a name is unknown (kInvalid) or when the images do not fit the network
// (kConfig).
CONVSCOPE_API std::string starter_config(const StarterRequest& request);

}  // namespace convscope
