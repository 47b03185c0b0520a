// SPDX-License-Identifier: Apache-2.0
// facts.h: the configuration and environment of a comparison's sides, key by key, and how they
// differ.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Facts by key: "cpu" -> {"AMD EPYC"}; several values when the files of one side disagree.
using Facts = std::map<std::string, std::vector<std::string>>;
CONVSCOPE_API void add_fact(Facts& facts, const std::string& key, const std::string& value);

// One key with a value for each side: "a / b" if the side has several values, "-" if it has none.
struct FactRow {
  std::string key;
  std::vector<std::string> values;
  // True if every side that has the key has its default value. The other sides lack the key only
  // because they lack its block.
  bool is_default = false;
};
// Returns the keys in which the sides differ, by name.
CONVSCOPE_API std::vector<FactRow> differing(const std::vector<const Facts*>& sides);

// Adds the facts of an env.json, or of the object `machine` in a benchmark's file. Adds nothing if
// the text is not JSON. The load is the average of the last minute. Facts that differ in every call
// (time, arguments) are left out.
CONVSCOPE_API void add_environment(Facts& facts, const std::string& json_text);

// Returns reasons why times may not be comparable: "the machines differ (cpu): ...", "A began on a
// busy ...".
CONVSCOPE_API std::vector<std::string> machine_warnings(const std::vector<std::string>& names,
                                                        const std::vector<const Facts*>& sides);

}  // namespace convscope
