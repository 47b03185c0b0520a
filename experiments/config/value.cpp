// SPDX-License-Identifier: Apache-2.0
// value.cpp: converts one YAML value for one field, and explains a value that does not fit.
#include <algorithm>
#include <cmath>

#include "experiments/config/resolve.h"
#include "framework/io/former_names.h"

namespace convscope::config {
namespace {

bool is_yes_or_no(const std::string& text) {
  for (const char* word : {"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off",
                           "OFF", "y", "Y", "n", "N"}) {
    if (text == word) return true;
  }
  return false;
}

bool has_leading_zero(const std::string& text) {
  const std::size_t first = text.find_first_not_of("+-");
  return first != std::string::npos && text.size() > first + 1 && text[first] == '0' &&
         text.find_first_not_of("0123456789", first) == std::string::npos;
}

bool is_too_long_integer(const std::string& text) {
  const std::size_t first = text.find_first_not_of("+-");
  return first != std::string::npos && text.size() - first > 18 &&
         text.find_first_not_of("0123456789", first) == std::string::npos;
}

// Returns whether a number is outside the range of double: 1e999, 1e-999.
bool is_beyond_double(const std::string& text) {
  const std::size_t exponent = text.find_first_of("eE");
  return exponent != std::string::npos &&
         text.find_first_not_of("0123456789.+-eE") == std::string::npos &&
         text.find_first_of("0123456789") < exponent &&
         text.find_first_of("0123456789", exponent) != std::string::npos;
}

// Returns a hint at the right spelling of a text that YAML 1.1 reads differently.
std::string advice(const Node& scalar, OptionType type) {
  const std::string& text = scalar.text;
  const bool number = type == OptionType::integer || type == OptionType::integers ||
                      type == OptionType::number || type == OptionType::numbers;
  if (scalar.quoted && type != OptionType::text && type != OptionType::texts) {
    return "; leave the quotes out";
  }
  if (type == OptionType::boolean && is_yes_or_no(text)) return "; write true or false";
  if (number && has_leading_zero(text)) {
    const std::string digits =
        text.substr(std::min(text.find_first_not_of("+-0"), text.size() - 1));
    return cat("; write ", digits, ", or 0o", digits, " for octal");
  }
  if (number && is_too_long_integer(text)) return ", more than 64 bits hold";
  if (type == OptionType::number && is_beyond_double(text)) return ", which 64 bits cannot hold";
  if (type == OptionType::text || type == OptionType::texts) {
    return cat("; write \"", printable(text), "\" if text is meant");
  }
  return "";
}

// Reads a list whose entries have the type T.
template <class T>
std::optional<OptionValue> read_list(const Node& node, OptionField entry, OptionType type,
                                     const std::string& path, Mistakes& mistakes) {
  entry.type = type;
  entry.required = true;
  std::vector<T> out;
  bool fits = true;
  for (const Node& item : node.items) {
    const std::optional<OptionValue> value = read_value(item, entry, path, mistakes);
    fits = fits && value.has_value();
    if (value) out.push_back(std::get<T>(*value));
  }
  return fits ? std::optional<OptionValue>(std::move(out)) : std::nullopt;
}

}  // namespace

std::optional<OptionValue> read_value(const Node& node, const OptionField& field,
                                      const std::string& path, Mistakes& mistakes) {
  const auto refuse = [&](const std::string& sentence) {
    mistakes.add(node.origin, cat(path, ": ", sentence));
    return std::nullopt;
  };
  if (node.kind == Node::Kind::list && field.type == OptionType::integers) {
    return read_list<std::int64_t>(node, field, OptionType::integer, path, mistakes);
  }
  if (node.kind == Node::Kind::list && field.type == OptionType::numbers) {
    return read_list<double>(node, field, OptionType::number, path, mistakes);
  }
  if (node.kind == Node::Kind::list && field.type == OptionType::texts) {
    return read_list<std::string>(node, field, OptionType::text, path, mistakes);
  }
  if (node.kind == Node::Kind::null) {
    if (!field.required) return in_form_of(field, field.default_value);
    return refuse(cat("expected ", name_of(field.type), ", got nothing"));
  }
  if (node.kind != Node::Kind::scalar) {
    return refuse(cat("expected ", name_of(field.type), ", got ", describe(node)));
  }
  OptionValue value = typed_scalar(node);
  if (auto* word = std::get_if<std::string>(&value); word != nullptr && !field.choices.empty()) {
    if (std::ranges::count(field.choices, todays_name(*word)) > 0) *word = accepted_name(*word);
  }
  if (const auto* real = std::get_if<double>(&value); real != nullptr && !std::isfinite(*real)) {
    return refuse(cat("expected a finite number, got ", describe(node)));
  }
  const bool is_number = std::holds_alternative<double>(value) && field.type == OptionType::number;
  OptionField plain{.name = field.name, .type = field.type};
  if (field.type == OptionType::text) plain.max = field.max;  // with a range: also whole numbers
  if (!is_number && !refusal_of(plain, value).empty()) {
    return refuse(
        cat("expected ", name_of(field.type), ", got ", describe(node), advice(node, field.type)));
  }
  const std::string refusal = refusal_of(field, value);
  if (!refusal.empty()) return refuse(refusal);
  return in_form_of(field, value);
}

OptionValue in_form_of(const OptionField& field, const OptionValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (whole != nullptr && field.type == OptionType::integers) {
    return std::vector<std::int64_t>{*whole};
  }
  if (whole != nullptr && field.type == OptionType::number) return static_cast<double>(*whole);
  return value;
}

}  // namespace convscope::config
