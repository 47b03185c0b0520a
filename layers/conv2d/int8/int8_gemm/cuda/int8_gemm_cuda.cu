// SPDX-License-Identifier: Apache-2.0
// int8_gemm_cuda.cu: convolution on int8 values as a matrix product on the tensor cores. The
// columns are gathered straight from the image into shared memory.
//
// Formula    sum[n,k,p,q] = sum over c < C/G, r, s of x[n, g C/G + c, h, w] w[k,c,r,s], integers
//            real = s_x s_w[k] sum + b[k] + s_r residual;  y = clip(round(real / s_y)), or real
//            with h = p stride_h - pad_top + r dilation_h, w = q stride_w - pad_left + s dilation_w
// Textbook   for pixel = (n,p,q):                          # rows of the product
//              for rsc: A[pixel][rsc] = x[n, c, p - pad + r, q - pad + s], 0 outside
//            sum = A B                                     # [N P Q, K], B[rsc][k] = w
//            y[pixel][k] = clip(round((s_x s_w[k] sum + b[k]) / s_y))
// Method     1. prepare_weights writes w in the order of the reduction, and the table of offsets,
//               once.
//            2. A block sums a tile of 64 or 128 pixels x 64 or 128 channels. 16 channels of a
//               pixel are a piece of 16 contiguous bytes; eight pieces are a step. Copies run two
//               steps ahead (cp.async), and the tensor cores read shared memory (wgmma on sm_90a,
//               mma.sync elsewhere). A thread ends with four neighbouring channels of a pixel: one
//               word of y.
//            3. With few tiles the reduction is split, and one more kernel adds the parts and
//               computes y
// Shapes     x u8 or i8 [N,C/16,H,W,16]; w i8 [K,C/G,R,S] with a scale for each k; b f64 [K]; y u8,
//            i8 or f32 in NCHW16c. Sums i32. Scales and b are on the device
// Supports   forward; kernels up to 15x15; every stride, padding, dilation; one group, or groups of
//            whole blocks of 16 channels; sm_80 and newer
// Cost       FLOPs = 2 N K P Q C/G R S at twice the rate of fp16; bytes = x, w, y once, a quarter
//            of the bytes in f32. Channels are rounded up to 16 and the reduction length to 128: an
//            image of three channels costs as much as one of sixteen
// Numerics   sums are exact: |sum| < 2^31 for up to 65,793 terms. y in double (int8_outputs.cuh).
//            Same bits on each run
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    tiles and parts have the lowest estimated time (layers/dispatch/cost)
// Source     B. Jacob et al., CVPR 2018, arXiv 1712.05877 (integer-only inference); S. Chetlur et
//            al. 2014, arXiv 1410.0759 (the implicit product)
// Read next  int8_lesson_cpu.cpp; int8_gemm_tiles.cuh
#include <algorithm>
#include <cmath>

#include "framework/memory/memory.h"
#include "layers/conv2d/int8/int8_gemm/cuda/int8_gemm_instances.cuh"
#include "layers/conv2d/int8/shared/cuda/int8_support.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::int8 {
namespace {

using gather::blocks_of;
using gather::kMaxTaps;
using gather::piece_at;

constexpr int kMaxSide = 16000;   // side of an image, for 16-bit coordinates
constexpr int kRowMultiple = 128;  // packed rows are a multiple: no tile reads past them
constexpr int kFewestSteps = 2;    // least steps of one part
constexpr int kMaxParts = 64;
constexpr double kMaxPartBytes = 64e6;

int narrow(std::int64_t value) { return static_cast<int>(value); }

class Int8GemmTiling {
 public:
  struct Choice {
    const ByteInstance* instance = nullptr;
    int splits = 1;
    Cost cost = {};
  };
  explicit Int8GemmTiling(const Conv2dProblem& problem) : z(problem) {
    pieces = narrow(ceil_div(z.c_per_group(), kChannelBlock));
    channels = narrow(z.k_per_group());
    rows = round_up(channels, kRowMultiple);
    high = gather::forward_line(narrow(z.h), narrow(z.p()), narrow(z.r), narrow(z.stride_h),
                                narrow(z.pad_top), narrow(z.dilation_h));
    wide = gather::forward_line(narrow(z.w), narrow(z.q()), narrow(z.s), narrow(z.stride_w),
                                narrow(z.pad_left), narrow(z.dilation_w));
    steps = blocks_of(high.taps, wide.taps, pieces);
    part_size = stored_shape(z.y_shape(), ActivationLayout::nchw16c).numel();
    const auto instances =
        z.types->x == DType::i8 ? signed_byte_instances() : unsigned_byte_instances();
    Cheapest<Choice> best({"conv2d", "int8_gemm", Direction::forward},
                                       DeviceType::cuda, z.types->w);
    for (const ByteInstance& candidate : instances) {
      if (candidate.shared_bytes >
          static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block))
        continue;
      for (int parts = 1; parts <= kMaxParts; ++parts) {
        const double bytes = 4.0 * static_cast<double>(part_size) * parts;
        if (parts > 1 && (steps < parts * kFewestSteps || bytes > kMaxPartBytes)) break;
        const Cost counts = counts_of(candidate, parts);
        best.offer({&candidate, parts, counts}, counts);
      }
    }
    const Choice choice = best.found();
    instance = choice.instance;
    splits = choice.splits;
    cost = choice.cost;
  }

