// SPDX-License-Identifier: Apache-2.0
// deform_passes.cuh: the kernels before and after the matrix products of deform_fused_cuda.cu. They
// find the largest magnitudes, pack images and weights into pieces, build the lists for dx, and add
// up partial results. The last part chooses a tile and lays out the workspace.
// Read next  deform_cuda_plan.h; deform_tiles.cuh
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/memory/memory.h"
#include "layers/conv2d/shared/kept_plans.h"
#include "layers/deform_conv2d/fused/cuda/deform_sampler.cuh"
#include "layers/deform_conv2d/fused/cuda/deform_tiles.cuh"

namespace convscope::deform_cuda {

// ---- largest finite magnitudes -----------------------------------------------------------------

struct Largest {
  const void* from[2] = {};
  std::int64_t count[2] = {};
  unsigned* to[2] = {};  // bits of an f32, 0 before
};

// Grid: x may have any size, y selects the tensor. The maximum of integers does not depend on the
// order of the blocks.
template <class T>
__global__ __launch_bounds__(kThreads) void largest_kernel(const Largest z) {
  const T* const from = static_cast<const T*>(z.from[blockIdx.y]);
  const std::int64_t count = z.count[blockIdx.y];
  unsigned largest = 0;
  const auto see = [&](T value) {
    const unsigned bits = __float_as_uint(to_float(value)) & 0x7fffffffu;
    if (bits > largest && bits < 0x7f800000u) largest = bits;
  };
  const std::int64_t step = global_threads();
  std::int64_t i = global_thread();
  for (; i + 3 * step < count; i += 4 * step) {
    const T values[4] = {from[i], from[i + step], from[i + 2 * step], from[i + 3 * step]};
#pragma unroll
    for (const T value : values) see(value);
  }
  for (; i < count; i += step) see(from[i]);
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, largest, offset);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % 32 == 0 && largest > 0) atomicMax(z.to[blockIdx.y], largest);
}

// ---- images of f32 -----------------------------------------------------------------------------

struct PackRows {
  const float* planes = nullptr;  // [N, C, area]
  float* rows = nullptr;          // [N][area][runs][run_pieces][8]
  int channels = 0, area = 0;
  int run = 0, run_pieces = 0, pieces = 0;  // channels and pieces of a run, pieces of a pixel
  FastDivisor by_run_pieces;

  // Returns the first channel of a piece. Sets `left` to how many of its eight channels exist.
  __device__ int channel_of(int piece, int& left) const {
    const int r = by_run_pieces.divide(piece);
    const int within = (piece - r * run_pieces) * kPieceNumbers;
    left = min(kPieceNumbers, run - within);
    return r * run + within;
  }
};

inline constexpr int kPackPixels = 32;

// Grid: x counts blocks of 32 pixels, image after image; y counts groups of eight pieces.
static __global__ __launch_bounds__(kThreads) void pack_rows_kernel(const PackRows z) {
  constexpr int kRow = kStepPieces * kPieceNumbers + 1;
  __shared__ float tile[kPackPixels * kRow];
  const int pixel_blocks = ceil_div(z.area, kPackPixels);
  const int image = static_cast<int>(blockIdx.x) / pixel_blocks;
  const int first_pixel = static_cast<int>(blockIdx.x) % pixel_blocks * kPackPixels;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = static_cast<int>(blockIdx.y) * kStepPieces + warp;
  let_next_kernel_start();
  wait_for_previous_kernel();
  int left = 0;
  const int channel = z.channel_of(piece, left);
  const bool inside = piece < z.pieces && first_pixel + lane < z.area;
  const float* const from = z.planes +
                            (static_cast<std::int64_t>(image) * z.channels + channel) * z.area +
                            first_pixel + lane;
  float values[kPieceNumbers];
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    values[i] = inside && i < left ? from[static_cast<std::int64_t>(i) * z.area] : 0;
  }
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    tile[lane * kRow + warp * kPieceNumbers + i] = values[i];
  }
  __syncthreads();
  constexpr int kQuads = kStepPieces * 2;  // of a pixel
  const int quad = static_cast<int>(threadIdx.x) % kQuads;
  const int to_piece = static_cast<int>(blockIdx.y) * kStepPieces + quad / 2;
  if (to_piece >= z.pieces) return;
