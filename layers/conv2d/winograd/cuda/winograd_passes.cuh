// SPDX-License-Identifier: Apache-2.0
// winograd_passes.cuh: the passes of Winograd's convolution F(M x M, 3 x 3) on a GPU. The headers
// of winograd_f2x3_cuda.cu and winograd_f4x3_cuda.cu explain the algorithm.
//
// P = (M + 2)^2 points. V: transformed inputs of the reduction. U: transformed weights.
//   forward          V [P][C][tiles] of x,  U [P][K][C/G],  M [P][K][tiles] = U V, y of M
//   backward_data    V [P][K][tiles] of dy, U [P][K][C/G] of flipped w,  M [P][C][tiles] = U^T V
//                    Long sums over channels are made in parts, each with its own M: rounding
//                    errors of sums grow with their length, and the last transform enlarges them.
//   backward_weight  V of x and D [P][K][tiles] of dy are cut into slots, groups of tiles:
//                    [slot][P][..][..]. S [slot][P][K][C/G] = D V^T; dw from the sum of the slots
// Each (point, group) is one matrix of a batched product, because all these matrices have equal
// strides.
// Read next  winograd_transforms.cuh; winograd_f4x3_cuda.cu
#pragma once

#include <algorithm>
#include <climits>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/cuda/device_time.cuh"
#include "layers/conv2d/winograd/cuda/winograd_transforms.cuh"

namespace convscope::winograd {

using Index = std::int64_t;

constexpr Index kTileStep = 32;  // chunks and slots are multiples: a warp, a cache line
constexpr Index kChunkBytes = Index{400} << 20;  // V and M of a chunk
constexpr Index kManyWeights = 1 << 16;          // K C/G: two waves of threads, one for each
constexpr Index kMaxSum = 256;           // channels that one product sums; longer sums are split
constexpr unsigned kChannelsOfBlock = 8;  // a block is 32 tiles x 8 channels

// Planes that are cut into tiles of M x M outputs (of `out`). A tile reads SIDE x SIDE pixels of
// `in` from M * tile + offset on, and 0 outside.
struct Planes {
  int channels;
  int in_h, in_w, out_h, out_w;
  int top, left;  // offset
  int tiles_h, tiles_w;
  Index tiles;  // of all images

  Planes(int m, Index n, Index c, Index ih, Index iw, Index oh, Index ow, Index t, Index l)
      : channels(int(c)),
        in_h(int(ih)),
        in_w(int(iw)),
        out_h(int(oh)),
        out_w(int(ow)),
        top(int(t)),
        left(int(l)),
        tiles_h(int(ceil_div(oh, m))),
        tiles_w(int(ceil_div(ow, m))),
        tiles(n * tiles_h * tiles_w) {}
};

// ---- kernels -----------------------------------------------------------------------------------

// Transforms inputs to V (SIDE = M + 2, MatrixB) or dy to D (SIDE = M, MatrixA), for tiles first ..
// first + count, in slots of `slot` tiles. Results after the last tile are 0.
template <int M, class Matrix>
__global__ void __launch_bounds__(256)
    transform_kernel(Planes z, Index first, int count, int slot, const float* x, float* v) {
  constexpr int kT = M + 2;
  constexpr int kSide = Matrix::kColumns;
  const int t = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  if (t >= count) return;
  const Index tile = first + t;
  const bool real = tile < z.tiles;
  const int image_tile = static_cast<int>(tile % (z.tiles_h * z.tiles_w));
  const Index n = tile / (z.tiles_h * z.tiles_w);
  const int top = image_tile / z.tiles_w * M + z.top;
  const int left = image_tile % z.tiles_w * M + z.left;
  unsigned columns = 0;  // bit s: column s is inside
#pragma unroll
  for (int s = 0; s < kSide; ++s) {
    if (left + s >= 0 && left + s < z.in_w) columns |= 1u << s;
  }
  for (int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y); c < z.channels;
       c += static_cast<int>(gridDim.y * kChannelsOfBlock)) {
    const float* const plane = x + (n * z.channels + c) * (Index{z.in_h} * z.in_w);
    float d[kSide * kSide];
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const bool inside = real && top + r >= 0 && top + r < z.in_h;
      const float* const row = plane + Index{top + r} * z.in_w + left;
#pragma unroll
      for (int s = 0; s < kSide; ++s) {
        d[r * kSide + s] = inside && (columns >> s & 1u) != 0 ? row[s] : 0.0f;
      }
    }
    float out[kT * kT];
    transform<kT, Matrix>(d, out);
    float* const to = v + (Index{t / slot} * kT * kT * z.channels + c) * slot + t % slot;
#pragma unroll
    for (int i = 0; i < kT * kT; ++i) to[Index{i} * z.channels * slot] = out[i];
  }
}

