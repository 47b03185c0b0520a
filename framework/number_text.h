// SPDX-License-Identifier: Apache-2.0
// number_text.h: parses numbers and, for YAML, prints real numbers. std::stod() and similar
// functions throw for numbers that are too small or too large, and depend on the locale.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace convscope {

// Parses the whole text as a number: "12", "+3", "-1.5e-3", denormals. Returns nothing for a number
// outside of the type's range, for blanks, and for "0x10".
template <class T>
std::optional<T> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the shortest text that YAML 1.1 (PyYAML) and YAML 1.2 both read back as this number. It
// always has a point, because YAML 1.1 reads 1e-5 as a string.
inline std::string real_text(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  for (int digits = 6;; ++digits) {
    char text[40];
    const auto [end, error] =
        std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
    std::string out(text, end);
    // 17 digits distinguish all doubles.
    if (error != std::errc() || (digits < 17 && parse_number<double>(out) != value)) continue;
    if (out.find('.') == std::string::npos) out.insert(std::min(out.find('e'), out.size()), ".0");
    return out;
  }
}

// Returns "0 to 1", "at least 1" or "above 0 and at most 1". A bound that is the floating-point
// neighbour of a shorter number, such as nextafter(1, 0), counts as an open bound: "at least 0 and
// below 1". A limit of +-1e300 counts as no bound.
inline std::string interval_text(double min, double max) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kMaxDigits = 1e15;  // larger integers are not written with all digits
  const auto text_of = [](double value) {
    char text[40];
    const bool whole = std::fabs(value) < kMaxDigits && value == std::trunc(value);
    const auto end = whole ? std::to_chars(text, text + sizeof text, std::llround(value)).ptr
                           : std::to_chars(text, text + sizeof text, value).ptr;
    return std::string(text, end);
  };
  const auto is_short = [&](double value) {
    return std::fpclassify(value) != FP_SUBNORMAL && text_of(value).size() <= 12;
  };
  const double below = std::nextafter(min, -kInfinity), above = std::nextafter(max, kInfinity);
  const bool has_min = min > -1e300, has_max = max < 1e300;
  const bool open_min = has_min && !is_short(min) && is_short(below);
  const bool open_max = has_max && !is_short(max) && is_short(above);
  if (has_min && has_max && !open_min && !open_max) return text_of(min) + " to " + text_of(max);
  std::string out;
  if (has_min) out = open_min ? "above " + text_of(below) : "at least " + text_of(min);
  if (has_min && has_max) out += " and ";
  if (has_max) out += open_max ? "below " + text_of(above) : "at most " + text_of(max);
  return out;
}

}  // namespace convscope