#pragma unroll
  for (int i = 0; i < kPackPixels * kQuads / static_cast<int>(kThreads); ++i) {
    const int pixel = static_cast<int>(threadIdx.x) / kQuads + i * (kThreads / kQuads);
    if (first_pixel + pixel >= z.area) return;
    const float* const at = tile + pixel * kRow + quad * 4;
    auto* const to =
        reinterpret_cast<float4*>(z.rows) +
        (static_cast<std::int64_t>(image) * z.area + first_pixel + pixel) * z.pieces * 2 +
        to_piece * 2 + quad % 2;
    *to = make_float4(at[0], at[1], at[2], at[3]);
  }
}

// Unpacks to the type of the problem.
template <class Out>
__global__ __launch_bounds__(kThreads) void unpack_rows_kernel(const PackRows z, Out* planes) {
  constexpr int kRow = kStepPieces * kPieceNumbers + 1;
  __shared__ float tile[kPackPixels * kRow];
  const int pixel_blocks = ceil_div(z.area, kPackPixels);
  const int image = static_cast<int>(blockIdx.x) / pixel_blocks;
  const int first_pixel = static_cast<int>(blockIdx.x) % pixel_blocks * kPackPixels;
  let_next_kernel_start();
  wait_for_previous_kernel();
  constexpr int kQuads = kStepPieces * 2;
  const int quad = static_cast<int>(threadIdx.x) % kQuads;
  const int from_piece = static_cast<int>(blockIdx.y) * kStepPieces + quad / 2;
#pragma unroll
  for (int i = 0; i < kPackPixels * kQuads / static_cast<int>(kThreads); ++i) {
    const int pixel = static_cast<int>(threadIdx.x) / kQuads + i * (kThreads / kQuads);
    if (from_piece >= z.pieces || first_pixel + pixel >= z.area) continue;
    const float4 four = reinterpret_cast<const float4*>(
        z.rows)[(static_cast<std::int64_t>(image) * z.area + first_pixel + pixel) * z.pieces * 2 +
                from_piece * 2 + quad % 2];
    float* const at = tile + pixel * kRow + quad * 4;
    at[0] = four.x;
    at[1] = four.y;
    at[2] = four.z;
    at[3] = four.w;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = static_cast<int>(blockIdx.y) * kStepPieces + warp;
  if (piece >= z.pieces || first_pixel + lane >= z.area) return;
  int left = 0;
  const int channel = z.channel_of(piece, left);
  Out* const to = planes + (static_cast<std::int64_t>(image) * z.channels + channel) * z.area +
                  first_pixel + lane;
#pragma unroll
  for (int i = 0; i < kPieceNumbers; ++i) {
    if (i < left) {
      to[static_cast<std::int64_t>(i) * z.area] =
          from_float<Out>(tile[lane * kRow + warp * kPieceNumbers + i]);
    }
  }
}

// ---- weights -----------------------------------------------------------------------------------

// The matrices into which w is packed:
// forward        a row is an output channel k; the K dimension is (tap, piece of input channels)
// backward_data  a row is an input channel c; the K dimension is (tap, piece of output channels)
struct PackWeights {
  const void* from = nullptr;  // [G k, c, taps]
  uint4* to = nullptr;         // [planes][blocks], see weight_at()
  std::int64_t plane = 0;
  DeformShape sizes;
  int rows = 0;  // of a block, whole tiles
  int blocks = 1, pieces = 0, depth_pieces = 0;
  const unsigned* largest = nullptr;  // of f32
};

// One thread packs one piece. Neighbouring threads read neighbouring elements of w: first along the
// taps, then along the channels c, which are pieces (forward) or rows (backward).
template <class In, int kPlanes, bool kBackward>
__global__ __launch_bounds__(kThreads) void pack_weights_kernel(
    const __grid_constant__ PackWeights z) {
  const DeformShape& s = z.sizes;
  const int tiles = z.rows / kWeightTileRows;
  const int steps = z.depth_pieces / kStepPieces;
  const std::int64_t all = static_cast<std::int64_t>(z.blocks) * z.rows * z.pieces * s.taps;
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 1;
  if constexpr (sizeof(In) == 4) scale = power_of_two(packed_exponent(*z.largest));
  for (std::int64_t i = global_thread(); i < all; i += global_threads()) {
    const auto tap = static_cast<int>(i % s.taps);
    const std::int64_t inner = i / s.taps;
    const int row = static_cast<int>(kBackward ? inner % z.rows : inner / z.pieces % z.rows);
    const int piece = static_cast<int>(kBackward ? inner / z.rows % z.pieces : inner % z.pieces);
    const auto block = static_cast<int>(inner / (static_cast<std::int64_t>(z.rows) * z.pieces));
    // The elements of w in this piece: index of the first one, distance of two, and how many exist.
    std::int64_t first = 0;
    std::int64_t apart = s.taps;
    int left = 0;
    if (kBackward) {
      const int group = s.by_group_runs.divide(block);
      const int channel = (block - group * s.group_runs) * s.run + row;
      const int k = group * s.k + piece * kPieceNumbers;
      first = (static_cast<std::int64_t>(k) * s.c + channel) * s.taps + tap;
      apart = static_cast<std::int64_t>(s.c) * s.taps;
      left = row < s.run ? s.k - piece * kPieceNumbers : 0;
    } else {
      const int run = s.by_run_pieces.divide(piece);
      const int within = (piece - run * s.run_pieces) * kPieceNumbers;
      const std::int64_t k = static_cast<std::int64_t>(block) * s.k + row;
      first = (k * s.c + run * s.run + within) * s.taps + tap;
      left = row < s.k ? s.run - within : 0;
    }
    In values[kPieceNumbers] = {};
#pragma unroll
    for (int j = 0; j < kPieceNumbers; ++j) {
      if (j < left) values[j] = static_cast<const In*>(z.from)[first + j * apart];
    }
    const int at = kBackward ? tap * z.pieces + piece
                             : (piece / s.unit * s.taps + tap) * s.unit + (piece & (s.unit - 1));
    half_tiles::write_piece<In, kPlanes>(values, scale,
                                         z.to + weight_at(block, row, at, tiles, steps), z.plane);
    if (piece + tap > 0) continue;
    for (int behind = s.taps * z.pieces; behind < z.depth_pieces; ++behind) {  // fill up
#pragma unroll
      for (int j = 0; j < kPlanes; ++j) {
        z.to[weight_at(block, row, behind, tiles, steps) + j * z.plane] = make_uint4(0, 0, 0, 0);
      }
    }
  }
}

// ---- the sum of the partial dw -----------------------------------------------------------------

// Adds up the partial results [split][G k][columns] to dw [G k, c, taps]. forward_piece() defines
// the order of the columns.
template <class Out>
__global__ __launch_bounds__(kThreads) void sum_columns_kernel(
    const float* parts, int splits, const __grid_constant__ DeformShape s, int columns,
    bool accumulate, Out* dw) {
  const std::int64_t count = static_cast<std::int64_t>(s.groups) * s.k * columns;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t row = i / columns;
    const auto column = static_cast<int>(i - row * columns);
    const ForwardPiece at = forward_piece(s, column / kPieceNumbers);
    const int within = at.piece * kPieceNumbers + column % kPieceNumbers;
    if (at.run >= s.group_runs || within >= s.run) continue;
    float sum = 0;
#pragma unroll 16
    for (int split = 0; split < splits; ++split) sum += parts[split * count + i];
    Out& to = dw[(row * s.c + at.run * s.run + within) * s.taps + at.tap];
    to = from_float<Out>(accumulate ? to_float(to) + sum : sum);
  }
}

