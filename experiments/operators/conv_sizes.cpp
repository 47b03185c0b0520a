// SPDX-License-Identifier: Apache-2.0
// conv_sizes.cpp: the sizes of a convolution on the command line of `convscope op`: options and
// their values.
#include "experiments/operators/conv_sizes.h"

#include <algorithm>
#include <charconv>

#include "experiments/cli/command.h"

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

void ConvSizes::add_options(CommandLine& app) {
  app.add_option("--stride", stride, "H,W or one number, in pixels")->capture_default_str();
  app.add_option("--padding", padding, "one number, H,W or top,bottom,left,right, in pixels")
      ->capture_default_str();
  app.add_option("--dilation", dilation, "H,W or one number, in pixels")->capture_default_str();
  app.add_option("--groups", groups, "number of channel groups")->capture_default_str();
}

Conv2dParams ConvSizes::params(const char* command) const {
  const auto strides = whole_numbers(command, "--stride", stride, {1, 2});
  const auto dilations = whole_numbers(command, "--dilation", dilation, {1, 2});
  const auto pad = whole_numbers(command, "--padding", padding, {1, 2, 4});
  Conv2dParams params{.stride_h = strides[0],
                      .stride_w = strides.back(),
                      .dilation_h = dilations[0],
                      .dilation_w = dilations.back(),
                      .groups = groups};
  params.padding = pad.size() == 4 ? Padding2d{pad[0], pad[1], pad[2], pad[3]}
                                   : Padding2d{pad[0], pad[0], pad.back(), pad.back()};
  return params;
}

}  // namespace convscope
