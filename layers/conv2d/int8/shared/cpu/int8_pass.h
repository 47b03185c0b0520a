// SPDX-License-Identifier: Apache-2.0
// int8_pass.h: the steps of a convolution on int8 values, in order: pack the weights, compute the
// scales of the outputs, convert x to bytes, run the tiles. The algorithms call these functions.
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/int8/shared/cpu/int8_plan.h"

namespace convscope::int8 {

// Checks the requirements that all algorithms share: types, layout, size of the sums.
Conv2dSupport supports_types(const Conv2dProblem& problem, Direction direction);
// Checks taps and groups, for the algorithms of all kernel sizes.
Conv2dSupport supports_shape(const Conv2dProblem& problem);

// Scales and shifts of the outputs for each output channel, computed from the scales of a call.
// With y in NCHW16c, channel k of group g has index g group_stride + k.
//   real = s_x s_w[k] sum + b[k] + s_r r, divided by s_y when y is codes
class OutputFactors {
 public:
  // Returns the bytes of the arrays, which are in the workspace.
  static std::size_t bytes(Index channels);
  // Computes the arrays in `memory`: bytes(channels), 64-byte aligned. Entries without a channel
  // are 0.
  OutputFactors(const Conv2dForwardArgs& args, Index group_stride, Index channels, void* memory);
  const Int8Outputs& outputs() const { return outputs_; }

 private:
  Int8Outputs outputs_;
};

// Returns the offset that makes codes of x unsigned: 128 where x is signed, else 0.
std::int32_t offset_of(const Conv2dForwardArgs& args);

// Returns the bytes of the packed weights, including the sums of the weights of each channel, which
// are stored after them.
std::size_t packed_bytes(const Int8Plan& plan);
void pack_weights(const Int8Plan& plan, const std::int8_t* w, std::int8_t* packed);
const std::int32_t* totals_of(const Int8Plan& plan, const std::int8_t* packed);
// Computes the initial values of the accumulators, [plan.channels()], from the sums `totals` of the
// weights.
void make_starts(const Int8Plan& plan, const std::int32_t* totals, std::int32_t offset,
                 std::int32_t* starts);

// The position in w of one packed weight. place_of() finds it for byte `byte` of tap t and block d
// of x, and returns false where no such weight exists.
struct WeightPlace {
  Index c = 0, r = 0, s = 0;
};
bool place_of(const Int8Plan& plan, Index d, Index t, Index byte, WeightPlace& out);
// Writes weight i of a quad for output channel k of a tile, in the order that the kernels read.
void put_weight(const Int8Plan& plan, Index k, Index i, std::int8_t weight, std::int8_t* to);

// Copies all images with their borders.
void copy_images(const Int8Plan& plan, const Conv2dForwardArgs& args, std::uint8_t* copy);

// Prepared weights: packed dense weights, or a list of entries.
struct Int8Weights {
  const std::int32_t* totals;           // sum of each channel's weights
  const std::int8_t* packed = nullptr;  // in the order of pack_weights(); null: a list is used
  Int8Entries entries = {};             // for all blocks of output channels: segments [block, taps]
};
// Returns the bytes of run_pass()'s scratch: the copy of x, output scales, initial accumulators.
std::size_t pass_bytes(const Int8Plan& plan);
// Runs the whole convolution: converts x, then computes all tiles.
void run_pass(const Int8Plan& plan, const Conv2dForwardArgs& args, const Int8Weights& weights);

}  // namespace convscope::int8