// ---- lists of the samples that read each pixel of x ---------------------------------------------
// The lists turn the scatter to dx into a gather, so one thread owns each element of dx and no
// addition is atomic.
//
//   sampling    y[m] += w_tap sample, a weighted sum of the four pixels around a place
//   dx          dx[h] = sum over taps of w_tap^T (sum over the samples around h of dy[m] weight)
//
// A cell is the square between four pixels, or between fewer pixels at the border. There are (H +
// 1) x (W + 1) cells. Each tap has a list for each cell, with the samples in this cell in the order
// of m, so that two runs give the same bits. A pixel reads the lists of the four cells around it;
// where H W = P Q these lists have about four samples in total.
//
// Steps       count    how long each list is                         integers, atomic
//             scan     where it begins                               [O R S][N][H + 1][W + 1] + 1
//             fill     its samples, in any order                     atomic places
//             order    each sample finds its rank in its list, and writes its entry there
// Memory      16 bytes for each sample and 4 bytes for each list; 8 more bytes while the lists are
//             made. These are about 20 bytes for each (tap, m). The columns of the textbook method
//             take 4 C bytes for each (tap, m)

struct Lists {
  Places places;
  DeformShape sizes;
  int* begin = nullptr;      // [lists]: first counts, then list starts; the last list is empty
  int* place = nullptr;      // [lists]: the position of the next entry
  int* unordered = nullptr;  // [samples]
  Entry* entries = nullptr;  // [samples]
  int* sums = nullptr;       // of blocks of the scan
  unsigned* most = nullptr;  // the longest list
  std::int64_t lists = 0;    // multiple of 4, with at least one more than there are cells
};

