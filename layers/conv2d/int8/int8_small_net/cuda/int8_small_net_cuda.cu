// SPDX-License-Identifier: Apache-2.0
// int8_small_net_cuda.cu: a whole small network on int8 values in one kernel: a block computes a
// sample from the image to the logits, with weights and codes in shared memory.
//
// Formula    for each layer: sum[k] = sum over its inputs of x w[k];
//            real = s_x s_w[k] sum + b[k];
//            y = clip(round(max over the window of relu(real) / s_y))
// Textbook   for n: x = round(image / s); for each layer: for k, window: y[k] = largest code of its
//            pixels; x = y
// Method     a block loads the weights into shared memory once, then takes one sample after
//            another.
//            Convolution: a thread computes a window of 2 x 2 outputs for two channels. Four input
//            channels are a word, so one instruction (dp4a) adds four products, and a row of x
//            serves two kernel rows. With a single channel, four neighbouring columns are a word,
//            and a thread has two windows.
//            Linear layer: its inputs are split into parts. There is a thread for each output and
//            part, with 16 products for each load of w; the parts are added through shared memory.
//            Accumulators become codes in registers: rounding keeps the order, so the largest code
//            of a window is the code of one sum
// Shapes     images [N,C,H,W] f32, words of w as in int8_small_net.h, logits [N,K] f32
// Supports   small_net::refusal(): kernels 3x3, 5x5, 7x7 of stride 1, followed by linear layers,
//            all in 100 KiB of shared memory
// Cost       products = N (K P Q C R^2 + ...), four in an instruction; bytes = the images, and the
//            weights once for each block. With few samples the latency of one sample is the limit
// Numerics   exact sums; codes are those of double arithmetic (int8_outputs.cuh)
// Backward   none: rounding has no useful derivative
// Choices    Two channels: 4 x 2 sums, and 6 words of x serve 40 products of a row (R = 5). Up to
//            three blocks share an SM: one waits at a barrier while another computes
// Source     Y. LeCun et al.: Gradient-Based Learning Applied to Document Recognition, 1998 (the
//            network); the fusion is own work
// Read next  int8_gemm_cuda.cu, one layer of any size; few_channel_conv_forward_cuda.cu, the same
//            idea in f32
#include <algorithm>

#include "framework/cuda/async_copy.cuh"
#include "framework/ops/codes/code_rounding.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_outputs.cuh"
#include "layers/conv2d/int8_small_net.h"

