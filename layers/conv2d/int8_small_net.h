// SPDX-License-Identifier: Apache-2.0
// int8_small_net.h: a whole small int8 network in one GPU kernel: its sizes, its layout in shared
// memory, and the kernels. A rewrite of compiled integer steps uses this kernel
// (fusions/int8_small_net.cpp).
//
//   images ─► round ─► conv, ReLU, 2x2 pool ─► .. ─► linear, ReLU ─► .. ─► linear ─► logits
//
// A LeNet takes some microseconds, and each kernel costs a launch and a round trip through memory.
// So a block takes a sample through all layers, and weights and codes stay in its shared memory.
// All sizes fit in int. The functions are constexpr, so that tests on the CPU can call them.
// Read next  layers/conv2d/int8/int8_small_net/cuda/int8_small_net_cuda.cu
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/int_math.h"
#include "framework/kernel_slot.h"

namespace convscope {

inline constexpr int kMaxSmallNetStages = 6;

// Computes y = code of pool(relu(s_x s_w[k] sum + b[k])). A linear layer reads an image [F,1,1].
// All pointers are device pointers; the kernel reads the scales when it runs.
struct SmallNetStage {
  bool is_linear = false;
  int c = 1, h = 1, w = 1;  // x [N,C,H,W]
  int k = 1, r = 1;         // w [K,C,R,R], stride 1; for a linear layer [K,C H W]
  int pad_top = 0, pad_left = 0;
  int p = 1, q = 1;    // output of the convolution
  bool pools = false;  // 2x2 at stride 2, after the activation
  bool relu = false, x_is_signed = false;
  float most = 0;         // upper bound of the ReLU
  int low = 0, high = 0;  // range of y's codes
  bool y_is_codes = true;
  const double *s_x = nullptr, *s_w = nullptr, *s_y = nullptr;  // s_w [K]
  const double* b = nullptr;                                    // [K], or null
  const unsigned* words = nullptr;  // w packed into small_net::weight_words() words