// Computes outputs from M [P][group][part][channels/G][count], adds bias and residual, then applies
// relu, each if requested.
template <int M>
__global__ void __launch_bounds__(256, 2)
    output_kernel(Planes z, Index first, int count, int group_channels, int parts, const float* m,
                  const float* b, const float* residual, bool relu, bool aligned, float* y) {
  constexpr int kT = M + 2;
  const int t = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const Index tile = first + t;
  if (t >= count || tile >= z.tiles) return;
  const int image_tile = static_cast<int>(tile % (z.tiles_h * z.tiles_w));
  const Index n = tile / (z.tiles_h * z.tiles_w);
  const int top = image_tile / z.tiles_w * M;
  const int left = image_tile % z.tiles_w * M;
  for (int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y); c < z.channels;
       c += static_cast<int>(gridDim.y * kChannelsOfBlock)) {
    const Index row = Index{c / group_channels} * parts * group_channels + c % group_channels;
    const float* const from = m + row * count + t;
    float points[kT * kT];
#pragma unroll
    for (int i = 0; i < kT * kT; ++i) points[i] = from[Index{i} * z.channels * parts * count];
#pragma unroll 1
    for (int part = 1; part < parts; ++part) {
      const float* const more = from + Index{part} * group_channels * count;
#pragma unroll
      for (int i = 0; i < kT * kT; ++i) points[i] += more[Index{i} * z.channels * parts * count];
    }
    float out[M * M];
    transform_back<kT, MatrixA<M>>(points, out);
    const float bias = b == nullptr ? 0.0f : b[c];
    const Index at =
        (n * z.channels + c) * (Index{z.out_h} * z.out_w) + Index{top} * z.out_w + left;
#pragma unroll
    for (int r = 0; r < M; ++r) {
      if (top + r >= z.out_h) break;
      const Index begin = at + Index{r} * z.out_w;
      float value[M];
#pragma unroll
      for (int s = 0; s < M; ++s) {
        value[s] = out[r * M + s] + bias;
        value[s] = finished(value[s], left + s < z.out_w ? residual : nullptr, begin + s, relu);
      }
      if (M == 4 && aligned) {
        *reinterpret_cast<float4*>(y + begin) =
            make_float4(value[0], value[1], value[M - 2], value[M - 1]);
      } else if (M == 2 && aligned) {
        *reinterpret_cast<float2*>(y + begin) = make_float2(value[0], value[1]);
      } else {
#pragma unroll
        for (int s = 0; s < M; ++s) {
          if (left + s < z.out_w) y[begin + s] = value[s];
        }
      }
    }
  }
}

