// SPDX-License-Identifier: Apache-2.0
// op_conv_sizes.h: the sizes of a convolution on the command line of `convscope op`: options and
// their values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "experiments/cli/command_line.h"
#include "framework/tensor.h"
#include "layers/conv2d/conv2d.h"

namespace convscope {

// Parses "2" or "2,1": whole numbers joined by commas; `lengths` lists the allowed counts.
std::vector<std::int64_t> whole_numbers(const char* command, const char* option,
                                        const std::string& text,
                                        std::initializer_list<std::size_t> lengths);

struct OpConvSizes {
  std::string stride = "1", padding = "0", dilation = "1";
  std::int64_t groups = 1;
};

void add_conv_sizes(CommandLine& app, OpConvSizes& sizes);
// Returns the parameters. `command` is the caller's name for errors ("op conv2d").
Conv2dParams conv_params(const char* command, const OpConvSizes& sizes);

// Reads an array from a file to the device of x. The array must have the expected shape and the
// type of x; `why` ends the error sentence ("that is y").
Tensor read_like(const char* command, const char* name, const std::string& path, const Shape& shape,
                 const Tensor& x, const char* why);

}  // namespace convscope
