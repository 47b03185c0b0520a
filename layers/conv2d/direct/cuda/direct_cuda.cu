// SPDX-License-Identifier: Apache-2.0
// direct_cuda.cu: direct convolution on a GPU, with tiles of outputs in registers and x and w in
// shared memory. It is for few input channels, where a matrix product has too little work.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//            x[n, c, p stride - pad_top + r, q stride - pad_left + s] w[k,c,r,s]
// Textbook   for n, k, p, q:
//              for c, r, s: sum += x[n][c][p * stride - pad + r][...] * w[k][c][r][s]
//              y[n][k][p][q] = relu(sum + b[k] + residual)
// Method     forward          a thread has 8 pixels of a row for 8 output channels, a block some
//                             rows and columns for up to 64 channels. The row of x that 8 pixels
//                             need is loaded once for R columns of the kernel; output channels are
//                             neighbours in w. The next chunk of x is copied (cp.async) while this
//                             chunk is multiplied.
//            backward_data    C <= 4 or stride 2: a thread has 2 x 8 pixels of dx for 3 or 4
//                             channels and loops over the output channels. The pairs of (r, s) and
//                             pixel at stride 2 are known at compile time, so zeros are not
//                             multiplied. Other cases run forward over dy with the rotated kernel.
//            backward_weight  a thread has R (or 3 x 3) accumulators for 8 output channels and one
//                             c, and loops over rows of y, 4 pixels at a time. Each block has a
//                             slice of the rows; a second kernel adds the slices in order
// Shapes     x [N,C,H,W], w [K,C,R,R], y [N,K,P,Q], row-major, any alignment, f32, f32 accumulators
// Supports   f32; kernels of 3x3, 5x5 and 7x7, stride 1 or 2, no dilation, one group, every
//            padding; fewer than 2^25 images, channels, weights, pixels of an image and tiles of 8
//            pixels, which int counts
// Cost       FLOPs = 2 N K P Q C R^2; bytes = every tensor once, x again around each tile; dw also
//            writes and reads the sums of its slices. Compute-bound except with 1 or 2 input
//            channels
// Numerics   sums of C R^2 products, one after another. Chains of bounded length would need a
//            second set of accumulators, but 128 registers hold only the first 64. So the error
//            bound grows with the square root of the length (`one_chain`); dw is summed in some 400
//            slices. The order depends only on the sizes: same bits on each run. Exact on integers.
// Backward   dx assigned; dw assigned or added to
// Choices    A thread has 8 x 8 accumulators. For each (c, r) it makes 64 R products from 6 vector
//            loads of x (R = 7, stride 2) and 2 R vector loads of w, so shared memory needs less
//            time than the multipliers. With window and operands a thread has about 110 registers,
//            so two blocks of 256 threads fit on an SM. A block has 100 KB of shared memory, which
//            also lets two blocks fit. For dx a thread has 2 x 8 x 3 accumulators: a vector load of
//            w for (r, s) serves at least 12 products.
// Source     the tiles: V. Volkov, J. Demmel: Benchmarking GPUs to Tune Dense Linear Algebra, 2008
//            (registers before shared memory); the rest is our own
// Read next  im2col_gemm_cuda.cu (the same sums as a matrix product); direct_sample_cuda.cu (a
//            sample in one block); direct_any_cuda.cu (one thread for each output)
#include <algorithm>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/direct/cuda/direct_cuda_data.cuh"
#include "layers/conv2d/direct/cuda/direct_cuda_weight.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope {
namespace {

using namespace direct_cuda;
using Index = std::int64_t;

constexpr int kResident = 2;  // blocks of 100 KB of shared memory on an SM

// ---- launchers ----------------------------------------------------------------------------------

bool on_16_bytes(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// Calls run.template operator()<R, stride>().
template <class Run>
void with_tile_sizes(int r, int stride, Run&& run) {
  const int which = r * 10 + stride;
  switch (which) {
    case 31:
      return run.template operator()<3, 1>();
    case 32:
      return run.template operator()<3, 2>();
    case 51:
      return run.template operator()<5, 1>();
    case 52:
      return run.template operator()<5, 2>();
    case 71:
      return run.template operator()<7, 1>();
    default:
      return run.template operator()<7, 2>();
  }
}

std::size_t bytes_of(int floats) { return static_cast<std::size_t>(floats) * sizeof(float); }

ForwardTiles forward_tiles_of(const DirectShape& z) {
  return forward_tiles(z.r, z.stride_h, z.c, z.k, z.p, z.q);
}
// Returns the blocks along the tiles of pixels. When all of w fits into shared memory, a block
// keeps w and processes several tiles in turn.
int forward_blocks(const DirectShape& z, const ForwardTiles& t) {
  const int tiles = z.n * t.tiles_p * t.tiles_q;
  const int resident = kResident * cuda_device_facts().multiprocessors;
  return t.chunks > 1 ? tiles : least(tiles, most(1, resident / t.tiles_k));
}

void forward_by_tiles(const DirectShape& z, const ForwardPointers& at) {
  const ForwardTiles t = forward_tiles_of(z);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(forward_blocks(z, t)), static_cast<unsigned>(t.tiles_k)),
      .block = dim3(kBlockThreads),
      .shared_bytes = bytes_of(t.floats())};
  with_tile_sizes(z.r, z.stride_h, [&]<int R, int kStride>() {
    launch(forward_tile_kernel<R, kStride>, shape, z, t, at);
  });
}

