// SPDX-License-Identifier: Apache-2.0
// options.h: typed, documented settings. Layers, optimisers, schedules and data sets describe the
// keys they understand as a list of OptionField; the config loader checks YAML against it and hands
// over an Options with every key filled in. Nothing here knows YAML.
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

enum class OptionType { boolean, integer, number, text, integers, texts };
CONVSCOPE_API std::string_view name_of(OptionType type);

// std::monostate is YAML's null: "not given".
using OptionValue = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                                 std::vector<std::int64_t>, std::vector<std::string>>;
CONVSCOPE_API std::string to_text(const OptionValue& value);  // as it would stand in YAML

struct OptionField {
  std::string name;
  OptionType type = OptionType::integer;
  OptionValue default_value = {};  // monostate with required = false: may be left out
  std::string doc = {};            // one line, with the unit
  bool required = false;
  std::vector<std::string> choices = {};  // for text: the words allowed
  double min = -1e300;                    // for numbers (each entry of a list): the range allowed
  double max = 1e300;
};

class CONVSCOPE_API Options {
 public:
  Options() = default;
  // All defaults of `fields`.
  explicit Options(const std::vector<OptionField>& fields);

  void set(const std::string& name, OptionValue value) { values_[name] = std::move(value); }
  bool has(std::string_view name) const;  // present and not null
  const OptionValue& get(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;  // integers convert
  const std::string& text(std::string_view name) const;
  const std::vector<std::int64_t>& integers(std::string_view name) const;
  const std::vector<std::string>& texts(std::string_view name) const;
  const std::map<std::string, OptionValue, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

// Why `value` does not fit `field` ("expected an integer, got 'abc'"), or "" when it does. A whole
// number fits a `number` field, one integer fits an `integers` field (as a list of one).
CONVSCOPE_API std::string refusal_of(const OptionField& field, const OptionValue& value);

}  // namespace convscope
