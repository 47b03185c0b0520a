// SPDX-License-Identifier: Apache-2.0
// int8_pass.h: the parts of a convolution on integers, one after the other: pack the weights, make
// the factors of the outputs, bring x into bytes, run the tiles. The cards call them.
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/int8/cpu/int8_plan.h"

namespace convscope::int8 {

// What the cards have in common: types, layout, the size of the sums.
Conv2dSupport supports_types(const Conv2dProblem& problem, Direction direction);
// Of the cards for all kernel sizes: taps and groups.
Conv2dSupport supports_shape(const Conv2dProblem& problem);

// Factors of the outputs, by output channel (of y in blocks: channel k of group g stands at
// g group_stride + k), made of the scales of a call.
//   real = s_x s_w[k] sum + b[k] + s_r r, over s_y when y is codes
class OutputFactors {
 public:
  // Of the arrays, which lie in the workspace.
  static std::size_t bytes(Index channels);
  // `memory`: bytes(channels), 64-byte aligned. Entries that no channel has are 0.
  OutputFactors(const Conv2dForwardArgs& args, Index group_stride, Index channels, void* memory);
  const Int8Outputs& outputs() const { return outputs_; }

 private:
  Int8Outputs outputs_;
};

// 128 where x is signed.
std::int32_t offset_of(const Conv2dForwardArgs& args);

// The weights, and behind them for each channel the sum over them.
std::size_t packed_bytes(const Int8Plan& plan);
void pack_weights(const Int8Plan& plan, const std::int8_t* w, std::int8_t* packed);
const std::int32_t* totals_of(const Int8Plan& plan, const std::int8_t* packed);
// Where the sums begin, [plan.channels()], of weights that add up to `totals`.
void make_starts(const Int8Plan& plan, const std::int32_t* totals, std::int32_t offset,
                 std::int32_t* starts);

// Byte i of quad q of tap t and block d of x meets this weight; false: none.
struct WeightPlace {
  Index c = 0, r = 0, s = 0;
};
bool place_of(const Int8Plan& plan, Index d, Index t, Index byte, WeightPlace& out);
// Writes weight i of a quad for output channel k of a tile, as the kernels read it.
void put_weight(const Int8Plan& plan, Index k, Index i, std::int8_t weight, std::int8_t* to);

// All images with their borders.
void copy_images(const Int8Plan& plan, const Conv2dForwardArgs& args, std::uint8_t* copy);

// Prepared weights: packed, or a list.
struct Int8Weights {
  const std::int32_t* totals;           // by channel, what the weights add up to
  const std::int8_t* packed = nullptr;  // as pack_weights() does; null: a list
  Int8Entries entries = {};             // of all blocks of output channels: segments [block, taps]
};
// Scratch of run_pass(): the copy of x, the factors of the outputs, and where sums begin.
std::size_t pass_bytes(const Int8Plan& plan);
// The whole convolution.
void run_pass(const Int8Plan& plan, const Conv2dForwardArgs& args, const Int8Weights& weights);

}  // namespace convscope::int8
