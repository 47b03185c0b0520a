// SPDX-License-Identifier: Apache-2.0
// options.cpp: typed, documented settings.
#include "framework/options.h"

#include <algorithm>
#include <cmath>

#include "framework/number_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

std::string quoted(const OptionValue& value) { return "'" + to_text(value) + "'"; }

// Prints all digits of a value. With six digits, 0.9999999 would print as 1.
std::string range_refusal(const OptionField& field, const OptionValue& value, double number) {
  if (number >= field.min && number <= field.max) return "";
  return cat("expected ", interval_text(field.min, field.max), ", got ", to_text(value));
}

// Returns why a number is refused, or "". Kernels round the numbers of a config to f32. If the
// rounding makes a number 0 or infinite, training would use another value than the config says.
std::string f32_refusal(double number) {
  const auto rounded = static_cast<float>(number);
  if (number == 0 || (rounded != 0 && std::isfinite(rounded))) return "";
  return cat("expected 0 or a size from 1.4e-45 to 3.4e+38, because f32 holds no ",
             rounded == 0 ? "smaller" : "larger", " one, got ", real_text(number));
}

std::string real_refusal(const OptionField& field, double number) {
  const std::string refusal = range_refusal(field, number, number);
  return refusal.empty() ? f32_refusal(number) : refusal;
}

}  // namespace

std::string_view name_of(OptionType type) {
  switch (type) {
    case OptionType::boolean:
      return "true or false";
    case OptionType::integer:
      return "an integer";
    case OptionType::number:
      return "a number";
    case OptionType::text:
      return "text";
    case OptionType::integers:
      return "an integer or a list of integers";
    case OptionType::numbers:
      return "a list of numbers";
    case OptionType::texts:
      return "a list of words";
  }
  return "";
}

std::string to_text(const OptionValue& value) {
  struct Writer {
    std::string operator()(std::monostate) const { return "null"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return real_text(v); }
    std::string operator()(const std::string& v) const { return v; }
    std::string operator()(const std::vector<std::int64_t>& v) const {
      std::vector<std::string> words;
      for (std::int64_t x : v) words.push_back(std::to_string(x));
      return "[" + join(words) + "]";
    }
    std::string operator()(const std::vector<double>& v) const {
      std::vector<std::string> words;
      for (double x : v) words.push_back(real_text(x));
      return "[" + join(words) + "]";
    }
    std::string operator()(const std::vector<std::string>& v) const { return "[" + join(v) + "]"; }
  };
  return std::visit(Writer{}, value);
}

Options::Options(const std::vector<OptionField>& fields) {
  for (const OptionField& field : fields) values_[field.name] = field.default_value;
}

bool Options::has(std::string_view name) const {
  const auto it = values_.find(name);
  return it != values_.end() && !std::holds_alternative<std::monostate>(it->second);
}

const OptionValue& Options::get(std::string_view name) const {
  const auto it = values_.find(name);
  CONVSCOPE_CHECK(it != values_.end(), "options", "expected a value for '", name, "', got none");
  return it->second;
}

namespace {
template <class T>
const T& typed(const Options& options, std::string_view name, OptionType type) {
  const OptionValue& value = options.get(name);
  const T* held = std::get_if<T>(&value);
  CONVSCOPE_CHECK(held != nullptr, "options", "expected '", name, "' to be ", name_of(type),
                  ", got ", quoted(value));
  return *held;
}
}  // namespace

bool Options::flag(std::string_view name) const {
  return typed<bool>(*this, name, OptionType::boolean);
}
std::int64_t Options::integer(std::string_view name) const {
  return typed<std::int64_t>(*this, name, OptionType::integer);
}
double Options::number(std::string_view name) const {
  if (const auto* whole = std::get_if<std::int64_t>(&get(name))) {
    return static_cast<double>(*whole);
  }
  return typed<double>(*this, name, OptionType::number);
}
const std::string& Options::text(std::string_view name) const {
  return typed<std::string>(*this, name, OptionType::text);
}
const std::vector<std::int64_t>& Options::integers(std::string_view name) const {
  return typed<std::vector<std::int64_t>>(*this, name, OptionType::integers);
}
const std::vector<double>& Options::numbers(std::string_view name) const {
  return typed<std::vector<double>>(*this, name, OptionType::numbers);
}
const std::vector<std::string>& Options::texts(std::string_view name) const {
  return typed<std::vector<std::string>>(*this, name, OptionType::texts);
}

std::string refusal_of(const OptionField& field, const OptionValue& value) {
  const auto wrong_type = [&] {
    return cat("expected ", name_of(field.type), ", got ", quoted(value));
  };
  if (std::holds_alternative<std::monostate>(value)) {
    return field.required ? wrong_type() : "";
  }
  switch (field.type) {
    case OptionType::boolean:
      return std::holds_alternative<bool>(value) ? "" : wrong_type();
    case OptionType::integer: {
      const auto* whole = std::get_if<std::int64_t>(&value);
      return whole == nullptr ? wrong_type()
                              : range_refusal(field, value, static_cast<double>(*whole));
    }
    case OptionType::number: {
      if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        return range_refusal(field, value, static_cast<double>(*whole));
      }
      const auto* real = std::get_if<double>(&value);
      if (real == nullptr) return wrong_type();
      return real_refusal(field, *real);
    }
    case OptionType::text: {
      const auto* whole = std::get_if<std::int64_t>(&value);
      if (whole != nullptr && field.max < 1e300) {
        return range_refusal(field, value, static_cast<double>(*whole));
      }
      const auto* word = std::get_if<std::string>(&value);
      if (word == nullptr) return wrong_type();
      if (field.choices.empty() || std::ranges::count(field.choices, *word) > 0) return "";
      const std::string near = nearest_word(*word, field.choices);
      return cat("expected one of ", join(field.choices), ", got ", quoted(value),
                 near.empty() ? "" : cat("; did you mean '", near, "'?"));
    }
    case OptionType::integers: {
      if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        return range_refusal(field, value, static_cast<double>(*whole));
      }
      const auto* list = std::get_if<std::vector<std::int64_t>>(&value);
      if (list == nullptr) return wrong_type();
      for (std::int64_t entry : *list) {
        const std::string refusal = range_refusal(field, entry, static_cast<double>(entry));
        if (!refusal.empty()) return refusal;
      }
      return "";
    }
    case OptionType::numbers: {
      const auto* list = std::get_if<std::vector<double>>(&value);
      if (list == nullptr) return wrong_type();
      for (double entry : *list) {
        const std::string refusal = real_refusal(field, entry);
        if (!refusal.empty()) return refusal;
      }
      return "";
    }
    case OptionType::texts:
      return std::holds_alternative<std::vector<std::string>>(value) ? "" : wrong_type();
  }
  return "";
}

}  // namespace convscope