void forward(const Conv2dForwardArgs& args) {
  const DirectShape z(args.problem);
  forward_by_tiles(z, {.x = static_cast<const float*>(args.x),
                       .w = {.w = static_cast<const float*>(args.w),
                             .out_step = z.c_group * z.r * z.s,
                             .in_step = z.r * z.s},
                       .b = static_cast<const float*>(args.b),
                       .residual = static_cast<const float*>(args.epilogue.residual),
                       .relu = args.epilogue.relu,
                       .by_fours = z.q % 4 == 0 && on_16_bytes(args.y),
                       .y = static_cast<float*>(args.y)});
}

// Returns the forward problem over dy with the rotated kernel, whose output is dx at stride 1.
DirectShape exchanged(const DirectShape& z) {
  DirectShape back = z;
  back.c = z.k;
  back.h = z.p;
  back.w = z.q;
  back.k = z.c;
  back.p = z.h;
  back.q = z.w;
  back.pad_top = z.r - 1 - z.pad_top;
  back.pad_left = z.s - 1 - z.pad_left;
  return back;
}

DataTiles data_tiles_of(const DirectShape& z) {
  const int first_h = z.pad_top / z.stride_h * z.stride_h;
  const int first_w = z.pad_left / (4 * z.stride_w) * (4 * z.stride_w);
  return data_tiles(z.r, z.stride_h, z.k, z.h + z.pad_top - first_h, z.w + z.pad_left - first_w);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const DirectShape z(args.problem);
  const auto* const dy = static_cast<const float*>(args.dy);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const dx = static_cast<float*>(args.dx);
  if (z.stride_h == 1 && z.c > 4) {
    return forward_by_tiles(exchanged(z), {.x = dy,
                                           .w = {.w = w,
                                                 .out_step = z.r * z.s,
                                                 .in_step = z.c * z.r * z.s,
                                                 .rotated = true},
                                           .by_fours = z.w % 4 == 0 && on_16_bytes(dx),
                                           .y = dx});
  }
  const DataTiles t = data_tiles_of(z);
  const int channels = z.c <= 3 ? 3 : 4;
  const bool by_fours = z.q % 4 == 0 && on_16_bytes(dy);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(z.n * t.tiles_h * t.tiles_w),
                                       static_cast<unsigned>(ceil_div(z.c, channels))),
                          .block = dim3(kDataThreads),
                          .shared_bytes = bytes_of(2 * t.dy_floats)};
  with_tile_sizes(z.r, z.stride_h, [&]<int R, int kStride>() {
    const auto kernel =
        channels == 3 ? data_tile_kernel<R, kStride, 3> : data_tile_kernel<R, kStride, 4>;
    launch(kernel, shape, z, t, dy, w, by_fours, dx);
  });
}

WeightTiles weight_tiles_of(const Conv2dProblem& problem) {
  const DirectShape z(problem);
  return weight_tiles(z.r, z.stride_h, z.c, z.k, z.p, z.q, z.n);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const DirectShape z(problem);
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dw = static_cast<float*>(args.dw);
  auto* const sums = static_cast<float*>(args.workspace);
  const Index count = problem.w_shape().numel();
  const WeightTiles t = weight_tiles_of(problem);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(t.slices), static_cast<unsigned>(t.tiles_k * t.tiles_c)),
      .block = dim3(static_cast<unsigned>(t.threads)),
      .shared_bytes = bytes_of(t.floats())};
  const bool by_fours = z.q % 4 == 0 && on_16_bytes(dy);
  with_tile_sizes(z.r, z.stride_h, [&]<int R, int kStride>() {
    launch(weight_tile_kernel<R, kStride>, shape, z, t, x, dy, by_fours, sums);
  });
  launch(add_slices_kernel,
         LaunchShape{.grid = dim3(static_cast<unsigned>(ceil_div(count, 32))),
                     .block = dim3(kBlockThreads)},
         sums, count, t.slices, args.accumulate, dw);
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const Conv2dSupport direct = direct_support(z);
  if (!direct.yes) return direct;
  return has_register_tiles(z)
             ? Conv2dSupport{}
             : Conv2dSupport::no(
                   cat("expects a kernel of 3x3, 5x5 or 7x7, stride 1 or 2, dilation 1 and groups "
                       "1, got ",
                       z.r, "x", z.s, ", stride ", z.stride_h, "x", z.stride_w, ", dilation ",
                       z.dilation_h, "x", z.dilation_w, " and groups ", z.groups,
                       "; direct_any accepts it"));
}