inline constexpr int kScanItems = 16;  // of a thread
inline constexpr int kScanBlock = kScanItems * static_cast<int>(kThreads);

// Calls visit(list, place, factor, m) for all samples that read x. Grid: x counts pixels of y, y
// counts keys (pairs of an offset group and a tap).
template <class Half, class Visit>
__device__ inline void for_each_sample(const Lists& z, const Visit& visit) {
  const DeformShape& s = z.sizes;
  const auto key = static_cast<int>(blockIdx.y);
  const int tap = key % s.taps;
  const int step = static_cast<int>(global_threads());
  for (auto m = static_cast<int>(global_thread()); m < s.out_pixels(); m += step) {
    const OutPixel pixel = out_pixel(s, m);
    const Offset offset = read_offset<Half>(z.places, s, pixel, key);
    const Place place = place_of(s, pixel, tap, offset);
    if (place.inside()) {
      const std::int64_t row =
          (static_cast<std::int64_t>(key) * s.images + pixel.image) * (s.in_h + 1) + place.h + 1;
      visit(row * (s.in_w + 1) + place.w + 1, place, offset.factor, m);
    }
    if (m > s.out_pixels() - step) break;  // no overflow of m
  }
}

template <class Half>
__global__ __launch_bounds__(kThreads) void count_samples_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(
      z, [&](std::int64_t list, const Place&, float, int) { atomicAdd(z.begin + list, 1); });
}

template <class Half>
__global__ __launch_bounds__(kThreads) void fill_lists_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(z, [&](std::int64_t list, const Place&, float, int m) {
    z.unordered[atomicAdd(z.place + list, 1)] = m;
  });
}

template <class Half>
__global__ __launch_bounds__(kThreads) void order_lists_kernel(const __grid_constant__ Lists z) {
  for_each_sample<Half>(z, [&](std::int64_t list, const Place& place, float factor, int m) {
    const int begin = z.begin[list];
    const int end = z.begin[list + 1];
    int rank = begin;
    for (int i = begin; i < end; ++i) rank += z.unordered[i] < m ? 1 : 0;
    z.entries[rank] = {m, place.down, place.right, factor};
  });
}

