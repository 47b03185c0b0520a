// SPDX-License-Identifier: Apache-2.0
// problem.cpp: the description of a deformable convolution: sizes, types and layout.
#include "layers/deform_conv2d/problem.h"

#include <charconv>

namespace convscope {
namespace {

constexpr const char* kOperation = "deform_conv2d";

std::int64_t parse_number(std::string_view key, std::string_view value, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  CONVSCOPE_CHECK(
      error == std::errc() && end == value.data() + value.size() && number >= 0 && number <= most,
      kOperation, "expected '", key, "' of a problem to be ",
      most == 1 ? "0 or 1" : cat("a number from 0 to ", most), ", got '", value, "'");
  return number;
}

// The sizes without the two keys that only this layer has.
Conv2dProblem parse_sizes(const std::string& text) {
  try {
    return Conv2dProblem::parse(text);
  } catch (const Error& error) {
    const std::string why = error.what();
    fail(error.kind(), kOperation,
         cat(why.substr(why.find("] ") + 2),
             "; a deformable convolution also has the keys offset_groups and mask"));
  }
}

}  // namespace

OperandSpecs DeformConv2dProblem::operands(Direction direction) const {
  const OperandSpec x{.name = "x",
                      .desc = {.shape = x_shape(), .dtype = dtype, .layout = layout.x}};
  const OperandSpec filters{
      .name = "w", .desc = {.shape = w_shape(), .dtype = dtype}, .is_weights = true};
  const OperandSpec y{.name = "y",
                      .desc = {.shape = y_shape(), .dtype = dtype, .layout = layout.y}};
  const OperandSpec offset{.name = "offset", .desc = {.shape = offset_shape(), .dtype = dtype}};
  const OperandSpec factor{.name = "mask", .desc = {.shape = mask_shape(), .dtype = dtype}};
  OperandSpecs out;
  switch (direction) {
    case Direction::forward:
      out = {{x, filters, offset}, {y}};
      break;
    case Direction::backward_data:
      out = {{y, filters, x, offset}, {x, offset}};
      if (mask) out.outputs.push_back(factor);
      break;
    case Direction::backward_weight:
      out = {{x, y, offset}, {filters}};
      break;
  }
  if (mask) out.inputs.push_back(factor);
  return out;
}

double DeformConv2dProblem::nominal_bytes() const {
  const std::int64_t places = offset_shape().numel() + (mask ? mask_shape().numel() : 0);
  return Conv2dProblem::nominal_bytes() +
         static_cast<double>(size_of(dtype)) * static_cast<double>(places);
}

void DeformConv2dProblem::check() const {
  Conv2dProblem::check();
  CONVSCOPE_CHECK(offset_groups >= 1 && c % offset_groups == 0, kOperation,
                  "expected offset groups that divide the input channels, got ", offset_groups,
                  " offset groups and ", c, " input channels");
  CONVSCOPE_CHECK(!types && weight_format.is_dense(), kOperation,
                  "expected x, w and y of one type and dense weights, got ", Conv2dProblem::text());
  CONVSCOPE_CHECK(layout.x == layout.y, kOperation, "expected x and y in one layout, got layout ",
                  name_of(layout));
}

std::string DeformConv2dProblem::text() const {
  return cat(Conv2dProblem::text(), ",offset_groups=", offset_groups, ",mask=", mask ? 1 : 0);
}

DeformConv2dProblem DeformConv2dProblem::parse(std::string_view text) {
  DeformConv2dProblem out;
  std::string sizes;  // without the two keys
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (word.starts_with("offset_groups=")) {
      out.offset_groups = parse_number("offset_groups", word.substr(14), 1 << 20);
    } else if (word.starts_with("mask=")) {
      out.mask = parse_number("mask", word.substr(5), 1) == 1;
    } else {
      sizes += (sizes.empty() ? "" : ",") + std::string(word);
    }
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  out = {parse_sizes(sizes), out.offset_groups, out.mask};
  out.check();
  return out;
}

}  // namespace convscope
