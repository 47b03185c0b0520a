// SPDX-License-Identifier: Apache-2.0
// ply.cpp: the vertices of a PLY file as a cloud of points.
#include "datasets/points/ply.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr const char* kBlanks = " \t\r\n";

enum class Number { i8, u8, i16, u16, i32, u32, f32, f64 };

std::size_t size_of(Number type) {
  constexpr std::size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 8};
  return kSizes[static_cast<int>(type)];
}

std::optional<Number> number_of(std::string_view word) {
  constexpr std::string_view kWords[][2] = {
      {"char", "int8"}, {"uchar", "uint8"}, {"short", "int16"},   {"ushort", "uint16"},
      {"int", "int32"}, {"uint", "uint32"}, {"float", "float32"}, {"double", "float64"}};
  for (int i = 0; i < 8; ++i) {
    if (word == kWords[i][0] || word == kWords[i][1]) return static_cast<Number>(i);
  }
  return std::nullopt;
}

struct Property {
  std::string name;
  Number type = Number::f32;
  std::optional<Number> count = {};  // for a list: the type of its length
};

struct Element {
  std::string name;
  std::uint64_t rows = 0;
  std::vector<Property> properties = {};

  // Returns the minimum size of a row in bytes. The size is exact if no property is a list.
  std::uint64_t least_bytes() const {
    std::uint64_t out = 0;
    for (const Property& p : properties) out += size_of(p.count ? *p.count : p.type);
    return out;
  }
  bool has_lists() const {
    for (const Property& p : properties) {
      if (p.count) return true;
    }
    return false;
  }
};

class PlyReader {
 public:
  PlyReader(Bytes file, std::string name) : file_(file), name_(std::move(name)) {}

