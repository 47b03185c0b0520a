// SPDX-License-Identifier: Apache-2.0
// int8_depthwise_cuda.cu: depthwise convolution on int8 values: each thread convolves four
// channels, each with its kernel.
//
// Formula    sum[n,c,p,q] = sum over r, s of x[n, c, h, w] w[c,r,s], integers
//            real = s_x s_w[c] sum + b[c] + s_r residual;  y = clip(round(real / s_y)), or real
// Textbook   for n, c, p, q:
//              sum = 0
//              for r, s: sum += x[n][c][p - pad + r][q - pad + s] * w[c][r][s]
//              y[n][c][p][q] = clip(round((s_x * s_w[c] * sum + b[c]) / s_y))
// Method     a thread computes four neighbouring pixels of four channels. A word of x holds the
//            four channels of a pixel. dp4a adds the four products of two words. The word of w has
//            three of its bytes set to zero before, so one instruction multiplies one channel
//            without unpacking. Neighbouring threads have neighbouring channels and pixels
// Shapes     x u8 or i8 [N,C/16,H,W,16]; w i8 [C,1,R,S]; b f64 [C]; y u8, i8 or f32 in NCHW16c
// Supports   forward; every kernel, stride, padding and dilation; sm_80 and newer
// Cost       FLOPs = 2 N C P Q R S; bytes = x, w, y once. Memory-bound with 3x3 kernels
// Numerics   exact sums; y in double (int8_outputs.cuh). Same bits on each run
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    four pixels a thread, so that a word of w is split once for all four; rows of 3 and 5
//            taps with strides 1 and 2 are compile-time constants
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  int8_lesson_cpu.cpp; depthwise_forward_cuda.cu, the same for real numbers
#include <algorithm>
#include <cmath>

#include "layers/conv2d/int8/shared/cuda/int8_outputs.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_support.cuh"

namespace convscope::int8 {
namespace {

constexpr int kStrip = 4;  // pixels of a thread
constexpr int kMaxThreads = 256;

int narrow(std::int64_t value) { return static_cast<int>(value); }

// The grid. A block of threads works on one plane of 16 channels, and has few threads if the plane
// is small.
struct Blocks {
  explicit Blocks(const Conv2dProblem& z) {
    const std::int64_t strips = z.p() * ceil_div(z.q(), std::int64_t{kStrip});
    threads = narrow(std::min<std::int64_t>(kMaxThreads, round_up(4 * strips, std::int64_t{32})));
    parts = ceil_div(4 * strips, std::int64_t{threads});
    count = z.n * ceil_div(z.c, kChannelBlock) * parts;
  }
  int threads = 32;
  std::int64_t parts = 1, count = 1;  // blocks of a plane, and of all planes
};

struct DepthwiseBytes {
  const unsigned* x = nullptr;  // [N][blocks][H][W] of four words
  const unsigned* w = nullptr;  // [blocks][taps] of four words
  CudaOutputs end;
  int blocks = 0, h = 0, w_size = 0, p = 0, q = 0, taps_h = 1, taps_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, apart_h = 1, apart_w = 1;
  FastDivisor by_parts, by_strips;  // blocks of a plane, strips of a row
};

// Sums a strip, with kernels of any size.
template <bool kSigned>
__device__ inline void sum_strip(const DepthwiseBytes& z, const unsigned* plane,
                                 const unsigned* kernel, int row, int first_q,
                                 int (&sums)[kStrip][4]) {
  for (int r = 0; r < z.taps_h; ++r) {
    const int h = row * z.stride_h - z.pad_h + r * z.apart_h;
    if (h < 0 || h >= z.h) continue;
    const unsigned* const from = plane + static_cast<std::int64_t>(h) * z.w_size * 4;
    for (int s = 0; s < z.taps_w; ++s) {
      const unsigned word = kernel[(r * z.taps_w + s) * 4];
      const unsigned w[4] = {word & 0xffu, word & 0xff00u, word & 0xff0000u, word & 0xff000000u};
#pragma unroll
      for (int j = 0; j < kStrip; ++j) {
        const int column = (first_q + j) * z.stride_w - z.pad_w + s * z.apart_w;
        const bool inside = static_cast<unsigned>(column) < static_cast<unsigned>(z.w_size);
        const unsigned x = inside ? from[column * 4] : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[j][i] = dot_bytes<kSigned>(x, w[i], sums[j][i]);
      }
    }
  }
}

// Sums a strip of kStrip outputs for kernel rows of known length. Each pixel is loaded once for all
// taps.
template <bool kSigned, int kTaps, int kStride>
__device__ inline void sum_known_strip(const DepthwiseBytes& z, const unsigned* plane,
                                       const unsigned* kernel, int row, int first_q,
                                       int (&sums)[kStrip][4]) {
  constexpr int kWords = (kStrip - 1) * kStride + kTaps;
  const int first = first_q * kStride - z.pad_w;
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    inside |= static_cast<unsigned>(first + i) < static_cast<unsigned>(z.w_size) ? 1u << i : 0u;
  }
  for (int r = 0; r < z.taps_h; ++r) {
    const int h = row * z.stride_h - z.pad_h + r * z.apart_h;
    if (h < 0 || h >= z.h) continue;
    const unsigned* const from = plane + (static_cast<std::int64_t>(h) * z.w_size + first) * 4;
    unsigned x[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) x[i] = (inside >> i & 1u) != 0 ? from[i * 4] : 0;
#pragma unroll
    for (int s = 0; s < kTaps; ++s) {
      const unsigned word = kernel[(r * kTaps + s) * 4];
      const unsigned w[4] = {word & 0xffu, word & 0xff00u, word & 0xff0000u, word & 0xff000000u};
#pragma unroll
      for (int j = 0; j < kStrip; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[j][i] = dot_bytes<kSigned>(x[j * kStride + s], w[i], sums[j][i]);
        }
      }
    }
  }
}