  std::int64_t weight_pieces() const { return z.groups * steps * rows * gather::kBlockPieces; }
  std::size_t weight_bytes() const {
    return ScratchArena::round_up(static_cast<std::size_t>(weight_pieces()) * kPieceBytes);
  }
  std::size_t table_bytes() const {
    return static_cast<std::size_t>(steps) * gather::kBlockPieces * sizeof(int2);
  }
  std::size_t part_bytes() const {
    return splits > 1 ? static_cast<std::size_t>(splits * part_size) * sizeof(int) : 0;
  }

  Conv2dProblem z;
  int pieces = 0, channels = 0, rows = 0, steps = 0;
  Line high, wide;
  std::int64_t part_size = 0;
  const ByteInstance* instance = nullptr;
  int splits = 1;
  Cost cost;

 private:
  Cost counts_of(const ByteInstance& by, int parts) const {
    const double blocks = number(z.groups * ceil_div(channels, by.channels) *
                                 ceil_div(z.n * z.p() * z.q(), by.pixels) * parts);
    const double each = ceil_div(steps, parts), outputs = number(part_size);
    const double element = static_cast<double>(size_of(z.types->y));
    const double step_bytes = gather::kBlockPieces * kPieceBytes;  // of a row
    return {.flops = z.nominal_flops(),
            .bytes = z.nominal_bytes(),
            .issued = blocks * each * 2 * step_bytes * by.pixels * by.channels,
            .cached = blocks * each * step_bytes * (by.pixels + by.channels),
            .schedule = by.name,
            .blocks = blocks,
            .resident = static_cast<double>(by.blocks),
            .chain = each,
            .copies = each * std::ceil(gather::kBlockPieces *
                                       static_cast<double>(by.pixels + by.channels) / by.threads),
            .stored = blocks * by.pixels * by.channels,
            // Parts are written, then read to compute y.
            .pass_bytes = parts > 1 ? outputs * (8 * parts + element) : 0,
            .launches = parts > 1 ? 2.0 : 1.0,
            .prepared_bytes = number(z.w_shape().numel()) + static_cast<double>(weight_bytes()),
            .prepare_launches = 1,
            .tensor_cores = true};
  }
};

Int8GemmTiling plan_of(const Conv2dProblem& z) {
  static KeptPlans<Int8GemmTiling> kept;
  return *kept.get(z, Direction::forward, [&] { return Int8GemmTiling(z); });
}

// ---- weights -----------------------------------------------------------------------------------

struct PackBytes {
  const signed char* w = nullptr;  // [G K, C, R, S]
  uint4* to = nullptr;             // [group][step][rows][8 pieces]
  int2* table = nullptr;
  int channels = 0, depth = 0, pieces = 0, rows = 0, steps = 0;  // of a group; `depth`: C/G
  int taps_h = 1, taps_w = 1, tap_down = 0, tap_right = 0;       // tap steps in pixels of x
  int in_area = 0;
};

// Returns the position of a piece of the reduction: its offset, in pieces, from channel 0 of the
// pixel at tap (0, 0), and the row and column of its tap.
__device__ inline int2 place_of_piece(const PackBytes& z, int index) {
  if (index >= z.taps_h * z.taps_w * z.pieces) return make_int2(0, 15 | 15 << 8);  // outside
  const gather::Piece piece = piece_at(index, z.taps_h, z.taps_w, z.pieces);
  return make_int2(piece.channel * z.in_area + piece.tap_h * z.tap_down + piece.tap_w * z.tap_right,
                   piece.tap_h | piece.tap_w << 8);
}

