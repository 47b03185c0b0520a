// SPDX-License-Identifier: Apache-2.0
// int8_small_net_cuda.cu: a whole small network on integers in one kernel: a block takes a sample
// from the image to the logits, with weights and codes in its shared memory.
//
// Formula    for each layer: sum[k] = sum over its inputs of x w[k];
//            real = s_x s_w[k] sum + b[k];  y = clip(round(max over the window of relu(real) / s_y))
// Textbook   for n: x = round(image / s); for each layer: for k, window: y[k] = largest code of its
//            pixels; x = y
// Plan       weights come to shared memory once for a block, which then takes sample after sample.
//            A convolution: a thread has a window of 2 x 2 outputs for two channels; four input
//            channels are a word, so one instruction (dp4a) adds four products, and a row of x
//            serves two kernel rows. A linear layer: its inputs are cut into parts, a thread for
//            each output and part, 16 products for each load of w; the parts are added up through
//            shared memory. Sums become codes while they are in registers: rounding keeps the
//            order, so the largest code is the code of the largest
// Shapes     images [N,C,H,W] f32, words of w as int8_small_net.h says, logits [N,K] f32
// Supports   small_net::refusal(): kernels 3x3, 5x5, 7x7 of stride 1, linear layers behind them, all
//            in 100 KiB of shared memory
// Cost       products = N (K P Q C R^2 + ...), four in an instruction; bytes = the images, and the
//            weights once for a block. Bound by the latency of a sample where samples are few
// Numerics   exact sums; codes are those of double arithmetic (int8_outputs.cuh)
// Backward   none: rounding has no slope
// Choices    two channels: 4 x 2 sums, and 6 words of x serve 40 products of a row (R = 5). Two
//            blocks on a multiprocessor: one waits at a barrier while the other computes
// Source     Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, 1998 (the
//            network); the fusion is our own
// Read next  int8_gemm_cuda.cu, one layer of any size; few_channel_conv_forward_cuda.cu, the same
//            idea in f32
#include <algorithm>

#include "framework/cuda/async_copy.cuh"
#include "framework/ops/codes/code_rounding.cuh"
#include "layers/conv2d/int8/cuda/int8_outputs.cuh"
#include "layers/conv2d/int8/int8_small_net.h"