// Kernel: blockIdx.x selects a part of a plane of 16 channels. kTaps 0 means any size, stride and
// dilation.
template <bool kSigned, int kTaps, int kStride>
__global__ __launch_bounds__(kMaxThreads) void depthwise_bytes_kernel(
    const __grid_constant__ DepthwiseBytes z) {
  __shared__ Factors<16> factors;
  const int plane = z.by_parts.divide(static_cast<int>(blockIdx.x));
  const int block = plane % z.blocks;
  const int thread =
      (static_cast<int>(blockIdx.x) - plane * z.by_parts.d) * static_cast<int>(blockDim.x) +
      static_cast<int>(threadIdx.x);
  const int strip = thread / 4, four = thread % 4;  // which four channels of the block
  const int row = z.by_strips.divide(strip);
  const int first_q = (strip - row * z.by_strips.d) * kStrip;
  let_next_kernel_start();
  wait_for_previous_kernel();
  make_factors(z.end, block * 16, factors);
  __syncthreads();
  if (row >= z.p) return;
  const unsigned* const kernel =
      z.w + static_cast<std::int64_t>(block) * z.taps_h * z.taps_w * 4 + four;
  const unsigned* const x = z.x + static_cast<std::int64_t>(plane) * z.h * z.w_size * 4 + four;
  int sums[kStrip][4] = {};
  if constexpr (kTaps == 0) {
    sum_strip<kSigned>(z, x, kernel, row, first_q, sums);
  } else {
    sum_known_strip<kSigned, kTaps, kStride>(z, x, kernel, row, first_q, sums);
  }
  const std::int64_t pixel = (static_cast<std::int64_t>(plane) * z.p + row) * z.q + first_q;
  with_kind(z.end, [&](auto known) {
#pragma unroll
    for (int j = 0; j < kStrip; ++j) {
      if (first_q + j >= z.q) break;
      store_four<decltype(known)::kind>(z.end, factors, block * 16, four * 4, sums[j],
                                        (pixel + j) * 16 + four * 4);
    }
  });
}

template <bool kSigned>
auto kernel_for(const Conv2dProblem& z) {
  const auto is = [&](int taps, int stride) {
    return z.s == taps && z.stride_w == stride && (z.dilation_w == 1 || z.s == 1);
  };
  if (is(3, 1)) return depthwise_bytes_kernel<kSigned, 3, 1>;
  if (is(3, 2)) return depthwise_bytes_kernel<kSigned, 3, 2>;
  if (is(5, 1)) return depthwise_bytes_kernel<kSigned, 5, 1>;
  if (is(5, 2)) return depthwise_bytes_kernel<kSigned, 5, 2>;
  return depthwise_bytes_kernel<kSigned, 0, 1>;
}