// Transforms w [G K/G][C/G][3][3] to U [P][G][part][K/G][C/G / parts]. `parts` is 1 in
// backward_data, where parts are rows of U and thus contiguous.
template <int M>
__global__ void weights_kernel(const float* w, Index count, int kernels, int channels, int parts,
                               bool flip, float* u) {
  constexpr int kT = M + 2;
  const Index i = global_thread();
  if (i >= count) return;
  float g[9];
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) g[tap] = w[i * 9 + (flip ? 8 - tap : tap)];
  float out[kT * kT];
  transform<kT, MatrixG<M>>(g, out);
  const int c = static_cast<int>(i % channels);
  const int k = static_cast<int>(i / channels % kernels);
  const int width = channels / parts;
  const Index at = ((i / channels / kernels * parts + c / width) * kernels + k) * width + c % width;
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) u[point * count + at] = out[point];
}

// Computes dw [count][3][3] from S [slot][P][count], a thread for each weight. Used for many
// weights.
template <int M>
__global__ void __launch_bounds__(128)
    gradient_of_many_kernel(const float* s, int slots, Index count, bool accumulate, float* dw) {
  constexpr int kT = M + 2;
  wait_for_previous_kernel();
  const Index i = global_thread();
  if (i >= count) return;
  float points[kT * kT];
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) points[point] = s[point * count + i];
#pragma unroll 1
  for (int slot = 1; slot < slots; ++slot) {
    const float* const more = s + Index{slot} * kT * kT * count + i;
#pragma unroll
    for (int point = 0; point < kT * kT; ++point) points[point] += more[point * count];
  }
  float out[9];
  transform_back<kT, MatrixG<M>>(points, out);
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) dw[i * 9 + tap] = out[tap] + (accumulate ? dw[i * 9 + tap] : 0);
}

// Computes dw like the kernel above, for few weights or without any image. A block adds the slots
// of 32 weights; each warp takes some points, and the first warp transforms the sums.
constexpr unsigned kGradientWarps = 8;
template <int M>
__global__ void gradient_kernel(const float* s, int slots, Index count, bool accumulate,
                                float* dw) {
  constexpr int kT = M + 2;
  __shared__ float sums[kT * kT * 32];
  wait_for_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x);
  const Index i = static_cast<Index>(blockIdx.x) * 32 + lane;
  for (int point = static_cast<int>(threadIdx.y); point < kT * kT;
       point += static_cast<int>(kGradientWarps)) {
    float sum = 0;
    const float* from = s + point * count + i;
#pragma unroll 4
    for (int slot = 0; slot < slots; ++slot, from += kT * kT * count) sum += i < count ? *from : 0;
    sums[point * 32 + lane] = sum;
  }
  __syncthreads();
  if (threadIdx.y != 0 || i >= count) return;
  float points[kT * kT];
#pragma unroll
  for (int point = 0; point < kT * kT; ++point) points[point] = sums[point * 32 + lane];
  float out[9];
  transform_back<kT, MatrixG<M>>(points, out);
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) dw[i * 9 + tap] = out[tap] + (accumulate ? dw[i * 9 + tap] : 0);
}

// ---- how a problem is cut ----------------------------------------------------------------------

template <int M>
struct WinogradCudaTiling {
  static constexpr Index kPoints = (M + 2) * (M + 2);

  WinogradCudaTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        for_dw(direction == Direction::backward_weight),
        forward(direction != Direction::backward_data),
        depth(forward ? z.c : z.k),     // channels of all groups in the reduction
        channels(forward ? z.k : z.c),  // channels computed
        in(forward ? Planes(M, z.n, z.c, z.h, z.w, z.p(), z.q(), -z.pad_top, -z.pad_left)
                   : Planes(M, z.n, z.k, z.p(), z.q(), z.h, z.w, z.pad_top - 2, z.pad_left - 2)),
        weights(z.k * z.c_per_group()) {
    const Index all = std::max<Index>(1, ceil_div(in.tiles, kTileStep)) * kTileStep;
    if (!for_dw) parts = parts_of(depth / z.groups);
    const Index tile_bytes = kPoints * (depth + channels * parts) * Index(sizeof(float));
    const Index most = std::max<Index>(1, kChunkBytes / (tile_bytes * kTileStep)) * kTileStep;
    chunk = round_up(ceil_div(all, ceil_div(all, most)), kTileStep);
    slot = chunk;
    if (for_dw) {
      // S weighs a quarter of V and D: K C / ((K + C) slot).
      const Index k = z.k_per_group();
      const Index c = z.c_per_group();
      const Index wanted = std::clamp<Index>(4 * k * c / (k + c), 128, 512);
      slots = ceil_div(chunk, wanted);
      slot = round_up(ceil_div(chunk, slots), kTileStep);
      chunk = slot * slots;
    }
  }