namespace convscope {

namespace {

using namespace int8;
using small_net::kChannels;
using small_net::kThreads;
using small_net::Tile;
using small_net::tile_of;
using small_net::weight_row;

constexpr int kMaxBlocks = 3;  // blocks on an SM

// ---- weights -----------------------------------------------------------------------------------

// Kernel: each thread packs one word.
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
    } else if (small_net::is_planar(z)) {  // [K][R][planar_row]
      const int row = small_net::planar_row(z.r);
      const int s = at % row * 4 + i, r = at / row % z.r, k = at / row / z.r;
      if (s < z.r && k < z.k) from = (k * z.r + r) * z.r + s;
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

// ---- from sums to codes -------------------------------------------------------------------------

// Scale of a channel, in units of y's step; see int8_outputs.cuh.
struct Factor {
  float scale, shift, sure;
  float unused;
  double exact_scale, exact_shift;
};
static_assert(sizeof(Factor) == small_net::kFactorWords * sizeof(unsigned));

// Bounds of the output of a stage, as codes, or as real values after the activation. Each block
// computes bounds and scales once, because divisions of doubles take as long as a layer.
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

// Returns the largest code of a window: the code of its largest accumulator, or of its smallest
// accumulator where the scale is negative.
__device__ inline int code_of_window(const Factor& f, int a, int b, int c, int d, Bounds bounds) {
  const int largest = max(max(a, b), max(c, d)), smallest = min(min(a, b), min(c, d));
  return code_of_sum(f, f.exact_scale < 0 ? smallest : largest, bounds);
}

// Where the codes of y are stored in the x of the next stage. x is addressed in bytes.
struct NextX {
  unsigned char* x;
  bool is_linear, is_planar;
  Tile tile;
  int pad_top, pad_left;
};
__device__ inline NextX next_x(const SmallNetPlan& plan, int stage, unsigned* shared) {
  const SmallNetStage& z = plan.a.stage[stage];
  return {reinterpret_cast<unsigned char*>(shared + plan.x_at[stage]),
          z.is_linear,
          small_net::is_planar(z),
          tile_of(z),
          z.pad_top,
          z.pad_left};
}
__device__ inline int place(const NextX& to, int c, int row, int column, int h, int w) {
  if (to.is_linear) return (c * h + row) * w + column;
  if (to.is_planar) return (row + to.pad_top) * to.tile.pitch * 4 + column + to.pad_left;
  return (((row + to.pad_top) * to.tile.groups + c / 4) * to.tile.pitch + column + to.pad_left) *
             4 +
         c % 4;
}

// ---- layers ------------------------------------------------------------------------------------

// Computes sums[channel][row][column] of a window of 2 x 2 outputs. x points to the window's first
// pixel.
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

// Computes sums of a layer with one input channel: two rows of four columns. x points to the word
// of the first pixel.
template <int R, bool kSigned>
__device__ inline void convolve_planar(const unsigned* x, int pitch, const unsigned* w, int w_next,
                                       int (&sums)[kChannels][2][4]) {
  constexpr int kRow = small_net::planar_row(R);
  unsigned before[kChannels][kRow];  // the kernel row above
#pragma unroll
  for (int r = 0; r <= R; ++r) {
    unsigned words[kRow + 1], row[4][kRow];  // from each of the four columns on
#pragma unroll
    for (int i = 0; i <= kRow; ++i) words[i] = x[r * pitch + i];
#pragma unroll
    for (int column = 0; column < 4; ++column) {
#pragma unroll
      for (int i = 0; i < kRow; ++i) {
        row[column][i] = __funnelshift_r(words[i], words[i + 1], 8 * static_cast<unsigned>(column));
      }
    }
#pragma unroll
    for (int j = 0; j < kChannels; ++j) {
#pragma unroll
      for (int i = 0; i < kRow; ++i) {
        if (r > 0) {
#pragma unroll
          for (int column = 0; column < 4; ++column) {
            sums[j][1][column] =
                dot_bytes<kSigned>(row[column][i], before[j][i], sums[j][1][column]);
          }
        }
        if (r == R) continue;
        before[j][i] = w[j * w_next + r * kRow + i];
#pragma unroll
        for (int column = 0; column < 4; ++column) {
          sums[j][0][column] = dot_bytes<kSigned>(row[column][i], before[j][i], sums[j][0][column]);
        }
      }
    }
  }
}

// Stores a tile of two rows and kColumns columns of channel c as codes of the next stage.
template <int kColumns>
__device__ inline void store_tile(const SmallNetStage& z, const Factor& f, Bounds bounds,
                                  const NextX& to, int c, int top, int left,
                                  const int (&sums)[2][kColumns]) {
  const int out_h = z.out_h(), out_w = z.out_w();
  if (z.pools) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      const int column = left * (kColumns / 2) + i / 2;
      if (column >= out_w) continue;
      to.x[place(to, c, top, column, out_h, out_w)] = static_cast<unsigned char>(
          code_of_window(f, sums[0][i], sums[0][i + 1], sums[1][i], sums[1][i + 1], bounds));
    }
    return;
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      if (2 * top + row >= z.p || kColumns * left + column >= z.q) continue;
      to.x[place(to, c, 2 * top + row, kColumns * left + column, out_h, out_w)] =
          static_cast<unsigned char>(code_of_sum(f, sums[row][column], bounds));
    }
  }
}

// Runs a convolution. Each thread computes a tile of outputs for two channels.
template <int R, bool kSigned, bool kPlanar>
__device__ void conv_stage(const SmallNetStage& z, const unsigned* x, const unsigned* w,
                           const Factor* factors, Bounds bounds, const NextX& to) {
  constexpr int kColumns = kPlanar ? 4 : 2;
  const Tile tile = tile_of(z);
  const int w_next = kPlanar ? R * small_net::planar_row(R) : tile.groups * R * weight_row(R);
  const int tiles_w = ceil_div(z.pools ? z.q / 2 * 2 : z.q, kColumns);
  const int tiles = ceil_div(z.pools ? z.p / 2 * 2 : z.p, 2) * tiles_w;
  for (int i = static_cast<int>(threadIdx.x); i < ceil_div(z.k, kChannels) * tiles; i += kThreads) {
    const int pair = i / tiles, at = i - pair * tiles;
    const int top = at / tiles_w, left = at - top * tiles_w;
    const int k = pair * kChannels;
    // With an odd number of channels, the last pair computes its first channel twice.
    const bool has_other = k + 1 < z.k;
    int sums[kChannels][2][kColumns] = {};
    const unsigned* const from = x + 2 * top * tile.row_words();
    const int next = has_other ? w_next : 0;
    if constexpr (kPlanar) {
      convolve_planar<R, kSigned>(from + left, tile.pitch, w + k * w_next, next, sums);
    } else {
      convolve_window<R, kSigned>(from + 2 * left, tile, w + k * w_next, next, sums);
    }
    store_tile<kColumns>(z, factors[k], bounds, to, k, top, left, sums[0]);
    if (has_other) store_tile<kColumns>(z, factors[k + 1], bounds, to, k + 1, top, left, sums[1]);
  }
}