// Loads the counts of this thread in a block of the scan; returns the sum of these counts.
__device__ inline int scan_items(const Lists& z, std::int64_t first, int (&items)[kScanItems]) {
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kScanItems; i += 4) {  // the memory of counts is a multiple of 4
    const int4 four = first + i < z.lists ? *reinterpret_cast<const int4*>(z.begin + first + i)
                                          : make_int4(0, 0, 0, 0);
    items[i] = four.x;
    items[i + 1] = four.y;
    items[i + 2] = four.z;
    items[i + 3] = four.w;
    sum += four.x + four.y + four.z + four.w;
  }
  return sum;
}

// Returns the sum over the threads before this one. `all` receives the sum over the thread block.
__device__ inline int sum_before(int own, int* scratch, int& all) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int sum = own;
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(offset));
    if (lane >= offset) sum += other;
  }
  __syncthreads();
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  int before = 0;
  all = 0;
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
    if (i < warp) before += scratch[i];
    all += scratch[i];
  }
  return before + sum - own;
}

static __global__ __launch_bounds__(kThreads) void sum_counts_kernel(
    const __grid_constant__ Lists z) {
  __shared__ int scratch[32];
  int items[kScanItems];
  const int own = scan_items(
      z, static_cast<std::int64_t>(blockIdx.x) * kScanBlock + threadIdx.x * kScanItems, items);
  int most = 0;
#pragma unroll
  for (const int item : items) most = max(most, item);
  for (int offset = 16; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  if (threadIdx.x % 32 == 0) atomicMax(z.most, static_cast<unsigned>(most));
  int all = 0;
  sum_before(own, scratch, all);
  if (threadIdx.x == 0) z.sums[blockIdx.x] = all;
}

// One thread block converts the sums of all scan blocks to the positions where these blocks begin.
static __global__ __launch_bounds__(kThreads) void scan_sums_kernel(const __grid_constant__ Lists z,
                                                                    int blocks) {
  __shared__ int scratch[32];
  int begin = 0;
  for (int first = 0; first < blocks; first += static_cast<int>(kThreads)) {
    const int i = first + static_cast<int>(threadIdx.x);
    const int own = i < blocks ? z.sums[i] : 0;
    int all = 0;
    const int before = sum_before(own, scratch, all);
    if (i < blocks) z.sums[i] = begin + before;
    begin += all;
  }
}

static __global__ __launch_bounds__(kThreads) void begin_lists_kernel(
    const __grid_constant__ Lists z) {
  __shared__ int scratch[32];
  int items[kScanItems];
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kScanBlock + threadIdx.x * kScanItems;
  const int own = scan_items(z, first, items);
  int all = 0;
  int at = z.sums[blockIdx.x] + sum_before(own, scratch, all);
#pragma unroll
  for (int i = 0; i < kScanItems; i += 4) {
    if (first + i >= z.lists) return;
    int four[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      four[j] = at;
      at += items[i + j];
    }
    const int4 out = make_int4(four[0], four[1], four[2], four[3]);
    *reinterpret_cast<int4*>(z.begin + first + i) = out;
    *reinterpret_cast<int4*>(z.place + first + i) = out;
  }
}

// ---- the choice of a tile, and the layout of the workspace --------------------------------------

using Problem = DeformConv2dProblem;

inline constexpr int kFewestStages = 4;  // of one part
inline constexpr int kMaxParts = 256;
inline constexpr double kMaxPartBytes = 256e6;

// ---- tiling ------------------------------------------------------------------------------------

enum class Product { y, dx, dw };
inline Direction direction_of(Product product) {
  return product == Product::y    ? Direction::forward
         : product == Product::dx ? Direction::backward_data
                                  : Direction::backward_weight;
}

// Chooses the kernels and the number of parts with the lowest estimated time.
class DeformCudaTiling {
 public:
  DeformCudaTiling(const Problem& problem, Product product) : z(problem), s(problem) {
    const bool f32 = z.dtype == DType::f32;
    planes = f32 && z.math == MathMode::f32 ? 2 : 1;
    instances = z.dtype == DType::bf16 ? bf16_instances()
                : planes == 2          ? f32_instances()
                                       : f16_instances();
    switch (product) {
      case Product::y:
        rows = s.k;
        blocks = s.groups;
        pixels = s.out_pixels();
        out_count = z.y_shape().numel();
        steps = s.forward_depth() / kStepPieces;
        break;
      case Product::dx:
        rows = s.run;
        blocks = s.runs();
        pixels = s.in_pixels();
        out_count = z.x_shape().numel();
        steps = s.backward_depth() / kStepPieces;
        break;
      case Product::dw:
        rows = s.k;
        blocks = s.groups;
        pixels = columns() * kPieceNumbers;
        out_count = std::int64_t{s.groups} * s.k * pixels;
        steps = ceil_div(s.out_pixels(), kTileDepth);
        break;
    }
    Cheapest<Choice> best({"deform_conv2d", "fused", direction_of(product)},
                                   DeviceType::cuda, z.dtype);
    for (const Instance& candidate : instances) {
      if (product == Product::y    ? candidate.y == nullptr
          : product == Product::dx ? candidate.dx == nullptr
                                   : candidate.dw == nullptr) {
        continue;
      }
      if (candidate.sampled_bytes >
          static_cast<std::size_t>(cuda_device_facts().shared_bytes_per_block)) {
        continue;
      }
      consider(candidate, product, best);
    }
    const Choice choice = best.found();
    instance = choice.instance;
    splits = choice.splits;
    cost = choice.cost;
  }

  int columns() const { return s.forward_depth(); }  // pieces, of dw
  int row_tiles() const { return ceil_div(rows, instance->rows); }

  Problem z;
  DeformShape s;
  int planes = 1;
  std::span<const Instance> instances;
  int rows = 0, blocks = 1, pixels = 0, steps = 0;
  std::int64_t out_count = 0;  // elements of a part

  const Instance* instance = nullptr;
  int splits = 1;
  Cost cost;  // of the products and the addition of parts

  // Returns the products of each product, relative to one at the peak of the problem's type: f32
  // takes three products of fp16, which run at twice the peak of TF32.
  double products() const { return z.dtype != DType::f32 ? 1 : planes == 2 ? 1.5 : 0.5; }

 private:
  struct Choice {
    const Instance* instance = nullptr;
    int splits = 1;
    Cost cost = {};
  };
  void consider(const Instance& candidate, Product product, Cheapest<Choice>& best) const {
    const int stages = ceil_div(steps, candidate.deep);
    for (int parts = 1; parts <= kMaxParts; parts += 1 + parts / 8) {
      const double part_bytes = 4.0 * static_cast<double>(out_count) * parts;
      if (parts > 1 && (stages < parts * kFewestStages || part_bytes > kMaxPartBytes)) break;
      const Cost counts = counts_of(candidate, product, ceil_div(stages, parts), parts);
      best.offer({&candidate, parts, counts}, counts);
    }
  }

  Cost counts_of(const Instance& by, Product product, int stages, int parts) const {
    constexpr const char* kNames[3][4] = {
        {"half 64x64", "half 128x64", "half 256x64", "half 256x128"},
        {"tf32 64x64", "tf32 128x64", "tf32 256x64", "tf32 256x128"},
        {"f32 64x64", "f32 128x64", "f32 256x64", "f32 256x128"}};
    const int type = z.dtype == DType::f32 ? planes : 0;
    const int tile = by.columns > 64 ? 3 : by.rows > 128 ? 2 : by.rows > 64 ? 1 : 0;
    const bool added = product == Product::dw || parts > 1;
    const double tile_blocks = number(std::int64_t{ceil_div(rows, by.rows)} *
                                      ceil_div(pixels, by.columns) * blocks * parts);
    const double depth = static_cast<double>(stages) * by.deep * kTileDepth;
    // A piece of eight channels of a sample is read at four pixels. In a stage, a block makes the
    // samples of its columns and copies its rows of the other operand.
    const double pieces = depth / kPieceNumbers * by.columns;
    const double piece_bytes = 16.0 * planes;
    return {.flops = z.nominal_flops(),
            .bytes = z.nominal_bytes(),
            .issued = products() * tile_blocks * 2 * depth * by.rows * by.columns,
            .cached = tile_blocks * piece_bytes * (4 * pieces + depth / kPieceNumbers * by.rows),
            .schedule = kNames[type][tile],
            .blocks = tile_blocks,
            .resident = static_cast<double>(by.blocks),
            .chain = static_cast<double>(stages),
            .copies = std::ceil(4 * pieces / by.threads),
            .listed_warps = tile_blocks * pieces / 32,
            .pass_bytes = added ? 2 * 4 * number(out_count) * parts : 0,
            .launches = added ? 2.0 : 1.0,
            .tensor_cores = true};
  }
};

inline DeformCudaTiling plan_of(const Problem& z, Product product) {
  static KeptPlans<DeformCudaTiling, Problem> kept;
  return *kept.get(z, direction_of(product), [&] { return DeformCudaTiling(z, product); });
}

// Returns whether f32 is multiplied as one fp16 plane, which needs a scale.
inline bool is_tf32(const Problem& z) { return z.dtype == DType::f32 && z.math == MathMode::tf32; }

// ---- memory ------------------------------------------------------------------------------------

// Cuts a block of memory into arrays. Without memory the object only counts the bytes.
class Pieces {
 public:
  explicit Pieces(const void* memory) : memory_(const_cast<void*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    auto* const out = memory_ == nullptr
                          ? nullptr
                          : reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + used);
    used += ScratchArena::round_up(static_cast<std::size_t>(count) * sizeof(T));
    return out;
  }
  std::size_t used = 0;

 private:
  void* memory_;
};