  // Returns the least number of equal parts of at most kMaxSum terms each, or 1 if `sum` has no
  // suitable divisor.
  static Index parts_of(Index sum) {
    for (Index n = ceil_div(sum, kMaxSum); n <= 2 * ceil_div(sum, kMaxSum); ++n) {
      if (sum % n == 0) return n;
    }
    return 1;
  }

  Index v_floats() const { return kPoints * depth * chunk; }
  Index m_floats() const { return kPoints * channels * parts * chunk; }
  Index u_floats() const { return kPoints * weights * slots; }
  // Returns the size of the workspace. It contains V and M, and in backward_weight also S, which is
  // as large as U. The other directions get U from prepare_weights().
  std::size_t bytes() const {
    return piece(v_floats()) + piece(m_floats()) + (for_dw ? piece(u_floats()) : 0);
  }
  std::size_t prepared_bytes() const { return piece(u_floats()); }
  static std::size_t piece(Index floats) {
    return ScratchArena::round_up(static_cast<std::size_t>(floats) * sizeof(float));
  }
  Index chunks() const { return ceil_div(in.tiles, chunk); }

  const Conv2dProblem& z;
  bool for_dw, forward;
  Index depth, channels;
  Planes in;
  Index weights;                         // K C/G
  Index parts = 1;                       // of a sum over channels
  Index chunk = 0, slots = 1, slot = 0;  // tiles at a time; chunk = slots * slot
};

// Computes U of all weights, once for many calls.
template <int M>
void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const WinogradCudaTiling<M> plan(z, args.direction);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(plan.weights, 128))),
                          .block = dim3(128)};
  launch(weights_kernel<M>, shape, static_cast<const float*>(args.w), plan.weights,
         int(z.k_per_group()), int(z.c_per_group()), plan.forward ? int(plan.parts) : 1,
         !plan.forward, static_cast<float*>(args.prepared));
}

template <int M>
class Passes {
 public:
  Passes(const Conv2dProblem& problem, Direction direction, void* workspace)
      : z_(problem),
        plan_(problem, direction),
        v_(static_cast<float*>(workspace)),
        m_(behind(v_, plan_.v_floats())),
        s_(behind(m_, plan_.m_floats())) {}

  // Computes y or dx; u: the result of prepare_weights().
  void convolve(const void* in, const void* u, const void* b, const Conv2dEpilogue& epilogue,
                void* out) const {
    const Index rows = plan_.channels / z_.groups;
    const Index depth = plan_.depth / z_.groups / plan_.parts;
    const Index chunk = plan_.chunk;
    Planes made = plan_.in;
    made.channels = int(plan_.channels);
    const auto address = reinterpret_cast<std::uintptr_t>(out);
    const bool aligned = made.out_w % M == 0 && address % (M * sizeof(float)) == 0;
    for (Index first = 0; first < plan_.in.tiles; first += chunk) {
      transform_tiles<MatrixB<M>>(plan_.in, first, in, v_);
      blas_gemm(BlasGemm{.m = rows,
                         .n = chunk,
                         .k = depth,
                         .a = static_cast<const float*>(u),
                         .b = v_,
                         .c = m_,
                         .lda = plan_.forward ? depth : rows,
                         .ldb = chunk,
                         .ldc = chunk,
                         .transpose_a = !plan_.forward,
                         .batch = kPoints * z_.groups * plan_.parts,
                         .stride_a = rows * depth,
                         .stride_b = depth * chunk,
                         .stride_c = rows * chunk});
      launch(output_kernel<M>, tiles_by_channels(plan_.channels), made, first, int(chunk),
             int(rows), int(plan_.parts), m_, static_cast<const float*>(b),
             static_cast<const float*>(epilogue.residual), epilogue.relu, aligned,
             static_cast<float*>(out));
    }
  }