// Kernel: blockIdx.x selects 32 rows of 8 pieces, blockIdx.y a step, blockIdx.z a group.
__global__ void pack_bytes_kernel(const __grid_constant__ PackBytes z) {
  const int piece = static_cast<int>(threadIdx.x) % gather::kBlockPieces;
  const int row = static_cast<int>(blockIdx.x * 32 + threadIdx.x / gather::kBlockPieces);
  const int step = static_cast<int>(blockIdx.y), group = static_cast<int>(blockIdx.z);
  const int index = step * gather::kBlockPieces + piece;
  if (row == 0 && group == 0) z.table[index] = place_of_piece(z, index);
  const int k = channel_of_column(row);
  unsigned words[4] = {};
  if (k < z.channels && index < z.taps_h * z.taps_w * z.pieces) {
    const gather::Piece at = piece_at(index, z.taps_h, z.taps_w, z.pieces);
    const int taps = z.taps_h * z.taps_w;
    for (int i = 0; i < kPieceBytes; ++i) {
      const int c = at.channel * kPieceBytes + i;
      if (c >= z.depth) break;
      const signed char code =
          z.w[((static_cast<std::int64_t>(group) * z.channels + k) * z.depth + c) * taps +
              at.tap_h * z.taps_w + at.tap_w];
      words[i / 4] |= static_cast<unsigned>(static_cast<unsigned char>(code)) << (i % 4 * 8);
    }
  }
  z.to[((static_cast<std::int64_t>(group) * z.steps + step) * z.rows + row) * gather::kBlockPieces +
       piece] = make_uint4(words[0], words[1], words[2], words[3]);
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  const Int8GemmTiling plan = plan_of(z);
  return plan.weight_bytes() + plan.table_bytes();
}

int2* table_of(const Int8GemmTiling& plan, const void* prepared) {
  return reinterpret_cast<int2*>(static_cast<std::byte*>(const_cast<void*>(prepared)) +
                                 plan.weight_bytes());
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Int8GemmTiling plan = plan_of(args.problem);
  const PackBytes pack{.w = static_cast<const signed char*>(args.w),
                       .to = static_cast<uint4*>(args.prepared),
                       .table = table_of(plan, args.prepared),
                       .channels = plan.channels,
                       .depth = narrow(plan.z.c_per_group()),
                       .pieces = plan.pieces,
                       .rows = plan.rows,
                       .steps = plan.steps,
                       .taps_h = plan.high.taps,
                       .taps_w = plan.wide.taps,
                       .tap_down = plan.high.tap_step * plan.wide.in_size,
                       .tap_right = plan.wide.tap_step,
                       .in_area = narrow(plan.z.h * plan.z.w)};
  launch(pack_bytes_kernel,
         {.grid = dim3(static_cast<unsigned>(plan.rows / 32), static_cast<unsigned>(plan.steps),
                       static_cast<unsigned>(plan.z.groups)),
          .block = dim3(kThreads)},
         pack);
}

// ---- forward -----------------------------------------------------------------------------------

// Kernel: computes y from the parts of a split reduction. A thread takes four channels of a pixel.
// blockIdx.x selects 64 pixels inside a block of channels, inside an image.
__global__ __launch_bounds__(kThreads) void finish_bytes_kernel(const int* parts, int splits,
                                                                std::int64_t part_size,
                                                                int out_blocks, int out_area,
                                                                const CudaOutputs end) {
  __shared__ Factors<16> factors;
  const int across = ceil_div(out_area, static_cast<int>(kThreads) / 4);
  const int plane = static_cast<int>(blockIdx.x) / across;
  const int pixel = static_cast<int>(blockIdx.x) % across * (static_cast<int>(kThreads) / 4) +
                    static_cast<int>(threadIdx.x) / 4;
  const int channel = plane % out_blocks * 16, local = static_cast<int>(threadIdx.x) % 4 * 4;
  let_next_kernel_start();
  wait_for_previous_kernel();
  make_factors(end, channel, factors);
  __syncthreads();
  if (pixel >= out_area) return;
  const std::int64_t at = (static_cast<std::int64_t>(plane) * out_area + pixel) * 16 + local;
  int four[4] = {};
  for (int split = 0; split < splits; ++split) {
    const int4 part = *reinterpret_cast<const int4*>(parts + split * part_size + at);
    four[0] += part.x;
    four[1] += part.y;
    four[2] += part.z;
    four[3] += part.w;
  }
  with_kind(end, [&](auto known) {
    store_four<decltype(known)::kind>(end, factors, channel, local, four, at);
  });
}