// Prepared weights as one or two 16-bit planes in the order of the K dimension, and the largest
// magnitude of the weights.
struct PreparedLayout {
  PreparedLayout(const Problem& z, Direction direction, const void* memory) {
    const DeformShape s(z);
    const bool forward = direction == Direction::forward;
    rows = round_up(forward ? s.k : s.run, kWeightTileRows);
    blocks = forward ? s.groups : s.runs();
    pieces = forward ? s.group_pieces() : s.out_pieces;
    depth = forward ? s.forward_depth() : s.backward_depth();
    planes = z.dtype == DType::f32 && z.math == MathMode::f32 ? 2 : 1;
    Pieces block(memory);
    if (z.dtype == DType::f32) largest = block.take<unsigned>(4);
    plane = std::int64_t{blocks} * rows * depth;
    weights = block.take<uint4>(planes * plane);
    bytes = block.used;
  }
  int rows = 0, blocks = 1, pieces = 0, depth = 0, planes = 1;
  std::int64_t plane = 0;
  unsigned* largest = nullptr;
  uint4* weights = nullptr;
  std::size_t bytes = 0;
};

enum Word { kOfX, kOfDy, kOfMask, kLongestList, kWords };

inline std::int64_t row_numbers(const Problem& z) {  // 16-byte words in a packed piece
  return z.dtype == DType::f32 && z.math == MathMode::f32 ? 2 : 1;
}

