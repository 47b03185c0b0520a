// SPDX-License-Identifier: Apache-2.0
// problem.cpp: the description of a transposed convolution: its text form, checks and operands.
#include "layers/conv_transpose2d/problem.h"

#include <charconv>

#include "layers/conv2d/problem_text.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv_transpose2d";

std::int64_t parse_pixels(std::string_view value, std::string_view all) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  CONVSCOPE_CHECK(error == std::errc() && end == value.data() + value.size() && number >= 0,
                  kOperation, "expected 'opad' of a problem to be a number or HxW, got '", all,
                  "'");
  return number;
}

// The sizes without the key that only this operator has.
Conv2dProblem parse_sizes(const std::string& text) {
  try {
    return parse_unchecked(text);
  } catch (const Error& error) {
    const std::string why = error.what();
    fail(error.kind(), kOperation,
         cat(why.substr(why.find("] ") + 2), "; a transposed convolution also has the key opad"));
  }
}

// Returns the padding before the last row of the convolution. An output padding below the stride
// adds rows that no pixel of x reaches; larger ones take rows from the padding.
std::int64_t padding_after(std::int64_t padding, std::int64_t more, std::int64_t stride) {
  return padding - std::max<std::int64_t>(0, more - (stride - 1));
}

}  // namespace

Conv2dProblem ConvTranspose2dProblem::convolution() const {
  Conv2dProblem out = *this;
  out.c = k;
  out.h = p();
  out.w = q();
  out.k = c;
  out.pad_bottom = padding_after(pad_bottom, output_pad_h, stride_h);
  out.pad_right = padding_after(pad_right, output_pad_w, stride_w);
  return out;
}

OperandSpecs ConvTranspose2dProblem::operands(Direction direction) const {
  const OperandSpec x{.name = "x", .desc = {.shape = x_shape(), .dtype = dtype}};
  const OperandSpec filters{
      .name = "w", .desc = {.shape = w_shape(), .dtype = dtype}, .is_weights = true};
  const OperandSpec y{.name = "y", .desc = {.shape = y_shape(), .dtype = dtype}};
  if (direction == Direction::forward) return {{x, filters}, {y}};
  if (direction == Direction::backward_data) return {{y, filters}, {x}};
  return {{x, y}, {filters}};
}

std::int64_t ConvTranspose2dProblem::sum_length(Direction direction) const {
  return convolution().sum_length(exchanged(direction));
}

void ConvTranspose2dProblem::check() const {
  CONVSCOPE_CHECK(n >= 0 && c >= 1 && h >= 1 && w >= 1 && k >= 1 && r >= 1 && s >= 1, kOperation,
                  "expected sizes of at least 1, got ", text());
  CONVSCOPE_CHECK(groups >= 1 && c % groups == 0 && k % groups == 0, kOperation,
                  "expected groups to divide both the input channels and the output channels, got ",
                  groups, " groups, ", c, " input channels and ", k, " output channels");
  CONVSCOPE_CHECK(output_pad_h >= 0 && output_pad_w >= 0 &&
                      output_pad_h < std::max(stride_h, dilation_h) &&
                      output_pad_w < std::max(stride_w, dilation_w),
                  kOperation, "expected an output_padding below the stride or the dilation, got ",
                  output_pad_h, "x", output_pad_w, " with stride ", stride_h, "x", stride_w,
                  " and dilation ", dilation_h, "x", dilation_w);
  CONVSCOPE_CHECK(p() >= 1 && q() >= 1, kOperation, "expected a result of at least one pixel, got ",
                  p(), "x", q(), " from ", text());
  const Conv2dProblem from_y = convolution();
  CONVSCOPE_CHECK(from_y.pad_bottom >= 0 && from_y.pad_right >= 0, kOperation,
                  "expected an output_padding below the stride, or padding of as many rows and "
                  "columns as it has more, got ",
                  text());
  CONVSCOPE_CHECK(
      !types && weight_format.is_dense() && layout == ActivationLayout::nchw, kOperation,
      "expected x, w and y of one type, dense weights and images [N,C,H,W], got ", text());
  from_y.check();
}

std::string ConvTranspose2dProblem::text() const {
  const bool same = output_pad_h == output_pad_w;
  return cat(Conv2dProblem::text(), ",opad=", output_pad_h, same ? "" : cat("x", output_pad_w));
}

ConvTranspose2dProblem ConvTranspose2dProblem::parse(std::string_view text) {
  ConvTranspose2dProblem out;
  std::string sizes;  // without opad
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    if (word.starts_with("opad=")) {
      const std::string_view value = word.substr(5);
      const std::size_t by = value.find('x');
      out.output_pad_h = parse_pixels(value.substr(0, by), value);
      out.output_pad_w = by == std::string_view::npos ? out.output_pad_h
                                                      : parse_pixels(value.substr(by + 1), value);
    } else {
      sizes += (sizes.empty() ? "" : ",") + std::string(word);
    }
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  out = {parse_sizes(sizes), out.output_pad_h, out.output_pad_w};
  out.check();
  return out;
}

}  // namespace convscope