  Cloud read() {
    read_header();
    std::optional<Cloud> cloud;
    for (const Element& element : elements_) {
      if (element.name == "vertex" && !cloud) {
        cloud = vertices(element);
      } else {
        pass(element);
      }
    }
    if (!cloud) refuse("expected an element 'vertex' in the header, got none");
    expect_end();
    return std::move(*cloud);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::kData, "ply", cat(name_, ": ", why));
  }

  std::string_view rest() const {
    return {reinterpret_cast<const char*>(file_.data()) + at_, file_.size() - at_};
  }

  // Returns the next line without its end, \n or \r\n.
  std::string_view line() {
    constexpr std::size_t kMax = 1 << 16;
    const std::string_view text = rest().substr(0, kMax);
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) refuse("expected a line 'end_header', got none");
    at_ += end + 1;
    return text.substr(0, end > 0 && text[end - 1] == '\r' ? end - 1 : end);
  }

  static std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> out;
    while (true) {
      const std::size_t begin = text.find_first_not_of(" \t");
      if (begin == std::string_view::npos) return out;
      text.remove_prefix(begin);
      const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
      out.push_back(text.substr(0, end));
      text.remove_prefix(end);
    }
  }

  void read_header() {
    if (!rest().starts_with("ply\n") && !rest().starts_with("ply\r\n")) {
      refuse("expected a file that begins with a line 'ply', got something else");
    }
    line();
    bool has_format = false;
    for (std::string_view text = line();; text = line()) {
      const std::vector<std::string_view> w = words(text);
      if (w.size() == 1 && w[0] == "end_header") break;
      if (w.empty() || w[0] == "comment" || w[0] == "obj_info") continue;
      if (w[0] == "format" && w.size() == 3) {
        read_format(w[1], w[2]);
        has_format = true;
      } else if (w[0] == "element" && w.size() == 3) {
        elements_.push_back({.name = std::string(w[1]), .rows = count_of(w[2], text)});
      } else if (w[0] == "property" && w.size() >= 3 && !elements_.empty()) {
        elements_.back().properties.push_back(property_of(w, text));
      } else {
        refuse(
            cat("expected a line 'format', 'element', 'property' or 'comment' in the header, "
                "got '",
                text.substr(0, 80), "'"));
      }
    }
    if (!has_format) refuse("expected a line 'format' in the header, got none");
  }

  void read_format(std::string_view format, std::string_view version) {
    is_ascii_ = format == "ascii";
    if ((is_ascii_ || format == "binary_little_endian") && version == "1.0") return;
    refuse(cat("expected format 'ascii 1.0' or 'binary_little_endian 1.0', got '", format, " ",
               version, "'; write the file again in one of them"));
  }

  std::uint64_t count_of(std::string_view word, std::string_view line_text) const {
    std::uint64_t out = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out);
    if (error != std::errc() || end != word.data() + word.size() || out > (1ull << 40)) {
      refuse(cat("expected a number of rows, got '", line_text.substr(0, 80), "'"));
    }
    return out;
  }

  Property property_of(const std::vector<std::string_view>& w, std::string_view text) const {
    const bool is_list = w[1] == "list";
    const auto type = number_of(w[is_list && w.size() == 5 ? 3 : 1]);
    const auto count = is_list && w.size() == 5 ? number_of(w[2]) : std::nullopt;
    if (!type || (is_list ? !count : w.size() != 3)) {
      refuse(cat("expected 'property <type> <name>' or 'property list <type> <type> <name>', got '",
                 text.substr(0, 80), "'"));
    }
    return {.name = std::string(w.back()), .type = *type, .count = count};
  }

  double binary_number(Number type) {
    const std::size_t size = size_of(type);
    if (file_.size() - at_ < size) refuse("expected more bytes, got the end of the file");
    const std::uint64_t bits = little_endian(file_, at_, size);
    at_ += size;
    switch (type) {
      case Number::i8:
        return static_cast<double>(static_cast<std::int8_t>(bits));
      case Number::i16:
        return static_cast<double>(static_cast<std::int16_t>(bits));
      case Number::i32:
        return static_cast<double>(static_cast<std::int32_t>(bits));
      case Number::f32:
        return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      case Number::f64:
        return std::bit_cast<double>(bits);
      default:
        return static_cast<double>(bits);
    }
  }

  // In ascii, a row is the next line that is not empty. A row never takes numbers from another
  // line; otherwise a row with a missing number would shift all later rows.
  void begin_row(const Element& element, std::uint64_t row) {
    element_ = &element;
    row_ = row;
    if (!is_ascii_) return;
    const std::string_view text = rest();
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) {
      refuse(cat("expected ", element.rows, " rows of '", element.name, "', got ", row,
                 "; the file seems to be cut short, or the number in its header is too large"));
    }
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    line_ = text.substr(begin, end - begin);
    at_ += end;
  }

  void end_row() {
    if (!is_ascii_ || line_.find_first_not_of(kBlanks) == std::string_view::npos) return;
    refuse(cat("expected ", row_text(), " to end after its ", element_->properties.size(),
               element_->properties.size() == 1 ? " property" : " properties", ", got more: '",
               line_.substr(line_.find_first_not_of(kBlanks)).substr(0, 40), "'"));
  }

  // Counts from 1, like line numbers in editors.
  std::string row_text() const {
    const auto line =
        std::count(file_.begin(), file_.begin() + static_cast<std::ptrdiff_t>(at_), '\n') + 1;
    return cat("row ", row_ + 1, " of '", element_->name, "' (line ", line, ")");
  }

  void expect_end() const {
    const std::string_view text = rest();
    const std::size_t more = is_ascii_      ? text.find_first_not_of(kBlanks)
                             : text.empty() ? std::string_view::npos
                                            : 0;
    if (more == std::string_view::npos) return;
    std::uint64_t rows = 0;
    for (const Element& element : elements_) rows += element.rows;
    refuse(cat("expected the end of the file after the ", rows, " rows that its header names, got ",
               text.size() - more,
               " more bytes; the number of rows in the header seems to be too small"));
  }

  double ascii_number(const std::string& property) {
    const std::size_t begin = line_.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) {
      refuse(
          cat("expected a number for ", property, " in ", row_text(), ", got the end of the line"));
    }
    line_.remove_prefix(begin);
    std::string_view word = line_.substr(0, line_.find_first_of(kBlanks));
    line_.remove_prefix(word.size());
    if (word.starts_with('+')) word.remove_prefix(1);  // from_chars() does not accept a plus
    double out = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), out);
    if (error != std::errc() || stop != word.data() + word.size()) {
      refuse(cat("expected a number for ", property, " in ", row_text(), ", got '",
                 word.substr(0, 40), "'"));
    }
    return out;
  }

  double number(Number type, const std::string& property) {
    return is_ascii_ ? ascii_number(property) : binary_number(type);
  }

  // Checks that the remaining bytes can hold the claimed number of rows.
  void check_room(const Element& element) const {
    // In ascii, a number takes at least a digit and a blank.
    const std::uint64_t row = is_ascii_ ? 2 * element.properties.size() : element.least_bytes();
    const std::uint64_t left = file_.size() - at_ + 1;
    if (row == 0 || element.rows <= left / row) return;
    refuse(cat("expected ", element.rows, " rows of '", element.name, "', at least ",
               static_cast<double>(element.rows) * static_cast<double>(row), " bytes, got ",
               left - 1, "; the file seems to be cut short"));
  }

  void pass(const Element& element) {
    if (element.properties.empty()) return;
    check_room(element);
    if (!is_ascii_ && !element.has_lists()) {
      const std::uint64_t bytes = element.rows * element.least_bytes();
      if (bytes > file_.size() - at_) refuse("expected more bytes, got the end of the file");
      at_ += static_cast<std::size_t>(bytes);
      return;
    }
    for (std::uint64_t row = 0; row < element.rows; ++row) {
      begin_row(element, row);
      for (const Property& p : element.properties) {
        std::uint64_t count = 1;
        if (p.count) {
          const double length = number(*p.count, p.name);
          if (!(length >= 0) || length > static_cast<double>(file_.size())) {
            refuse(cat("expected the length of a list, got ", length));
          }
          count = static_cast<std::uint64_t>(length);
        }
        for (std::uint64_t i = 0; i < count; ++i) number(p.type, p.name);
      }
      end_row();
    }
  }

  Cloud vertices(const Element& element) {
    if (element.has_lists()) refuse("expected no list among the properties of 'vertex', got one");
    std::array<std::ptrdiff_t, 3> axis = {-1, -1, -1};
    Cloud out{.name = name_};
    std::vector<std::string> feature_of(element.properties.size());
    for (std::size_t i = 0; i < element.properties.size(); ++i) {
      const std::string& property = element.properties[i].name;
      const bool is_axis = property == "x" || property == "y" || property == "z";
      if (is_axis) {
        axis[static_cast<std::size_t>(property[0] - 'x')] = static_cast<std::ptrdiff_t>(i);
      } else {
        out.names.push_back(property);
      }
    }
    if (axis[0] < 0 || axis[1] < 0) {
      refuse("expected properties x and y (and z) of 'vertex', got none of one of them");
    }
    out.axes = axis[2] < 0 ? 2 : 3;
    check_room(element);
    out.positions.reserve(static_cast<std::size_t>(element.rows) *
                          static_cast<std::size_t>(out.axes));
    out.features.reserve(static_cast<std::size_t>(element.rows) * out.names.size());
    std::vector<double> row(element.properties.size());
    for (std::uint64_t i = 0; i < element.rows; ++i) {
      begin_row(element, i);
      for (std::size_t p = 0; p < row.size(); ++p) {
        row[p] = number(element.properties[p].type, element.properties[p].name);
      }
      end_row();
      for (int d = 0; d < out.axes; ++d) {
        out.positions.push_back(row[static_cast<std::size_t>(axis[static_cast<std::size_t>(d)])]);
      }
      for (std::size_t p = 0; p < row.size(); ++p) {
        const auto at = static_cast<std::ptrdiff_t>(p);
        if (at != axis[0] && at != axis[1] && at != axis[2]) {
          out.features.push_back(static_cast<float>(row[p]));
        }
      }
    }
    return out;
  }

  Bytes file_;
  std::string name_;
  std::size_t at_ = 0;
  bool is_ascii_ = true;
  std::string_view line_;  // the unread part of the current row
  const Element* element_ = nullptr;
  std::uint64_t row_ = 0;
  std::vector<Element> elements_;
};

}  // namespace

Cloud parse_ply(Bytes file, const std::string& name) { return PlyReader(file, name).read(); }

Cloud read_ply(const std::string& path) { return parse_ply(read_file(path), path); }

}  // namespace convscope
