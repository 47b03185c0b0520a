// SPDX-License-Identifier: Apache-2.0
// op_conv_sizes.cpp: the sizes of a convolution on the command line of `convscope op`: options and
// their values.
#include "experiments/cli/op/op_conv_sizes.h"

#include <algorithm>
#include <charconv>

#include "experiments/cli/command.h"
#include "framework/io/npy.h"

namespace convscope {

std::vector<std::int64_t> whole_numbers(const char* command, const char* option,
                                        const std::string& text,
                                        std::initializer_list<std::size_t> lengths) {
  std::vector<std::int64_t> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  bool good = true;
  for (;;) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    good = error == std::errc() && (next == end || *next == ',');
    if (!good) break;
    out.push_back(value);
    if (next == end) break;
    at = next + 1;
  }
  if (!good || std::ranges::count(lengths, out.size()) == 0) {
    std::vector<std::string> words;
    for (const std::size_t length : lengths) words.push_back(std::to_string(length));
    fail_usage(command, cat("expected ", option, " to be ", join(words, " or "),
                            " whole numbers joined by commas, got '", text, "'"));
  }
  return out;
}

void add_conv_sizes(CommandLine& app, OpConvSizes& sizes) {
  app.add_option("--stride", sizes.stride, "H,W or one number, in pixels")->capture_default_str();
  app.add_option("--padding", sizes.padding, "one number, H,W or top,bottom,left,right, in pixels")
      ->capture_default_str();
  app.add_option("--dilation", sizes.dilation, "H,W or one number, in pixels")
      ->capture_default_str();
  app.add_option("--groups", sizes.groups, "number of channel groups")->capture_default_str();
}

Conv2dParams conv_params(const char* command, const OpConvSizes& sizes) {
  const auto stride = whole_numbers(command, "--stride", sizes.stride, {1, 2});
  const auto dilation = whole_numbers(command, "--dilation", sizes.dilation, {1, 2});
  const auto pad = whole_numbers(command, "--padding", sizes.padding, {1, 2, 4});
  Conv2dParams params{.stride_h = stride[0],
                      .stride_w = stride.back(),
                      .dilation_h = dilation[0],
                      .dilation_w = dilation.back(),
                      .groups = sizes.groups};
  params.padding = pad.size() == 4 ? Padding2d{pad[0], pad[1], pad[2], pad[3]}
                                   : Padding2d{pad[0], pad[0], pad.back(), pad.back()};
  return params;
}

Tensor read_like(const char* command, const char* name, const std::string& path, const Shape& shape,
                 const Tensor& x, const char* why) {
  const Tensor out = read_npy(path);
  CONVSCOPE_CHECK(out.shape() == shape && out.dtype() == x.dtype(), command, "expected ", name, " ",
                  shape, " of the type of x because ", why, ", got ", out.str());
  return out.to(x.device());
}

}  // namespace convscope
