// SPDX-License-Identifier: Apache-2.0
// starter_config.h: a starter config with every key for a data set and a network. The keys that the
// recipe sets are active; all others are comments with their defaults. The text is made from the
// key tables (config_keys()), so new keys appear in it automatically.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

struct StarterRequest {
  std::string data, model;  // names in dataset_types() and model_types()
  std::string file;         // the file's name, for the comment that says how to run it
};
// Returns the text. Throws Error when a name is unknown (kInvalid) or the images do not fit the
// network (kConfig).
CONVSCOPE_API std::string starter_config(const StarterRequest& request);

}  // namespace convscope