namespace convscope {

namespace {

using namespace int8;
using small_net::kChannels;
using small_net::kThreads;
using small_net::Tile;
using small_net::tile_of;
using small_net::weight_row;

// ---- weights -----------------------------------------------------------------------------------

// Thread: a word.
__global__ void pack_weights_kernel(const SmallNetStage z, const std::int8_t* codes,
                                    unsigned* words) {
  const int at = static_cast<int>(global_thread());
  if (at >= small_net::weight_words(z)) return;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) {
    int from = -1;
    if (z.is_linear) {  // [pieces][K][4]
      const int k = at / 4 % z.k, input = at / 4 / z.k * 16 + at % 4 * 4 + i;
      if (input < z.inputs()) from = k * z.inputs() + input;
    } else {  // [K][groups][R][weight_row]
      const int row = weight_row(z.r), groups = tile_of(z).groups;
      const int s = at % row, r = at / row % z.r, c = at / row / z.r % groups * 4 + i;
      const int k = at / row / z.r / groups;
      if (s < z.r && c < z.c) from = ((k * z.c + c) * z.r + r) * z.r + s;
    }
    if (from >= 0) word |= (static_cast<unsigned>(codes[from]) & 0xffu) << (8 * i);
  }
  words[at] = word;
}

void pack_weights(const SmallNetStage& z, const std::int8_t* codes, unsigned* words) {
  launch(pack_weights_kernel, grid_for(small_net::weight_words(z)), z, codes, words);
}

// ---- from sums to codes ------------------------------------------------------------------------

// Of a channel, in units of y's step; see int8_outputs.cuh.
struct Factor {
  float scale, shift, sure;
  float unused;
  double exact_scale, exact_shift;
};
static_assert(sizeof(Factor) == small_net::kFactorWords * sizeof(unsigned));

// What the codes of a stage are clipped to; of real numbers, what the curve leaves.
struct Bounds {
  float low, high;
};
__device__ inline Bounds bounds_of(const SmallNetStage& z) {
  if (!z.y_is_codes) return {0, z.most};
  const double most = z.relu ? rint(z.most / *z.s_y) : z.high;
  return {static_cast<float>(z.relu ? max(z.low, 0) : z.low),
          static_cast<float>(fmin(static_cast<double>(z.high), most))};
}

__device__ inline Factor factor_of(const SmallNetStage& z, int k) {
  const Bounds bounds = bounds_of(z);
  const double inverse = z.y_is_codes ? 1 / *z.s_y : 1;
  const double scale = *z.s_x * inverse * z.s_w[k];
  const double shift = z.b != nullptr ? z.b[k] * inverse : 0;
  const double top = fmax(fabs(bounds.low), fabs(bounds.high)) + 1;
  return {static_cast<float>(scale),
          static_cast<float>(shift),
          z.y_is_codes ? sure_fraction(top, scale, shift, 0) : -1.0f,
          0,
          scale,
          shift};
}

__device__ __attribute__((noinline)) int exact_code(const Factor& f, int sum, Bounds bounds) {
  const double real = f.exact_scale * sum + f.exact_shift;
  return static_cast<int>(
      rint(fmin(fmax(real, static_cast<double>(bounds.low)), static_cast<double>(bounds.high))));
}
__device__ inline int code_of_sum(const Factor& f, int sum, Bounds bounds) {
  constexpr float kShift = 12582912;  // 1.5 * 2^23: pushes the fraction out
  const float real = __fmaf_rn(static_cast<float>(sum), f.scale, f.shift);
  const float clipped = fminf(fmaxf(real, bounds.low), bounds.high);
  const float code = __fsub_rn(__fadd_rn(clipped, kShift), kShift);
  if (!(fabsf(__fsub_rn(clipped, code)) <= f.sure)) return exact_code(f, sum, bounds);
  return static_cast<int>(code);
}

// The place of y's code in the x of the next stage, in bytes.
struct NextX {
  unsigned char* x;
  bool is_linear;
  Tile tile;
  int pad_top, pad_left;
};
__device__ inline NextX next_x(const SmallNetPlan& plan, int stage, unsigned* shared) {
  const SmallNetStage& z = plan.a.stage[stage];
  return {reinterpret_cast<unsigned char*>(shared + plan.x_at[stage]), z.is_linear, tile_of(z),
          z.pad_top, z.pad_left};
}
__device__ inline int place(const NextX& to, int c, int row, int column, int h, int w) {
  if (to.is_linear) return (c * h + row) * w + column;
  return (((row + to.pad_top) * to.tile.groups + c / 4) * to.tile.pitch + column + to.pad_left) *
             4 +
         c % 4;
}

// ---- layers ------------------------------------------------------------------------------------

// sums[channel][row][column] of a window of 2 x 2 outputs. x stands on its first pixel.
template <int R, bool kSigned>
__device__ inline void convolve_window(const unsigned* x, const Tile& tile, const unsigned* w,
                                       int w_next, int (&sums)[kChannels][2][2]) {
  constexpr int kRow = weight_row(R);
  constexpr int kColumns = R + 1;
  static_assert(kColumns % 2 == 0, "pairs of words");
  for (int group = 0; group < tile.groups; ++group) {
    unsigned before[kChannels][kRow];  // the kernel row above
#pragma unroll
    for (int r = 0; r <= R; ++r) {
      unsigned row[kColumns];
      const auto* const from =
          reinterpret_cast<const uint2*>(x + r * tile.row_words() + group * tile.pitch);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) {
        const uint2 pair = from[i];
        row[2 * i] = pair.x;
        row[2 * i + 1] = pair.y;
      }
#pragma unroll
      for (int j = 0; j < kChannels; ++j) {
        if (r > 0) {
#pragma unroll
          for (int s = 0; s < R; ++s) {
            sums[j][1][0] = dot_bytes<kSigned>(row[s], before[j][s], sums[j][1][0]);
            sums[j][1][1] = dot_bytes<kSigned>(row[s + 1], before[j][s], sums[j][1][1]);
          }
        }
        if (r == R) continue;
#pragma unroll
        for (int i = 0; i < kRow / 4; ++i) {
          const uint4 four =
              reinterpret_cast<const uint4*>(w + j * w_next + (group * R + r) * kRow)[i];
          before[j][4 * i] = four.x;
          before[j][4 * i + 1] = four.y;
          before[j][4 * i + 2] = four.z;
          before[j][4 * i + 3] = four.w;
        }
#pragma unroll
        for (int s = 0; s < R; ++s) {
          sums[j][0][0] = dot_bytes<kSigned>(row[s], before[j][s], sums[j][0][0]);
          sums[j][0][1] = dot_bytes<kSigned>(row[s + 1], before[j][s], sums[j][0][1]);
        }
      }
    }
  }
}