// Packed pixels with one pixel of zeros after them.
struct Rows {
  Rows() = default;
  Rows(Pieces& block, const Problem& z, int pixels, int pieces) {
    pixel_pieces = std::int64_t{pieces} * row_numbers(z);
    zeros_at = pixel_pieces * pixels;
    at = block.take<uint4>(zeros_at + pixel_pieces);
  }
  uint4* at = nullptr;
  std::int64_t pixel_pieces = 0, zeros_at = 0;  // in pieces of 16 bytes
};

struct ForwardLayout {
  ForwardLayout(const DeformCudaTiling& plan, const void* memory) {
    Pieces block(memory);
    x_rows = Rows(block, plan.z, plan.s.in_pixels(), plan.s.x_pieces());
    words = block.take<unsigned>(kWords);  // after the zeros: cleared with them
    if (plan.splits > 1) parts = block.take<float>(plan.splits * plan.out_count);
    bytes = block.used;
  }
  Rows x_rows;
  unsigned* words = nullptr;
  float* parts = nullptr;
  std::size_t bytes = 0;
};

struct WeightLayout {
  WeightLayout(const DeformCudaTiling& plan, const void* memory) {
    const DeformShape& s = plan.s;
    Pieces block(memory);
    x_rows = Rows(block, plan.z, s.in_pixels(), s.x_pieces());
    words = block.take<unsigned>(kWords);
    plane = std::int64_t{s.out_pixels()} * s.y_pieces();
    errors = block.take<uint4>(plane * plan.planes);
    parts = block.take<float>(plan.splits * plan.out_count);
    bytes = block.used;
  }
  Rows x_rows;
  unsigned* words = nullptr;
  uint4* errors = nullptr;
  std::int64_t plane = 0;
  float* parts = nullptr;
  std::size_t bytes = 0;
};