// Returns the CUDA kernel: one for each size and stride, and others for dx with a stride or few
// channels.
const char* schedule_of(int r, int stride, bool data_tiles) {
  constexpr const char* kNames[2][2][3] = {
      {{"3x3", "5x5", "7x7"}, {"3x3 stride 2", "5x5 stride 2", "7x7 stride 2"}},
      {{"dx 3x3", "dx 5x5", "dx 7x7"}, {"dx 3x3 stride 2", "dx 5x5 stride 2", "dx 7x7 stride 2"}}};
  return kNames[data_tiles ? 1 : 0][stride - 1][r / 2 - 1];
}

Conv2dCost weight_cost(const Conv2dProblem& z, Conv2dCost cost) {
  const WeightTiles t = weight_tiles_of(z);
  const int r = static_cast<int>(z.r);
  const double steps = number(ceil_div(z.n * z.p(), Index{most(1, t.slices)}) * t.pieces);
  const double dw = number(z.w_shape().numel());
  cost.blocks = number(Index{t.slices} * t.tiles_k * t.tiles_c);
  cost.issued = cost.blocks * steps * 2 * round_up(t.items * t.splits, 32) * kChannels *
                t.kernel_rows * r * 4 * ceil_div(t.fours, t.splits);
  const double x_floats = 1.0 * t.c_tile * r * t.x_pitch;
  const double dy_floats = 1.0 * t.k_tile() * t.columns;
  cost.cached = cost.blocks * steps * 4 * (x_floats + dy_floats);
  cost.schedule = schedule_of(r, static_cast<int>(z.stride_h), false);
  cost.chain = steps;
  // x is copied element by element, dy by fours where its rows allow it.
  cost.copies = steps * (x_floats + dy_floats / (z.q() % 4 == 0 ? 4 : 1)) / t.threads;
  // The threads of a block add their results channel by channel, a warp every eighth slice.
  cost.waits = kChannels * t.kernel_rows * r * t.splits + ceil_div(t.slices, 8);
  cost.stored = dw * t.slices;
  cost.pass_bytes = 4 * dw * (2 * t.slices + 1);
  cost.launches = 2;
  return cost;
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const DirectShape s(z);
  Conv2dCost cost{.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .resident = kResident};
  if (direction == Direction::backward_weight) return weight_cost(z, cost);
  if (data && (s.stride_h > 1 || s.c <= 4)) {
    const DataTiles t = data_tiles_of(s);
    const int channels = s.c <= 3 ? 3 : 4;
    cost.blocks = number(z.n * t.tiles_h * t.tiles_w * ceil_div(s.c, channels));
    cost.issued = cost.blocks * 2 * kDataThreads * 2 * kPixels * channels * number(z.k) *
                  number(z.r * z.s) / number(z.stride_h * z.stride_w);
    const double dy_floats = 1.0 * s.k * t.dy.rows * t.dy.by_columns.d;
    const double w_floats = 1.0 * s.k * t.w_floats;
    cost.cached = cost.blocks * 4 * (dy_floats + w_floats);
    cost.schedule = schedule_of(s.r, s.stride_h, true);
    cost.resident = 3;  // __launch_bounds__
    cost.chain = t.chunks;
    cost.copies = (dy_floats / (s.q % 4 == 0 ? 4 : 1) + w_floats) / kDataThreads;
    // With a stride, the elements of a phase are not adjacent.
    cost.stored = number(z.x_shape().numel()) / (s.stride_h > 1 ? 1 : 4);
    return cost;
  }
  const DirectShape shape = data ? exchanged(s) : s;
  const ForwardTiles t = forward_tiles_of(shape);
  const double tiles = number(z.n * t.tiles_p * t.tiles_q);
  const double x_copies = 1.0 * shape.c * t.x.rows * t.x.by_columns.d;
  // A block that processes several tiles copies w once.
  const double w_copies =
      1.0 * shape.c * s.r * s.s * t.k_tile() * forward_blocks(shape, t) / std::max(tiles, 1.0);
  // A block that keeps w counts as a block for each of its tiles.
  cost.blocks = tiles * t.tiles_k;
  cost.issued = cost.blocks * 2 * kBlockThreads * kPixels * kChannels * shape.c * s.r * s.s;
  cost.cached = cost.blocks * 4 * (x_copies + w_copies);
  cost.schedule = schedule_of(s.r, s.stride_h, false);
  cost.chain = t.chunks;
  cost.copies = (x_copies + w_copies) / kBlockThreads;
  cost.stored = number((data ? z.x_shape() : z.y_shape()).numel()) / (shape.q % 4 == 0 ? 4 : 1);
  return cost;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  const Index floats = weight_tiles_of(z).slices * z.w_shape().numel();
  return static_cast<std::size_t>(floats) * sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct",
    .device = DeviceType::cuda,
    .idea = "tiles of outputs in registers, x and w in shared memory; made for few channels",
    .paper = "Volkov, Demmel 2008: Benchmarking GPUs to Tune Dense Linear Algebra",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