template <int R, bool kSigned>
__device__ void conv_stage(const SmallNetStage& z, const unsigned* x, const unsigned* w,
                           const Factor* factors, const NextX& to) {
  const Tile tile = tile_of(z);
  const Bounds bounds = bounds_of(z);
  const int w_next = tile.groups * R * weight_row(R);
  const int windows_w = ceil_div(z.pools ? z.q / 2 * 2 : z.q, 2);
  const int windows = ceil_div(z.pools ? z.p / 2 * 2 : z.p, 2) * windows_w;
  const int out_h = z.out_h(), out_w = z.out_w();
  for (int i = static_cast<int>(threadIdx.x); i < ceil_div(z.k, kChannels) * windows;
       i += kThreads) {
    const int pair = i / windows, at = i - pair * windows;
    const int top = at / windows_w, left = at - top * windows_w;
    const int k = pair * kChannels;
    // A pair that sticks out computes its first channel twice.
    const bool has_other = k + 1 < z.k;
    int sums[kChannels][2][2] = {};
    convolve_window<R, kSigned>(x + 2 * top * tile.row_words() + 2 * left, tile, w + k * w_next,
                                has_other ? w_next : 0, sums);
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
      if (j > 0 && !has_other) continue;
      const Factor f = factors[k + j];
      if (z.pools) {  // the largest code is the code of the largest number
        int code = code_of_sum(f, sums[j][0][0], bounds);
        code = max(code, code_of_sum(f, sums[j][0][1], bounds));
        code = max(code, code_of_sum(f, sums[j][1][0], bounds));
        code = max(code, code_of_sum(f, sums[j][1][1], bounds));
        to.x[place(to, k + j, top, left, out_h, out_w)] = static_cast<unsigned char>(code);
        continue;
      }
#pragma unroll
      for (int pixel = 0; pixel < 4; ++pixel) {
        const int row = 2 * top + pixel / 2, column = 2 * left + pixel % 2;
        if (row >= z.p || column >= z.q) continue;
        to.x[place(to, k + j, row, column, out_h, out_w)] =
            static_cast<unsigned char>(code_of_sum(f, sums[j][pixel / 2][pixel % 2], bounds));
      }
    }
  }
}

// Two barriers inside. `to` is null for logits.
template <bool kSigned>
__device__ void linear_stage(const SmallNetStage& z, const unsigned* x, const unsigned* w,
                             const Factor* factors, int* parts, unsigned char* to, float* logits) {
  const int pieces = small_net::pieces(z), thread = static_cast<int>(threadIdx.x);
  const int cuts = min(pieces, kThreads / z.k);
  const int cut = thread / z.k, k = thread - cut * z.k;
  if (cut < cuts) {
    int sum = 0;
    for (int i = cut; i < pieces; i += cuts) {
      const uint4 a = reinterpret_cast<const uint4*>(x)[i];
      const uint4 b = reinterpret_cast<const uint4*>(w)[i * z.k + k];
      sum = dot_bytes<kSigned>(a.x, b.x, sum);
      sum = dot_bytes<kSigned>(a.y, b.y, sum);
      sum = dot_bytes<kSigned>(a.z, b.z, sum);
      sum = dot_bytes<kSigned>(a.w, b.w, sum);
    }
    parts[thread] = sum;
  }
  __syncthreads();
  if (thread < z.k) {
    int sum = 0;
    for (int i = 0; i < cuts; ++i) sum += parts[i * z.k + thread];
    const Factor f = factors[thread];
    const Bounds bounds = bounds_of(z);
    if (to != nullptr) {
      to[thread] = static_cast<unsigned char>(code_of_sum(f, sum, bounds));
    } else {
      float real = __fmaf_rn(static_cast<float>(sum), f.scale, f.shift);
      if (z.relu) real = real < bounds.low ? bounds.low : real > bounds.high ? bounds.high : real;
      logits[thread] = real;
    }
  }
  __syncthreads();
}

