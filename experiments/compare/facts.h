// SPDX-License-Identifier: Apache-2.0
// facts.h: what the sides of a comparison were made with, key by key, and in what they differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// "cpu" -> {"AMD EPYC"}; several values when the files of one side disagree.
using Facts = std::map<std::string, std::vector<std::string>>;
CONVSCOPE_API void add_fact(Facts& facts, const std::string& key, const std::string& value);

// One key with a value for each side, "a / b" where one side has several; "-": it has none.
struct FactRow {
  std::string key;
  std::vector<std::string> values;
  // Only some sides have the key, and those have its default: a block is there, and no more.
  bool is_default = false;
};
// The keys in which the sides do not agree, by name.
CONVSCOPE_API std::vector<FactRow> differing(const std::vector<const Facts*>& sides);

// What an env.json, or the `machine` of a benchmark's file, says; "" for what is no JSON. The load
// is that of the last minute; what differs from call to call (time, arguments) is left out.
CONVSCOPE_API void add_environment(Facts& facts, const std::string& json_text);

// "the machines differ (cpu): ...", "A began on a busy machine ...": why times may not compare.
CONVSCOPE_API std::vector<std::string> machine_warnings(const std::vector<std::string>& names,
                                                        const std::vector<const Facts*>& sides);

}  // namespace convscope
