// SPDX-License-Identifier: Apache-2.0
// scalar.cpp: reads plain scalars by the core schema of YAML 1.2.2 (section 10.3.2), and writes
// values. YAML 1.1 would turn `no` into false, `010` into 8 and `12:30` into 750; here they are
// text, or an error where text does not fit. Written values are read back unchanged by both
// schemas, because other programs (PyYAML) use YAML 1.1.
#include <charconv>
#include <limits>
#include <optional>

#include "experiments/config/document.h"
#include "framework/number_text.h"
#include "framework/registry.h"

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

// Accepts [-+]?[0-9]+ without leading zeros: YAML 1.1 reads 010 as 8, YAML 1.2 as 10.
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

// Parses hexadecimal or octal digits without a sign.
std::optional<std::int64_t> integer_of_base(std::string_view digits, int base) {
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  const bool whole = error == std::errc() && end == digits.data() + digits.size() && value >= 0;
  return whole ? std::optional(value) : std::nullopt;
}

OptionValue typed_plain(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return std::monostate{};
  }
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const std::string_view view = text;
  std::optional<std::int64_t> whole;
  if (is_decimal_integer(text)) whole = parse_number<std::int64_t>(text);
  if (view.starts_with("0x")) whole = integer_of_base(view.substr(2), 16);
  if (view.starts_with("0o")) whole = integer_of_base(view.substr(2), 8);
  if (whole) return *whole;
  if (is_real(text)) {
    const std::optional<double> real = parse_number<double>(text);
    return real ? OptionValue(*real) : OptionValue(text);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  if (text == ".inf" || text == ".Inf" || text == "+.inf") return infinity;
  if (text == "-.inf" || text == "-.Inf") return -infinity;
  if (text == ".nan" || text == ".NaN") return std::numeric_limits<double>::quiet_NaN();
  return text;
}

// Returns whether YAML 1.1 (PyYAML) reads the word as a boolean. In YAML 1.2, and here, the same
// word is text.
bool is_boolean_of_yaml_1_1(std::string_view text) {
  if (text.size() > 3) return false;
  std::string word;
  for (const char c : text) word += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return word == "y" || word == "n" || word == "yes" || word == "no" || word == "on" ||
         word == "off";
}

// Returns whether the text is like a number or date of YAML 1.1: 010, 1_000, 0b1, 1:30, 2024-01-31,
// -.5, .inf.
bool is_like_a_number(std::string_view text) {
  const bool begins = is_digit(text[0]) || text[0] == '+' || text[0] == '-' || text[0] == '.';
  if (!begins) return false;
  if (text.starts_with("./") || text.starts_with("../")) return false;
  return text[0] == '.' || (text.size() > 1 && text[1] == '.') ||
         text.find_first_not_of("0123456789abcdefABCDEFxXoT_+-.:tZz ") == std::string_view::npos;
}

// Returns the byte length of the character at `i` if YAML readers treat it as a line break, as a
// byte order mark or as an invalid character: NEL and other control characters, U+2028, U+2029,
// U+FEFF, U+FFFE, U+FFFF. Returns 0 for any other character.
std::size_t unprintable_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) {
    return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7F) return 1;
  if (byte(0) == 0xC2 && byte(1) >= 0x80 && byte(1) < 0xA0) return 2;
  if (byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9)) return 3;
  if (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) return 3;
  if (byte(0) == 0xEF && byte(1) == 0xBF && (byte(2) == 0xBE || byte(2) == 0xBF)) return 3;
  return 0;
}

// Returns "\n", "\x1b" or "\u2028" for the character of `length` bytes.
std::string escaped(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  if (character == "\r") return "\\r";
  constexpr int kLeadBits[] = {0x7F, 0x1F, 0x0F};
  unsigned code = static_cast<unsigned char>(character[0]) &
                  static_cast<unsigned>(kLeadBits[character.size() - 1]);
  for (const char c : character.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3Fu);
  const int digits = code < 0x100 ? 2 : 4;
  std::string out = digits == 2 ? "\\x" : "\\u";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[code >> shift & 15u];
  }
  return out;
}

// Returns whether the unquoted text is the same text in YAML 1.1 and 1.2, in block and flow style.
bool reads_as_text(const std::string& text) {
  if (text.empty() || !std::holds_alternative<std::string>(typed_plain(text))) return false;
  if (is_boolean_of_yaml_1_1(text) || is_like_a_number(text)) return false;
  // Text with any of these characters is quoted, because each has a meaning somewhere in YAML.
  // Unnecessary quotes do no harm.
  if (text.find_first_of(":#\"'\\,[]{}&*!|>%@`<=") != std::string::npos) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (unprintable_length(text, i) > 0) return false;
  }
  return text.front() != ' ' && text.back() != ' ' && text.front() != '-' && text.front() != '?' &&
         text != "...";
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = unprintable_length(text, i);
    if (length > 0) {
      out += escaped(text.substr(i, length));
      i += length;
      continue;
    }
    if (text[i] == '"' || text[i] == '\\') out += '\\';
    out += text[i++];
  }
  return out + "\"";
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

std::string quoted_if_needed(const std::string& text) {
  return reads_as_text(text) ? text : double_quoted(text);
}

std::string yaml_text(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted_if_needed(*text);
  if (const auto* words = std::get_if<std::vector<std::string>>(&value)) {
    std::vector<std::string> quoted;
    for (const std::string& word : *words) quoted.push_back(quoted_if_needed(word));
    return "[" + join(quoted) + "]";
  }
  return to_text(value);
}

}  // namespace convscope::config