// Packs [C, taps] to [blocks][taps][16].
__global__ void pack_depthwise_kernel(const signed char* w, int channels, int taps,
                                      std::int64_t count, signed char* to) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const int tap = static_cast<int>(i / 16 % taps);
    const std::int64_t c = i / 16 / taps * 16 + i % 16;
    to[i] = c < channels ? w[c * taps + tap] : static_cast<signed char>(0);
  }
}

std::int64_t packed_count(const Conv2dProblem& z) {
  return round_up(z.c, kChannelBlock) * z.r * z.s;
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return static_cast<std::size_t>(packed_count(z));
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  launch(pack_depthwise_kernel, grid_for(packed_count(z)), static_cast<const signed char*>(args.w),
         narrow(z.c), narrow(z.r * z.s), packed_count(z), static_cast<signed char*>(args.prepared));
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const std::int64_t blocks = ceil_div(z.c, kChannelBlock);
  const Blocks by(z);
  const DepthwiseBytes depthwise{
      .x = static_cast<const unsigned*>(args.x),
      .w = static_cast<const unsigned*>(args.prepared),
      .end = cuda_outputs(args),
      .blocks = narrow(blocks),
      .h = narrow(z.h),
      .w_size = narrow(z.w),
      .p = narrow(z.p()),
      .q = narrow(z.q()),
      .taps_h = narrow(z.r),
      .taps_w = narrow(z.s),
      .stride_h = narrow(z.stride_h),
      .stride_w = narrow(z.stride_w),
      .pad_h = narrow(z.pad_top),
      .pad_w = narrow(z.pad_left),
      .apart_h = narrow(z.dilation_h),
      .apart_w = narrow(z.dilation_w),
      .by_parts = FastDivisor(narrow(by.parts)),
      .by_strips = FastDivisor(narrow(ceil_div(z.q(), std::int64_t{kStrip})))};
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(by.count)),
                          .block = dim3(static_cast<unsigned>(by.threads)),
                          .overlaps_previous = true};
  launch(z.types->x == DType::i8 ? kernel_for<true>(z) : kernel_for<false>(z), shape, depthwise);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const Conv2dSupport codes = supports_codes(z);
  if (!codes.yes) return codes;
  if (z.groups != z.c || z.k != z.c || z.c == 1) {
    return Conv2dSupport::no(
        cat("expects a depthwise layer, with one input and one output channel in each of several "
            "groups, got ",
            z.c, " in and ", z.k, " out in ", z.groups, " groups"));
  }
  constexpr std::int64_t kMax = 0x7fff0000;
  if (std::max(z.h, z.w) > 100000 || std::max(z.stride_h, z.stride_w) > 20000 ||
      std::max(z.r * z.dilation_h, z.s * z.dilation_w) > 1000000 || Blocks(z).count > kMax) {
    return Conv2dSupport::no(
        "expects images of at most 100000 pixels along a side, because places "
        "in a row have 32 bits");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const Blocks by(z);
  const bool known = kernel_for<true>(z) != depthwise_bytes_kernel<true, 0, 1>;
  const double strips = number(by.count) * by.threads;  // of four pixels and four channels
  const double taps = number(z.r * z.s);
  // Loads of a thread: the words of w, and of x once for a known row of taps or once for each tap.
  const std::int64_t row_words =
      known ? (kStrip - 1) * z.stride_w + 2 * z.s : z.s * (1 + kStrip);
  const double words = number(z.r * row_words);
  // dp4a has the rate of f32 instructions, and only one of its four products is used.
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = strips * 2 * kStrip * 4 * taps,
          .cached = strips * 4 * words,
          .schedule = known ? "known" : "any",
          .blocks = number(by.count),
          .resident = std::max(std::floor(2048.0 / by.threads), 1.0),
          .chain = number(z.r),
          .listed_warps = strips / 32 * words,
          .stored = strips * kStrip * 4,
          .prepared_bytes = number(z.w_shape().numel() + packed_count(z)),
          .prepare_launches = 1};
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_depthwise",
    .device = DeviceType::cuda,
    .idea = "int8 depthwise: four channels in a 32-bit word",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = [](const Conv2dProblem&, Direction) -> std::size_t { return 0; },
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 2,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
};

}  // namespace
}  // namespace convscope::int8
CONVSCOPE_CONV2D_ALGORITHM(convscope::int8::kAlgorithm)