// If `atomic` is set, dx is summed by atomic additions to packed f32 pixels, without lists.
struct DataLayout {
  DataLayout(const DeformCudaTiling& plan, bool atomic, const void* memory) {
    const DeformShape& s = plan.s;
    Pieces block(memory);
    words = block.take<unsigned>(kWords);
    x_rows = Rows(block, plan.z, s.in_pixels(), s.x_pieces());
    plane = std::int64_t{s.out_pixels()} * s.y_pieces();
    if (atomic) {
      dx_rows = block.take<float>(std::int64_t{s.in_pixels()} * s.x_pieces() * kPieceNumbers);
      errors = block.take<uint4>(plane * plan.planes);
      bytes = block.used;
      return;
    }
    count = round_up(std::int64_t{s.keys()} * s.cells() + 1, std::int64_t{4});
    const std::int64_t samples = std::int64_t{s.keys()} * s.out_pixels();
    begin = block.take<int>(count);
    entries = block.take<Entry>(samples);
    sums = block.take<int>(ceil_div(count, kScanBlock));
    // The temporary memory for building the lists is reused for packed dy.
    Pieces first(memory == nullptr ? nullptr : static_cast<const std::byte*>(memory) + block.used);
    place = first.take<int>(count);
    unordered = first.take<int>(samples);
    Pieces then(memory == nullptr ? nullptr : static_cast<const std::byte*>(memory) + block.used);
    if (plan.planes == 2) errors = then.take<uint4>(plane * 2);
    dy_rows = Rows(then, plan.z, s.out_pixels(), s.y_pieces());
    if (plan.planes == 1) errors = dy_rows.at;
    if (plan.splits > 1) parts = then.take<float>(plan.splits * plan.out_count);
    bytes = block.used + std::max(first.used, then.used);
  }
  unsigned* words = nullptr;
  Rows x_rows;
  uint4* errors = nullptr;  // dy in 16 bits
  Rows dy_rows;             // dy as the lists read it
  std::int64_t plane = 0;
  float* dx_rows = nullptr;
  int* begin = nullptr;
  Entry* entries = nullptr;
  int* sums = nullptr;
  int* place = nullptr;
  int* unordered = nullptr;
  std::int64_t count = 0;  // of lists
  float* parts = nullptr;
  std::size_t bytes = 0;
};

}  // namespace convscope::deform_cuda
