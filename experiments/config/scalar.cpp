// SPDX-License-Identifier: Apache-2.0
// scalar.cpp: what a plain scalar means, by the core schema of YAML 1.2.2 (section 10.3.2), and how
// a value is written so that it reads back. YAML 1.1 would turn `no` into false, `010` into 8 and
// `12:30` into 750; here they are text, and where text does not fit, an error.
#include <charconv>
#include <cmath>
#include <limits>

#include "experiments/config/document.h"

namespace convscope::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool all_digits(std::string_view text) {
  if (text.empty()) return false;
  for (char c : text) {
    if (!is_digit(c)) return false;
  }
  return true;
}

// [-+]?[0-9]+, but not with leading zeros: YAML 1.1 reads 010 as 8, YAML 1.2 as 10.
bool is_decimal_integer(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return all_digits(text) && (text.size() == 1 || text[0] != '0');
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool is_real(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view digits = text.substr(exponent + 1);
    if (digits.starts_with('-') || digits.starts_with('+')) digits.remove_prefix(1);
    if (!all_digits(digits)) return false;
    text = text.substr(0, exponent);
  }
  const std::size_t dot = text.find('.');
  if (dot == std::string_view::npos) {
    return all_digits(text) && (exponent != std::string_view::npos);
  }
  const std::string_view before = text.substr(0, dot), after = text.substr(dot + 1);
  return (before.empty() ? all_digits(after)
                         : all_digits(before) && (after.empty() || all_digits(after)));
}

bool parse_integer(std::string_view text, int base, std::int64_t& value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

OptionValue parse_real(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || end != text.data() + text.size()) {
    return std::string(text);
  }
  return value;
}

OptionValue typed_plain(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return std::monostate{};
  }
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::int64_t whole = 0;
  if (is_decimal_integer(text) && parse_integer(text, 10, whole)) return whole;
  const std::string_view view = text;
  if (view.starts_with("0x") && parse_integer(view.substr(2), 16, whole) && whole >= 0)
    return whole;
  if (view.starts_with("0o") && parse_integer(view.substr(2), 8, whole) && whole >= 0) return whole;
  if (is_real(text)) return parse_real(text);
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == ".inf" || text == ".Inf" || text == "+.inf") return infinity;
  if (text == "-.inf" || text == "-.Inf") return -infinity;
  if (text == ".nan" || text == ".NaN") return std::numeric_limits<double>::quiet_NaN();
  return text;
}

}  // namespace

OptionValue typed_scalar(const Node& scalar) {
  if (scalar.kind == Node::Kind::null) return std::monostate{};
  if (scalar.quoted) return scalar.text;
  return typed_plain(scalar.text);
}

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out;
  for (char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? ' ' : c;
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::scalar:
      break;
  }
  return cat(node.quoted ? "the text '" : "'", printable(node.text), "'");
}

std::string quoted_if_needed(const std::string& text, bool in_flow) {
  bool plain = !text.empty() && std::holds_alternative<std::string>(typed_plain(text));
  // Characters that mean something to YAML somewhere; quoting too often does no harm.
  const char* special = in_flow ? ":#\"'\\,[]{}\n\t&*!|>%@`<=" : ":#\"'\\\n\t&*!|>%@`<=[]{},";
  if (text.find_first_of(special) != std::string::npos) plain = false;
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7F)
      plain = false;
  }
  if (plain && (text.front() == ' ' || text.back() == ' ' || text.front() == '-' ||
                text.front() == '?' || text == "---" || text == "...")) {
    plain = false;
  }
  if (plain) return text;
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7F) {
      constexpr char kDigits[] = "0123456789abcdef";
      out += cat("\\x", kDigits[c >> 4], kDigits[c & 15]);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace convscope::config