// Runs a linear layer, with two barriers inside. `to` is null for logits.
template <bool kSigned>
__device__ void linear_stage(const SmallNetStage& z, const unsigned* x, const unsigned* w,
                             const Factor* factors, Bounds bounds, int* parts, unsigned char* to,
                             float* logits) {
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
                                  const Factor* factors, Bounds bounds, const NextX& to) {
  if (small_net::is_planar(z)) {
    if (z.x_is_signed) {
      conv_stage<R, true, true>(z, x, w, factors, bounds, to);
    } else {
      conv_stage<R, false, true>(z, x, w, factors, bounds, to);
    }
  } else if (z.x_is_signed) {
    conv_stage<R, true, false>(z, x, w, factors, bounds, to);
  } else {
    conv_stage<R, false, false>(z, x, w, factors, bounds, to);
  }
}

// ---- the network -------------------------------------------------------------------------------

__global__ __launch_bounds__(kThreads, kMaxBlocks) void small_net_forward(
    const __grid_constant__ SmallNetPlan plan) {
  auto* const shared = dynamic_shared<unsigned>();
  const SmallNet& net = plan.a;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < net.stages; ++i) {  // borders, and padding of linear layers' inputs
    for (int word = thread; word < small_net::x_words(net.stage[i]); word += kThreads) {
      shared[plan.x_at[i] + word] = 0;
    }
  }
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int i = 0; i < net.stages; ++i) {
    const int fours = small_net::weight_words(net.stage[i]) / 4;
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
  auto* const bounds = reinterpret_cast<Bounds*>(shared + plan.bounds_at);
  if (thread < net.stages) bounds[thread] = bounds_of(net.stage[thread]);
  const CodeRounding rounded(*net.image_step, net.image_low, net.image_high);
  const SmallNetStage& first = net.stage[0];
  const FastDivisor by_w = plan.by_w, by_h = plan.by_h;
  auto* const parts = reinterpret_cast<int*>(shared + plan.parts_at);
  async_copy_wait<0>();
  __syncthreads();
  for (std::int64_t n = blockIdx.x; n < net.batch; n += gridDim.x) {
    const float* const image = net.images + n * first.inputs();
    const NextX images = next_x(plan, 0, shared);
    for (int i = thread; i < first.inputs(); i += kThreads) {
      const int row = by_w.divide(i), c = by_h.divide(row);
      images.x[place(images, c, row - c * first.h, i - row * first.w, first.h, first.w)] =
          rounded(image[i]);
    }
    __syncthreads();
    for (int i = 0; i < net.stages; ++i) {
      const SmallNetStage& z = net.stage[i];
      const unsigned* const x = shared + plan.x_at[i];
      const unsigned* const w = shared + plan.w_at[i];
      const Factor* const stage_factors = factors + plan.first_channel[i];
      if (z.is_linear) {
        const bool is_last = i + 1 == net.stages;
        unsigned char* const to =
            is_last ? nullptr : reinterpret_cast<unsigned char*>(shared + plan.x_at[i + 1]);
        float* const logits = net.logits + n * z.k;
        if (z.x_is_signed) {
          linear_stage<true>(z, x, w, stage_factors, bounds[i], parts, to, logits);
        } else {
          linear_stage<false>(z, x, w, stage_factors, bounds[i], parts, to, logits);
        }
        continue;
      }
      const NextX to = next_x(plan, i + 1, shared);
      if (z.r == 3) {
        conv_stage<3>(z, x, w, stage_factors, bounds[i], to);
      } else if (z.r == 5) {
        conv_stage<5>(z, x, w, stage_factors, bounds[i], to);
      } else {
        conv_stage<7>(z, x, w, stage_factors, bounds[i], to);
      }
      __syncthreads();
    }
  }
}

void run(const SmallNet& net) {
  const SmallNetPlan plan = small_net::plan_of(net);
  const std::size_t bytes = static_cast<std::size_t>(plan.words) * sizeof(unsigned);
  const auto resident = std::clamp<std::int64_t>(
      cuda_device_facts().shared_bytes_per_block / static_cast<std::int64_t>(bytes + 1024), 1,
      kMaxBlocks);
  const std::int64_t most = resident * cuda_device_facts().multiprocessors;
  launch(small_net_forward,
         {.grid = dim3(static_cast<unsigned>(std::min(net.batch, most))),
          .block = dim3(kThreads),
          .shared_bytes = bytes,
          .overlaps_previous = true},
         plan);
}

}  // namespace
CONVSCOPE_KERNEL(small_net_kernel, cuda, run)
CONVSCOPE_KERNEL(small_net_pack_kernel, cuda, pack_weights)
}  // namespace convscope