  void gradient(const void* x, const void* dy, bool accumulate, void* dw) const {
    const Index kernels = z_.k_per_group();
    const Index channels = z_.c_per_group();
    const Index slot = plan_.slot;
    const Planes dy_planes(M, z_.n, z_.k, z_.p(), z_.q(), z_.p(), z_.q(), 0, 0);
    for (Index first = 0; first < plan_.in.tiles; first += plan_.chunk) {
      transform_tiles<MatrixB<M>>(plan_.in, first, x, v_);
      transform_tiles<MatrixA<M>>(dy_planes, first, dy, m_);
      blas_gemm(BlasGemm{.m = kernels,
                         .n = channels,
                         .k = slot,
                         .a = m_,
                         .b = v_,
                         .c = s_,
                         .lda = slot,
                         .ldb = slot,
                         .ldc = channels,
                         .transpose_b = true,
                         .beta = first == 0 ? 0.0 : 1.0,
                         .batch = plan_.slots * kPoints * z_.groups,
                         .stride_a = kernels * slot,
                         .stride_b = channels * slot,
                         .stride_c = kernels * channels});
    }
    const Index slots = plan_.in.tiles == 0 ? 0 : plan_.slots;  // no image: dw = 0, or unchanged
    const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(plan_.weights, 32))),
                            .block = dim3(32, kGradientWarps)};
    if (slots > 0 && plan_.weights >= kManyWeights) {
      launch(gradient_of_many_kernel<M>, threads(plan_.weights), s_, int(slots), plan_.weights,
             accumulate, static_cast<float*>(dw));
      return;
    }
    launch(gradient_kernel<M>, shape, s_, int(slots), plan_.weights, accumulate,
           static_cast<float*>(dw));
  }

 private:
  static constexpr Index kPoints = WinogradCudaTiling<M>::kPoints;

  static float* behind(float* piece, Index floats) {
    return piece + WinogradCudaTiling<M>::piece(floats) / sizeof(float);
  }
  static LaunchShape threads(Index count) {
    return {.grid = dim3(static_cast<unsigned>(ceil_div(count, 128))), .block = dim3(128)};
  }
  LaunchShape tiles_by_channels(Index channels) const {
    return {.grid = dim3(static_cast<unsigned>(plan_.chunk / 32),
                         static_cast<unsigned>(
                             std::min<Index>(ceil_div(channels, kChannelsOfBlock), 65535))),
            .block = dim3(32, kChannelsOfBlock)};
  }
  template <class Matrix>
  void transform_tiles(const Planes& planes, Index first, const void* in, float* out) const {
    launch(transform_kernel<M, Matrix>, tiles_by_channels(planes.channels), planes, first,
           int(plan_.chunk), int(plan_.slot), static_cast<const float*>(in), out);
  }

  const Conv2dProblem& z_;
  const WinogradCudaTiling<M> plan_;
  float* const v_;
  float* const m_;
  float* const s_;  // backward_weight only
};

// ---- for the algorithms -------------------------------------------------------------------------

inline Conv2dSupport supports_3x3(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) {
    return no("expects elements of type f32, because its sums cancel digits that ",
              name_of(z.dtype), " does not have");
  }
  if (z.r != 3 || z.s != 3) return no("expects a kernel of 3x3, got ", z.r, "x", z.s);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, got ", z.stride_h, "x", z.stride_w);
  }
  if (z.dilation_h != 1 || z.dilation_w != 1) {
    return no("expects dilation 1, got ", z.dilation_h, "x", z.dilation_w);
  }
  if (z.h * z.w > INT_MAX / 2 || z.p() * z.q() > INT_MAX / 2 || z.k * z.c > INT_MAX / 64) {
    return no("expects planes of fewer than 2^30 pixels and 2^25 kernels' planes, got more");
  }
  return {};
}