  constexpr int inputs() const { return c * h * w; }
  constexpr int out_h() const { return pools ? p / 2 : p; }
  constexpr int out_w() const { return pools ? q / 2 : q; }
};

struct SmallNet {
  int stages = 0;
  SmallNetStage stage[kMaxSmallNetStages];
  std::int64_t batch = 0;
  const float* images = nullptr;  // [N,C,H,W]
  const double* image_step = nullptr;
  int image_low = 0, image_high = 0;
  float* logits = nullptr;  // [N,K] of the last stage
};

namespace small_net {

constexpr int kThreads = 256;
constexpr int kChannels = 2;           // output channels of a thread, in a convolution
constexpr int kMaxBytes = 100 * 1024;  // of shared memory: at least two blocks for each SM

// The input of a convolution in shared memory, with its border of zeros. A 32-bit word holds the
// int8 values of four channels, in the order [row][group of four channels][column]. With a single
// channel a word holds four neighbouring columns, so that all four products of an instruction are
// used. Tiles of outputs may extend past the edge.
struct Tile {
  int rows = 0, groups = 0, pitch = 0;
  constexpr int words() const { return rows * groups * pitch; }
  constexpr int row_words() const { return groups * pitch; }
};
constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr bool is_planar(const SmallNetStage& z) { return !z.is_linear && z.c == 1; }
constexpr Tile tile_of(const SmallNetStage& z) {
  if (is_planar(z)) {  // a tile of 4 columns reads a word more than R
    return {.rows = larger(round_up(z.p, 2) + z.r - 1, z.h + z.pad_top),
            .groups = 1,
            .pitch = larger(ceil_div(z.q, 4) + ceil_div(z.r, 4), ceil_div(z.w + z.pad_left, 4))};
  }
  return {.rows = larger(round_up(z.p, 2) + z.r - 1, z.h + z.pad_top),
          .groups = ceil_div(z.c, 4),
          .pitch = round_up(larger(round_up(z.q, 2) + z.r - 1, z.w + z.pad_left), 2)};
}
// Returns the words of a kernel's row: R rounded up to 4, so that one load reads four words. With a
// single channel a row has R int8 values.
constexpr int weight_row(int r) { return round_up(r, 4); }
constexpr int planar_row(int r) { return ceil_div(r, 4); }
// Returns the number of 16-byte segments of a linear layer's x and of a row of its w.
constexpr int pieces(const SmallNetStage& z) { return ceil_div(z.inputs(), 16); }

// Returns the number of 32-bit words of the packed w, a multiple of four: [K][groups of four
// channels][R][weight_row], with a single channel [K][R][planar_row], for a linear layer
// [segments][K][4].
constexpr int weight_words(const SmallNetStage& z) {
  if (z.is_linear) return pieces(z) * z.k * 4;
  return is_planar(z) ? round_up(z.k * z.r * planar_row(z.r), 4)
                      : z.k * tile_of(z).groups * z.r * weight_row(z.r);
}
constexpr int x_words(const SmallNetStage& z) {
  return z.is_linear ? pieces(z) * 4 : round_up(tile_of(z).words(), 4);
}

}  // namespace small_net

// Offsets of the arrays in shared memory, in 32-bit words.
struct SmallNetPlan {
  SmallNet a;
  int w_at[kMaxSmallNetStages] = {}, x_at[kMaxSmallNetStages] = {};
  int first_channel[kMaxSmallNetStages + 1] = {};  // of a stage, counted over all stages
  FastDivisor by_w{}, by_h{};                      // divide by the images' width and height
  int factors_at = 0, bounds_at = 0, parts_at = 0, words = 0;
};

namespace small_net {

inline constexpr int kFactorWords = 8;  // for each channel

constexpr SmallNetPlan plan_of(const SmallNet& net) {
  SmallNetPlan plan{
      .a = net, .by_w = FastDivisor(net.stage[0].w), .by_h = FastDivisor(net.stage[0].h)};
  int at = 0, channels = 0;
  for (int i = 0; i < net.stages; ++i) {
    plan.first_channel[i] = channels;
    channels += net.stage[i].k;
    plan.w_at[i] = at;
    at += weight_words(net.stage[i]);
    plan.x_at[i] = at;
    at += x_words(net.stage[i]);
  }
  plan.first_channel[net.stages] = channels;
  plan.factors_at = at;
  at += channels * kFactorWords;
  plan.bounds_at = at;
  at += round_up(2 * net.stages, 4);
  plan.parts_at = at;
  at += kThreads;
  plan.words = at;
  return plan;
}

// Returns why the kernel does not support this network, or "".
constexpr const char* refusal(const SmallNet& net) {
  if (net.stages < 2 || net.stages > kMaxSmallNetStages)
    return "it has fewer than 2 layers or too many";
  for (int i = 0; i < net.stages; ++i) {
    const SmallNetStage& z = net.stage[i];
    if (z.is_linear && z.k > kThreads)
      return "a linear layer has more outputs than a block has threads";
    if (!z.is_linear && z.r != 3 && z.r != 5 && z.r != 7) return "a kernel is not 3x3, 5x5 or 7x7";
    if (!z.is_linear && i > 0 && net.stage[i - 1].is_linear)
      return "a convolution follows a linear layer";
    if (z.inputs() > 65536 || z.k > 1024) return "a layer is too large";
    if (z.y_is_codes == (i + 1 == net.stages))
      return "the last layer returns codes, or another layer does not";
  }
  if (!net.stage[net.stages - 1].is_linear) return "the last layer is not linear";
  return plan_of(net).words <= kMaxBytes / 4 ? "" : "it does not fit into shared memory";
}

}  // namespace small_net

// The name that is reported when the kernel runs.
inline constexpr const char* kSmallNet = "int8_small_net";
extern CONVSCOPE_API KernelSlot<void(const SmallNet&)> small_net_kernel;
// Packs int8 weights [K,C,R,R] into the words of a stage.
extern CONVSCOPE_API
    KernelSlot<void(const SmallNetStage&, const std::int8_t* codes, unsigned* words)>
        small_net_pack_kernel;

}  // namespace convscope