void forward(const Conv2dForwardArgs& args) {
  const Int8GemmTiling plan = plan_of(args.problem);
  const Conv2dProblem& z = plan.z;
  const ByteInstance& by = *plan.instance;
  const int channel_tiles = ceil_div(plan.channels, by.channels);
  const ByteGather gather{.pixels = static_cast<const uint4*>(args.x),
                          .weights = static_cast<const uint4*>(args.prepared),
                          .table = table_of(plan, args.prepared),
                          .parts = static_cast<int*>(args.workspace),
                          .part_size = plan.part_size,
                          .end = cuda_outputs(args),
                          .images = narrow(z.n),
                          .groups = narrow(z.groups),
                          .channels = plan.channels,
                          .weight_rows = plan.rows,
                          .steps = plan.steps,
                          .splits = plan.splits,
                          .pieces = plan.pieces,
                          .all_pieces = narrow(ceil_div(z.c, kChannelBlock)),
                          .out_blocks = narrow(ceil_div(z.k, kChannelBlock)),
                          .by_channel_tiles = FastDivisor(channel_tiles),
                          .high = plan.high,
                          .wide = plan.wide};
  const std::int64_t pixel_tiles = ceil_div(z.n * z.p() * z.q(), by.pixels);
  launch(by.kernel,
         {.grid = dim3(static_cast<unsigned>(channel_tiles * pixel_tiles),
                       static_cast<unsigned>(z.groups), static_cast<unsigned>(plan.splits)),
          .block = dim3(by.threads),
          .shared_bytes = by.shared_bytes,
          .overlaps_previous = true},
         gather);
  if (plan.splits == 1) return;
  const std::int64_t across = ceil_div(z.p() * z.q(), std::int64_t{kThreads / 4});
  launch(finish_bytes_kernel,
         {.grid = dim3(static_cast<unsigned>(z.n * gather.out_blocks * across)),
          .block = dim3(kThreads),
          .overlaps_previous = true},
         gather.parts, plan.splits, plan.part_size, gather.out_blocks, narrow(z.p() * z.q()),
         gather.end);
}

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const Conv2dSupport codes = supports_codes(z);
  if (!codes.yes) return codes;
  if (z.groups > 1 &&
      (z.c_per_group() % kChannelBlock != 0 || z.k_per_group() % kChannelBlock != 0)) {
    return Conv2dSupport::no(cat("expects groups of a multiple of 16 channels, got ", z.groups,
                                 " groups of ", z.c_per_group(), " and ", z.k_per_group()));
  }
  if (z.r > kMaxTaps || z.s > kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMaxTaps, "x", kMaxTaps,
                                 ", because each pixel keeps a bit for each tap, got ", z.r, "x",
                                 z.s));
  }
  const std::int64_t side =
      std::max({z.h + z.pad_top + z.pad_bottom, z.w + z.pad_left + z.pad_right, z.p(), z.q()});
  if (side > kMaxSide || std::max(z.stride_h, z.stride_w) > kMaxSide) {
    return Conv2dSupport::no(cat("expects images of at most ", kMaxSide, "x", kMaxSide,
                                 " with padding, because coordinates have 16 bits, got ", side));
  }
  const std::int64_t pieces = ceil_div(std::max(z.c, z.k), kChannelBlock);
  if (z.n * std::max(z.h * z.w, z.p() * z.q()) * pieces > 0x7fff0000 || z.groups > 65535 ||
      ceil_div(z.c_per_group(), kChannelBlock) * z.r * z.s > 65535 * 8) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 pieces of 16 channels in a tensor and at most 65535 groups and "
        "steps, because places have 32 bits");
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) { return plan_of(z).cost; }

std::size_t workspace_bytes(const Conv2dProblem& z, Direction) {
  return plan_of(z).part_bytes();
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_gemm",
    .device = DeviceType::cuda,
    .idea = "int8 products on the tensor cores, exact sums rounded in the epilogue",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
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
