// SPDX-License-Identifier: Apache-2.0
// int8_depthwise_cpu.cpp: depthwise convolution on int8 values: 16 channels in the lanes, four
// neighbouring pixels of a row in one product, exact 32-bit sums.
//
// Formula    sum[n,k,p,q] = sum over r, s of x[n,k,h,w] w[k,0,r,s], integers, with
//            h = p stride_h - pad_top + r dilation_h, w = q stride_w - pad_left + s
//            real = s_x s_w[k] sum + b[k] + s_r residual;  y = clip(round(real / s_y)), or real
// Textbook   for n, k, p, q:
//              sum = 0
//              for r, s: sum += int(x[n][k][h][w]) * int(w[k][r][s])
//              y[n][k][p][q] = clip(round((s_x * s_w[k] * sum + b[k]) / s_y))
// Method     Some rows of a plane of 16 channels are copied with their border into L1, as bytes
//            0..255. Then windows of four pixels are multiplied by a row of the kernel
//            (int8_depthwise_int8_simd.cpp). Each thread takes some planes and runs of rows.
// Shapes     x u8 or i8 [N,C/16,H,W,16]; w i8 [K,1,R,S] with a scale for each k; b f64 [K]; y u8,
//            i8 or f32 in NCHW16c. Sums i32.
// Supports   forward; groups = C = K; dilation 1 along the width; see supports_types()
// Cost       FLOPs = 2 N K P Q R S; bytes = x, w, y once: memory-bound on large maps, otherwise
//            bound by the epilogue, which takes as long as a 3x3 kernel
// Numerics   as int8_direct: exact sums, codes of double arithmetic
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    A kernel up to 3 wide uses windows of 4 pixels for two pixels of y (one pixel with
//            stride 2); a kernel up to 5 wide uses 8 pixels for four. As many rows are copied at
//            once as fit into half of L1.
// Source     the windows are own work; the layout: E. Georganas et al., SC 2018, arXiv 1808.05567
// Read next  int8_direct_cpu.cpp; ../../depthwise/cpu/depthwise_nchw16c.cpp, the same in f32
#include <cstring>

#include "layers/conv2d/int8/int8_depthwise/cpu/int8_depthwise.h"
#include "layers/conv2d/int8/shared/cpu/int8_pass.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

constinit IsaTable<Int8DepthwiseKernels> int8_depthwise_kernels;

namespace int8 {
namespace {

constexpr Index kMaxWidth = 16;  // width of a kernel: four groups of four

// Returns the window with the fewest instructions per pixel of y. Each group of a window needs a
// load, two shuffles, and a product for each of the `shared` pixels of y.
Int8Window window_of(const Conv2dProblem& z) {
  constexpr Int8Window kKnown[] = {{2, 1}, {1, 1}, {4, 2}, {2, 2}, {1, 2}, {1, 3}, {1, 4}};
  Int8Window best;
  double least = 1e9;
  for (const Int8Window& one : kKnown) {
    if ((one.shared - 1) * z.stride_w + z.s > 4 * one.groups) continue;
    const double work = one.groups * (3.0 + one.shared) / one.shared;
    if (work >= least) continue;
    least = work;
    best = one;
  }
  return best;
}

struct Int8DepthwiseTiling {
  explicit Int8DepthwiseTiling(const Conv2dProblem& problem)
      : z(problem), window(window_of(problem)) {
    blocks = ceil_div(z.c, kChannelBlock);
    const Index y_columns = round_up(z.q(), Index{window.shared});
    // Pixels of a padded row: the image with its border, but at least what the last window reads.
    width = std::max(z.w + z.pad_left + z.pad_right,
                     (y_columns - window.shared) * z.stride_w + 4 * window.groups);
    const Index high = (z.r - 1) * z.dilation_h + 1;
    const auto room = static_cast<Index>(cache_sizes().l1 / 2) / (width * kChannelBlock);
    rows_at_once = std::clamp<Index>((room - high) / z.stride_h + 1, 1, z.p());
    const Index planes = z.n * blocks;
    const Index wanted = num_threads() == 1 ? 1 : 4 * num_threads();
    if (planes < wanted) {
      rows_at_once = std::min(rows_at_once, ceil_div(z.p(), ceil_div(wanted, planes)));
    }
    chunks_of_plane = ceil_div(z.p(), rows_at_once);
    rows_of_x = (rows_at_once - 1) * z.stride_h + high;
  }
  Index buffer_bytes() const { return rows_of_x * width * kChannelBlock; }
  Index packed_block() const {  // bytes of the weights of 16 channels
    return z.r * window.shared * window.groups * kChannelBlock *
           int8_depthwise_kernels.get().weight_bytes;
  }
  Index channels() const { return blocks * kChannelBlock; }

  const Conv2dProblem& z;
  Int8Window window;
  Index blocks, width, rows_at_once, chunks_of_plane, rows_of_x;
};

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const Conv2dSupport types = supports_types(z, direction);
  if (!types.yes) return types;
  if (z.groups != z.c || z.groups != z.k) {
    return Conv2dSupport::no(cat("expects a group for each input and output channel, got ",
                                 z.groups, " groups, ", z.c, " input channels and ", z.k,
                                 " output channels"));
  }
  if (z.types->x == DType::f32) return Conv2dSupport::no("expects codes, got x of f32");
  if (z.dilation_w != 1) {
    return Conv2dSupport::no(cat("expects dilation 1 along the width, got ", z.dilation_w));
  }
  if (z.s > kMaxWidth) {
    return Conv2dSupport::no(
        cat("expects a kernel of a width of at most ", kMaxWidth, ", got ", z.s));
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const Int8DepthwiseTiling plan(z);
  const double pixels =
      number(z.n * plan.blocks * z.p()) * number(round_up(z.q(), Index{plan.window.shared}));
  const double groups = pixels * number(z.r * plan.window.groups);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * groups * number(kChannelBlock * kQuad),
          .loads = 3 * groups / number(plan.window.shared),  // a load and two shuffles
          .copied = number(z.n * plan.blocks * plan.chunks_of_plane * plan.buffer_bytes()),
          .transformed = number(z.y_shape().numel()),  // scaled and rounded
          .prepared = number(plan.blocks * plan.packed_block()),
          .chunks = number(z.n * plan.blocks * plan.chunks_of_plane),
          .schedule = uses_vnni() ? "vnni" : ""};
}

struct Memory {
  explicit Memory(const Int8DepthwiseTiling& plan)
      : factors(ScratchArena::round_up(OutputFactors::bytes(plan.channels()))),
        starts(ScratchArena::round_up(static_cast<std::size_t>(plan.channels()) *
                                      sizeof(std::int32_t))),
        buffer(ScratchArena::round_up(static_cast<std::size_t>(plan.buffer_bytes()))) {}
  std::size_t factors, starts, buffer;
};

std::size_t workspace_bytes(const Conv2dProblem& z, Direction) {
  const Memory memory{Int8DepthwiseTiling(z)};
  return memory.factors + memory.starts + static_cast<std::size_t>(num_threads()) * memory.buffer;
}

// Returns the bytes of the packed weights and of each channel's sum of weights, which follows them.
std::size_t weights_bytes(const Int8DepthwiseTiling& plan) {
  return ScratchArena::round_up(static_cast<std::size_t>(plan.blocks * plan.packed_block()));
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  const Int8DepthwiseTiling plan(z);
  return weights_bytes(plan) + static_cast<std::size_t>(plan.channels()) * sizeof(std::int32_t);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Int8DepthwiseTiling plan(args.problem);
  const Conv2dProblem& z = args.problem;
  const Int8DepthwiseKernels kernels = int8_depthwise_kernels.get();
  const auto* const w = static_cast<const std::int8_t*>(args.w);
  auto* to = static_cast<std::int8_t*>(args.prepared);
  auto* const totals = reinterpret_cast<std::int32_t*>(to + weights_bytes(plan));
  std::fill_n(totals, plan.channels(), 0);
  for (Index k = 0; k < z.k; ++k) {
    for (Index i = 0; i < z.r * z.s; ++i) totals[k] += w[k * z.r * z.s + i];
  }
  const Index vector = kernels.lanes * kernels.weight_bytes;
  for (Index block = 0; block < plan.blocks; ++block) {
    for (Index r = 0; r < z.r; ++r) {
      for (Index d = 0; d < plan.window.shared; ++d) {
        for (Index g = 0; g < plan.window.groups; ++g, to += kChannelBlock * kernels.weight_bytes) {
          for (Index c = 0; c < kChannelBlock; ++c) {
            const Index k = block * kChannelBlock + c;
            for (Index i = 0; i < kQuad; ++i) {
              const Index s = 4 * g + i - d * z.stride_w;
              const bool exists = k < z.k && s >= 0 && s < z.s;
              const std::int8_t weight = exists ? w[(k * z.r + r) * z.s + s] : std::int8_t{0};
              std::int8_t* const at = to + c / kernels.lanes * vector;
              const Index lane = c % kernels.lanes;
              if (kernels.weight_bytes == 4) {
                at[kQuad * lane + i] = weight;
                continue;
              }
              const std::int16_t wide = weight;  // even inputs of all lanes first, then odd inputs
              std::memcpy(at + 2 * ((i % 2 * kernels.lanes + lane) * 2 + i / 2), &wide,
                          sizeof(wide));
            }
          }
        }
      }
    }
  }
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Int8DepthwiseTiling plan(z);
  const Memory memory(plan);
  auto* const scratch = static_cast<std::uint8_t*>(args.workspace);
  const OutputFactors factors(args, 1, plan.channels(), scratch);
  auto* const starts = reinterpret_cast<std::int32_t*>(scratch + memory.factors);
  const auto* const packed = static_cast<const std::int8_t*>(args.prepared);
  const auto* const totals = reinterpret_cast<const std::int32_t*>(packed + weights_bytes(plan));
  const std::int32_t offset = offset_of(args);
  for (Index k = 0; k < plan.channels(); ++k) starts[k] = -offset * totals[k];
  const Int8Outputs& outputs = factors.outputs();
  const Index y_bytes = outputs.codes ? 1 : 4;
  const Index beside = outputs.residual_type == Int8Outputs::Residual::floats ? 4 : 1;
  const auto* const residual = static_cast<const std::uint8_t*>(args.epilogue.residual);
  const Int8DepthwiseKernels kernels = int8_depthwise_kernels.get();
  parallel_chunks(z.n * plan.blocks * plan.chunks_of_plane, [&](Index chunk, int thread) {
    const Index plane = chunk / plan.chunks_of_plane, block = plane % plan.blocks;
    const Index begin = chunk % plan.chunks_of_plane * plan.rows_at_once;
    const Index end = std::min(begin + plan.rows_at_once, z.p());
    std::uint8_t* const buffer =
        scratch + memory.factors + memory.starts + static_cast<std::size_t>(thread) * memory.buffer;
    kernels.pad(
        {.plane = static_cast<const std::uint8_t*>(args.x) + plane * z.h * z.w * kChannelBlock,
         .h = z.h,
         .w = z.w,
         .first = begin * z.stride_h - z.pad_top,
         .count = (end - begin - 1) * z.stride_h + (z.r - 1) * z.dilation_h + 1,
         .left = z.pad_left,
         .width = plan.width,
         .offset = static_cast<std::uint8_t>(offset),
         .to = buffer});
    const Index at = (plane * z.p() + begin) * z.q() * kChannelBlock;
    kernels.rows({.window = plan.window,
                  .rows = static_cast<int>(z.r),
                  .step = static_cast<int>(z.stride_w),
                  .height = end - begin,
                  .pixels = z.q(),
                  .in = buffer,
                  .row_step = z.stride_h * plan.width * kChannelBlock,
                  .tap_step = z.dilation_h * plan.width * kChannelBlock,
                  .w = packed + block * plan.packed_block(),
                  .start = starts + block * kChannelBlock,
                  .channel = block * kChannelBlock,
                  .outputs = &outputs,
                  .out = static_cast<std::uint8_t*>(args.y) + at * y_bytes,
                  .residual = residual == nullptr ? nullptr : residual + at * beside});
  });
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_depthwise",
    .device = DeviceType::cpu,
    .idea = "four neighbouring pixels of a row in one int8 dot product, 16 channels side by side",
    .paper =
        "Jacob et al. 2018: Quantization and training of neural networks for efficient "
        "integer-arithmetic-only inference, arXiv 1712.05877",
    .supports = with_workspace_limit<supports, workspace_bytes>,
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
}  // namespace int8
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::int8::kAlgorithm)
