// SPDX-License-Identifier: Apache-2.0
// depthwise_lesson_cuda.cu: depthwise convolution on a GPU. A block loads its tile of one plane
// into shared memory once, and each of its threads computes one output from the tile.
//
// Formula    y[n,k,p,q] = b[k] + sum over r, s of w[k,0,r,s] x[n, k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], M = K/C, x = 0 outside
// Textbook   for each plane (n,k) and tile of 16 x 16 outputs:        # a block
//              tile = x under these outputs, with its border          # all threads load
//              for each output of the tile:                           # a thread
//                y = b[k] + sum over r, s of w[k,0,r,s] * tile[p stride + r dilation, ..]
//
//              x, tile with border       y            16 x 16 outputs of a 3x3 kernel need 18 x 18
//              b b b b b b                            inputs: 1.27 loads from memory for an output
//             b . . . . b         ->    o o o o      instead of 9. All else is shared memory.
//              b . . . . b               o o o o
//              b b b b b b
//
// Method     Forward is computed as above. In backward_data, a thread for each pixel of dx gathers
//            R S products with dy (from L1, without a tile). In backward_weight, a warp computes
//            one weight: each of its 32 threads takes every 32nd pixel of all images, and the 32
//            results are added at the end.
// Shapes     x [N,C,H,W], w [K,1,R,S], b [K], y [N,K,P,Q], row-major, f32; sums in f32
// Supports   f32 (tf32 is computed as f32) with C/G = 1; every kernel, stride, dilation, padding
//            and multiplier M; forward: a tile that fits 48 KiB of shared memory
// Cost       FLOPs = 2 N K P Q R S; bytes = y, and x with its borders; dw: x and dy R S times,
//            unless the caches hold them. Bound by memory and by loads from shared memory
// Numerics   forward and dx: R S terms one after another; dw: 32 sums, then a tree over the warp:
//            same bits on each run; exact on integers below 2^24
// Backward   dx assigned; dw assigned or added to
// Choices    16 x 16: 256 threads, and the border adds a quarter to what a 3x3 kernel loads
// Source     L. Sifre: Rigid-Motion Scattering for Image Classification, 2014 (thesis)
// Read next  depthwise_lesson_cpu.cpp, the same without threads; depthwise_forward_cuda.cu, where a
//            thread computes many outputs in registers while asynchronous copies load the next tile
#include "layers/conv2d/shared/lesson.cuh"