template <int R>
__device__ inline void conv_stage(const SmallNetStage& z, const unsigned* x, const unsigned* w,
                                  const Factor* factors, const NextX& to) {
  if (z.x_is_signed) {
    conv_stage<R, true>(z, x, w, factors, to);
  } else {
    conv_stage<R, false>(z, x, w, factors, to);
  }
}

// ---- the network -------------------------------------------------------------------------------

__global__ __launch_bounds__(kThreads,
                             2) void small_net_forward(const __grid_constant__ SmallNetPlan plan) {
  auto* const shared = dynamic_shared<unsigned>();
  const SmallNet& net = plan.a;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < net.stages; ++i) {  // frames, and what fills up a piece of a linear layer's x
    for (int word = thread; word < small_net::x_words(net.stage[i]); word += kThreads) {
      shared[plan.x_at[i] + word] = 0;
    }
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int i = 0; i < net.stages; ++i) {
    const int fours = ceil_div(small_net::weight_words(net.stage[i]), 4);
    for (int four = thread; four < fours; four += kThreads) {
      async_copy<16>(shared + plan.w_at[i] + 4 * four, net.stage[i].words + 4 * four);
    }
  }
  async_copy_commit();
  auto* const factors = reinterpret_cast<Factor*>(shared + plan.factors_at);
  for (int i = 0; i < net.stages; ++i) {
    for (int k = thread; k < net.stage[i].k; k += kThreads) {
      factors[plan.first_channel[i] + k] = factor_of(net.stage[i], k);
    }
  }
  const CodeRounding rounded(*net.image_step, net.image_low, net.image_high);
  const SmallNetStage& first = net.stage[0];
  const int pixels = first.h * first.w;
  auto* const parts = reinterpret_cast<int*>(shared + plan.parts_at);
  async_copy_wait<0>();
  __syncthreads();
  for (std::int64_t n = blockIdx.x; n < net.batch; n += gridDim.x) {
    const float* const image = net.images + n * first.inputs();
    const NextX images = next_x(plan, 0, shared);
    for (int i = thread; i < first.inputs(); i += kThreads) {
      const int c = i / pixels, row = (i - c * pixels) / first.w;
      images.x[place(images, c, row, i - c * pixels - row * first.w, first.h, first.w)] =
          rounded(image[i]);
    }
    __syncthreads();
    for (int i = 0; i < net.stages; ++i) {
      const SmallNetStage& z = net.stage[i];
      const unsigned* const x = shared + plan.x_at[i];
      const unsigned* const w = shared + plan.w_at[i];
      const Factor* const of_stage = factors + plan.first_channel[i];
      if (z.is_linear) {
        const bool is_last = i + 1 == net.stages;
        unsigned char* const to =
            is_last ? nullptr : reinterpret_cast<unsigned char*>(shared + plan.x_at[i + 1]);
        float* const logits = net.logits + n * z.k;
        if (z.x_is_signed) {
          linear_stage<true>(z, x, w, of_stage, parts, to, logits);
        } else {
          linear_stage<false>(z, x, w, of_stage, parts, to, logits);
        }
        continue;
      }
      const NextX to = next_x(plan, i + 1, shared);
      if (z.r == 3) {
        conv_stage<3>(z, x, w, of_stage, to);
      } else if (z.r == 5) {
        conv_stage<5>(z, x, w, of_stage, to);
      } else {
        conv_stage<7>(z, x, w, of_stage, to);
      }
      __syncthreads();
    }
  }
}

void run(const SmallNet& net) {
  const SmallNetPlan plan = small_net::plan_of(net);
  const std::int64_t most = std::int64_t{2} * cuda_device_facts().multiprocessors;
  launch(small_net_forward,
         {.grid = dim3(static_cast<unsigned>(std::min(net.batch, most))),
          .block = dim3(kThreads),
          .shared_bytes = static_cast<std::size_t>(plan.words) * sizeof(unsigned),
          .overlaps_previous = true},
         plan);
}

}  // namespace
CONVSCOPE_KERNEL(small_net_kernel, cuda, run)
CONVSCOPE_KERNEL(small_net_pack_kernel, cuda, pack_weights)
}  // namespace convscope