// Counts the bytes of V, M and U, which are written, read by the products, and read again. Bytes
// are weighted with times measured on one H200, where small tensors stay in L2.
template <int M>
Conv2dCost cost_of(const Conv2dProblem& z, Direction direction) {
  using device_time::number;
  const WinogradCudaTiling<M> plan(z, direction);
  const double points = number(plan.kPoints);
  const double chunks = number(plan.chunks());
  const double tiles = chunks * number(plan.chunk);
  const double v = 4 * points * tiles * number(plan.depth);
  const double m = 4 * points * tiles * number(plan.channels * plan.parts);
  const double u = 4 * points * number(plan.weights * plan.slots);
  const Index g = z.groups;
  using device_time::Products;
  const Products products =
      plan.for_dw
          ? Products{z.k_per_group(), z.c_per_group(), plan.slot, plan.slots * plan.kPoints * g}
          : Products{plan.channels / g, plan.chunk, plan.depth / g / plan.parts,
                     plan.kPoints * g * plan.parts};
  const double flops = 2 * points * tiles * number(plan.weights);
  const double peak = kUnmeasuredGpu.f32_flops;
  // Where the results fill a tile, a batch of products takes this multiple of the estimated time.
  const bool fills = std::max(products.m, products.n) > 16;
  const double times = !fills            ? 1.0
                       : plan.for_dw ? (M == 2 ? 0.75 : 0.87)
                                         : (M == 2 ? 0.9 : 1.0);
  const double us = times * chunks * device_time::f32_products_us(products);
  constexpr double kLaunches = M == 2 ? 0.8 : 1.0;  // kernels follow each other without gaps
  const double passes = plan.for_dw && fills && M == 4 ? 0.8 : 1.0;
  Conv2dCost cost{.flops = flops,
                  .bytes = device_time::passed(1.1 * (v + m + u)),
                  .peak_share = device_time::share_of(flops, us, peak),
                  .pass_bytes = device_time::passed(
                      passes * (0.27 * z.nominal_bytes() +
                                (plan.for_dw ? 2.8 * (v + m) + 5.3 * u : 2.0 * v + 2.1 * m))),
                  .launches = kLaunches * (3 * chunks + (plan.for_dw ? 1 : 0))};
  return plan.for_dw ? cost : device_time::with_preparation(cost, peak, u, kLaunches);
}

// The functions of a Conv2dAlgorithm, one for each direction, with M x M outputs in a tile.
template <int M>
void forward(const Conv2dForwardArgs& args) {
  Passes<M>(args.problem, Direction::forward, args.workspace)
      .convolve(args.x, args.prepared, args.b, args.epilogue, args.y);
}
template <int M>
void backward_data(const Conv2dBackwardDataArgs& args) {
  Passes<M>(args.problem, Direction::backward_data, args.workspace)
      .convolve(args.dy, args.prepared, nullptr, {}, args.dx);
}
template <int M>
void backward_weight(const Conv2dBackwardWeightArgs& args) {
  Passes<M>(args.problem, Direction::backward_weight, args.workspace)
      .gradient(args.x, args.dy, args.accumulate, args.dw);
}

template <int M>
std::size_t bytes_of(const Conv2dProblem& z, Direction direction) {
  return WinogradCudaTiling<M>(z, direction).bytes();
}

template <int M>
std::size_t prepared_bytes_of(const Conv2dProblem& z, Direction direction) {
  return WinogradCudaTiling<M>(z, direction).prepared_bytes();
}

}  // namespace convscope::winograd