namespace convscope {
namespace {

using namespace lesson;  // NOLINT(google-build-using-namespace): sizes and views of all lessons

constexpr Index kTile = 16;                      // outputs along each side
constexpr std::size_t kSharedBytes = 48 * 1024;  // of shared memory, available to a block on every
                                                 // GPU

// Returns the rows (or columns) of x under a tile of outputs.
constexpr Index side(Index stride, Index dilation, Index taps) {
  return (kTile - 1) * stride + (taps - 1) * dilation + 1;
}

__global__ void forward_kernel(const ConvShape z, const In x, const In w, const In bias,
                               const Out y) {
  float* const tile = dynamic_shared<float>();  // [rows, columns]
  const Index rows = side(z.stride_h, z.dilation_h, z.r);
  const Index columns = side(z.stride_w, z.dilation_w, z.s);
  const Index across = ceil_div(z.q, kTile), tiles = across * ceil_div(z.p, kTile);
  const Index plane = blockIdx.x / tiles, at = blockIdx.x % tiles;
  const Index n = plane / z.k, k = plane % z.k;
  const Index p = at / across * kTile, q = at % across * kTile;  // first output of the tile
  for (Index i = threadIdx.x; i < rows * columns; i += kTile * kTile) {
    tile[i] = x.or_zero(n, k / z.k_group, z.row(p, 0) + i / columns, z.column(q, 0) + i % columns);
  }
  __syncthreads();  // the whole tile is loaded
  const Index i = threadIdx.x / kTile, j = threadIdx.x % kTile;
  if (p + i >= z.p || q + j >= z.q) return;
  float sum = bias.or_zero(k);
  for (Index r = 0; r < z.r; ++r) {
    for (Index s = 0; s < z.s; ++s) {
      const Index row = i * z.stride_h + r * z.dilation_h;
      sum += w(k, 0, r, s) * tile[row * columns + j * z.stride_w + s * z.dilation_w];
    }
  }
  y(n, k, p + i, q + j) = sum;
}

__global__ void data_kernel(const ConvShape z, const In dy, const In w, const Out dx) {
  for (Index i = global_thread(); i < z.n * z.c * z.h * z.w; i += global_threads()) {
    const Index n = i / z.w / z.h / z.c, c = i / z.w / z.h % z.c, h = i / z.w % z.h, v = i % z.w;
    float sum = 0;
    for (Index k = c * z.k_group; k < (c + 1) * z.k_group; ++k) {  // the M kernels of a channel
      for (Index r = 0; r < z.r; ++r) {
        for (Index s = 0; s < z.s; ++s) {
          sum += w(k, 0, r, s) * dy.or_zero(n, k, z.output_row(h, r), z.output_column(v, s));
        }
      }
    }
    dx(n, c, h, v) = sum;
  }
}

// One warp (a block) computes one weight (k,r,s). blockIdx is the index of the weight in w.
__global__ void weight_kernel(const ConvShape z, const In x, const In dy, bool accumulate,
                              const Out dw) {
  const Index k = blockIdx.x / z.s / z.r, r = blockIdx.x / z.s % z.r, s = blockIdx.x % z.s;
  float sum = 0;
  for (Index i = threadIdx.x; i < z.n * z.p * z.q; i += 32) {
    const Index n = i / z.q / z.p, p = i / z.q % z.p, q = i % z.q;
    sum += dy(n, k, p, q) * x.or_zero(n, k / z.k_group, z.row(p, r), z.column(q, s));
  }
  sum = warp_sum(sum);  // of all 32 threads, in a fixed order
  if (threadIdx.x == 0) dw(k, 0, r, s) = accumulate ? dw(k, 0, r, s) + sum : sum;
}

std::size_t tile_bytes(const Conv2dProblem& z) {
  return static_cast<std::size_t>(side(z.stride_h, z.dilation_h, z.r) *
                                  side(z.stride_w, z.dilation_w, z.s)) *
         sizeof(float);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (z.c_per_group() != 1) {
    return Conv2dSupport::no(cat("expects one input channel for each group, got ", z.c_per_group(),
                                 " in each of ", z.groups));
  }
  if (direction == Direction::forward && tile_bytes(z) > kSharedBytes) {
    return Conv2dSupport::no(cat("expects a tile of x of at most ", kSharedBytes,
                                 " bytes, because it is in shared memory, got ", tile_bytes(z)));
  }
  return takes(z.dtype);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "depthwise_lesson",
    .device = DeviceType::cuda,
    .idea = "lesson: a tile of a plane in shared memory, an output for each thread",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = supports,
    // Each FMA needs two loads of four bytes.
    .cost =
        [](const Conv2dProblem& z, Direction) {
          return Conv2dCost{.flops = z.nominal_flops(),
                            .bytes = z.nominal_bytes(),
                            .issued = z.nominal_flops(),
                            .cached = 4 * z.nominal_flops()};
        },
    .workspace_bytes = [](const Conv2dProblem&, Direction) { return std::size_t{0}; },
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .auto_ok = false,
    .forward =
        [](const Conv2dForwardArgs& a) {
          const ConvShape z(a.problem);
          const Index tiles = ceil_div(z.p, kTile) * ceil_div(z.q, kTile);
          launch(forward_kernel,
                 {.grid = dim3(static_cast<unsigned>(z.n * z.k * tiles)),
                  .block = dim3(kTile * kTile),
                  .shared_bytes = tile_bytes(a.problem)},
                 z, z.x(a.x), z.weights(a.w), z.bias(a.b), z.y(a.y));
        },
    .backward_data =
        [](const Conv2dBackwardDataArgs& a) {
          const ConvShape z(a.problem);
          launch(data_kernel, grid_for(z.n * z.c * z.h * z.w), z, z.y(a.dy), z.weights(a.w),
                 z.x(a.dx));
        },
    .backward_weight =
        [](const Conv2dBackwardWeightArgs& a) {
          const ConvShape z(a.problem);
          launch(weight_kernel,
                 {.grid = dim3(static_cast<unsigned>(z.k * z.r * z.s)), .block = dim3(32)}, z,
                 z.x(a.x), z.y(a.dy), a.accumulate, z.weights(a.dw));
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
