// SPDX-License-Identifier: Apache-2.0
// options.h: typed, documented settings. Layers, optimisers, schedules and data sets list the keys
// that they accept as OptionFields. The config loader checks the YAML against this list and passes
// an Options object with every key filled in. This file does not depend on YAML.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/check.h"

namespace convscope {

enum class OptionType { boolean, integer, number, text, integers, numbers, texts };
CONVSCOPE_API std::string_view name_of(OptionType type);

// std::monostate is YAML's null: the key has no value.
using OptionValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;
CONVSCOPE_API std::string to_text(const OptionValue& value);  // as written in YAML

struct OptionField {
  std::string name;
  OptionType type = OptionType::integer;
  OptionValue default_value = {};  // monostate and not required: the key is optional
  std::string doc = {};            // one line, with the unit
  bool required = false;
  std::vector<std::string> choices = {};  // text: the permitted words
  double min = -1e300;                    // numbers (each entry of a list): the permitted range
  double max = 1e300;  // a text with a range may also be a whole number: padding: 2
};

class CONVSCOPE_API Options {
 public:
  Options() = default;
  // Takes the default values of all `fields`.
  explicit Options(const std::vector<OptionField>& fields);

  void set(const std::string& name, OptionValue value) { values_[name] = std::move(value); }
  bool has(std::string_view name) const;  // present and not null
  const OptionValue& get(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // also converts integers
  const std::string& text(std::string_view name) const;
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<double>& numbers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;
  const std::map<std::string, OptionValue, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

// Returns why `value` does not fit `field` ("expected an integer, got 'abc'"), or "" if it fits. An
// integer also fits a `number` field, and an `integers` field (as a list with one entry).
CONVSCOPE_API std::string refusal_of(const OptionField& field, const OptionValue& value);

}  // namespace convscope
