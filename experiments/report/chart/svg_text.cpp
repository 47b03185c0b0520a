// SPDX-License-Identifier: Apache-2.0
// svg_text.cpp: text in SVG and HTML: escaping, width, shortening.
#include "experiments/report/chart/svg_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace convscope {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

// Returns the bytes of the UTF-8 character at `at`; 0 when there is none.
std::size_t character_bytes(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t bytes = lead < 0x80                   ? 1
                            : lead >= 0xC2 && lead < 0xE0 ? 2
                            : lead >= 0xE0 && lead < 0xF0 ? 3
                            : lead >= 0xF0 && lead < 0xF5 ? 4
                                                          : 0;
  if (bytes == 0 || at + bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  if (bytes < 3) return bytes;
  const auto next = static_cast<unsigned char>(text[at + 1]);
  // Rejects overlong encodings, surrogates, code points above U+10FFFF, and the non-characters
  // U+FFFE and U+FFFF.
  if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
      (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F)) {
    return 0;
  }
  const bool non_character =
      lead == 0xEF && next == 0xBF && static_cast<unsigned char>(text[at + 2]) >= 0xBE;
  return non_character ? 0 : bytes;
}

// Returns the width of a character relative to the font size: that of DejaVu Sans, which is wide,
// plus a margin.
double character_width(std::string_view c) {
  if (c.size() >= 3) return 1.0;
  if (c.size() == 2) return 0.68;
  if (std::string_view("iljI.,:;'|!").find(c[0]) != std::string_view::npos) return 0.34;
  if (std::string_view("frt()[]{} -/\\\"").find(c[0]) != std::string_view::npos) return 0.42;
  if (std::string_view("mwMW@%").find(c[0]) != std::string_view::npos) return 0.98;
  if (std::string_view("+=<>~#").find(c[0]) != std::string_view::npos) return 0.86;
  if (c[0] >= '0' && c[0] <= '9') return 0.645;
  return c[0] >= 'A' && c[0] <= 'Z' ? 0.70 : 0.62;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text, at);
    out.push_back(bytes == 0 ? kReplacement : text.substr(at, bytes));
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (std::string_view c : characters(text)) {
    if (c == "&") {
      out += "&amp;";
    } else if (c == "<") {
      out += "&lt;";
    } else if (c == ">") {
      out += "&gt;";
    } else if (c == "\"") {
      out += "&quot;";
    } else if (c == "'") {
      out += "&#39;";
    } else {
      const bool control = c.size() == 1 && static_cast<unsigned char>(c[0]) < 0x20 &&
                           c[0] != '\n' && c[0] != '\t' && c[0] != '\r';
      out += control ? kReplacement : c;
    }
  }
  return out;
}

double text_width(std::string_view text, double font_size) {
  double width = 0;
  for (std::string_view c : characters(text)) width += character_width(c) * font_size;
  return width;
}

std::string elide(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  const std::vector<std::string_view> all = characters(text);
  const double room = width - font_size;  // width of the ellipsis
  double used = 0;
  std::size_t front = 0, back = 0;
  while (front + back < all.size()) {
    const bool at_front = front <= back;
    const std::string_view c = at_front ? all[front] : all[all.size() - 1 - back];
    used += character_width(c) * font_size;
    if (used > room) break;
    ++(at_front ? front : back);
  }
  std::string out;
  for (std::size_t i = 0; i < front; ++i) out += all[i];
  out += kEllipsis;
  for (std::size_t i = all.size() - back; i < all.size(); ++i) out += all[i];
  return out;
}

std::vector<std::string> wrap_text(std::string_view text, double font_size, double width,
                                   std::size_t most_lines) {
  constexpr std::string_view kBreaks = ".,_=/-+";
  std::vector<std::string> lines;
  const std::vector<std::string_view> all = characters(text);
  std::size_t from = 0;
  while (from < all.size()) {
    if (all[from] == " ") {  // no line begins with a blank
      ++from;
      continue;
    }
    if (lines.size() + 1 >= most_lines) {
      std::string rest;
      for (std::size_t i = from; i < all.size(); ++i) rest += all[i];
      lines.push_back(elide(rest, font_size, width));
      break;
    }
    double used = 0;
    std::size_t end = from, at_space = 0, at_sign = 0;
    for (; end < all.size(); ++end) {
      used += character_width(all[end]) * font_size;
      if (used > width && end > from) break;
      if (all[end] == " ") at_space = end;
      if (all[end].size() == 1 && kBreaks.find(all[end][0]) != std::string_view::npos) {
        at_sign = end + 1;
      }
    }
    // A word is cut only where the line would otherwise be less than half full.
    if (end < all.size() && all[end] != " ") {
      const std::size_t half = from + (end - from) / 2;
      if (at_space > from && (at_space >= half || at_sign <= from)) {
        end = at_space;
      } else if (at_sign > from) {
        end = at_sign;
      }
    }
    std::string line;
    for (std::size_t i = from; i < end; ++i) line += all[i];
    while (!line.empty() && line.back() == ' ') line.pop_back();
    lines.push_back(std::move(line));
    from = end;
  }
  return lines;
}

std::string measured_text(double value, double std) {
  if (!std::isfinite(value)) return "-";
  if (value == 0 && !(std > 0)) return "0";
  const auto place = [](double of) {
    return of > 0 ? static_cast<int>(std::floor(std::log10(of))) : 0;
  };
  const double size = std::abs(value);
  if (!(std > 0) || !std::isfinite(std)) {
    return fmt::format("{:.{}f}", value, std::clamp(2 - place(size), 0, 9));
  }
  // The value is printed with at most six digits, even if the deviation would justify more.
  const int decimals = std::clamp(std::min(1 - place(std), 5 - place(size)), 0, 9);
  return fmt::format("{:.{}f} \xC2\xB1 {:.{}f}", value, decimals, std, decimals);
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  return fmt::format("{:.{}g}", value == 0 ? 0.0 : value, digits);  // no "-0"
}

}  // namespace convscope
