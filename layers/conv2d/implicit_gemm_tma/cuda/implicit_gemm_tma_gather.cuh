// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_gather.cuh: the kernel of forward and backward_data: it sums a tile of 128 or
// 256 pixels x 16 to 256 channels over patches of the image and taps of the kernel. Warp 8 issues
// the TMA loads of patches, warp 9 those of weights, each as far ahead as stages are free; two warp
// groups multiply. A block computes one tile after another.
// Read next  implicit_gemm_tma_taps.h; implicit_gemm_tma_weight.cuh
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/tensor_cores/matrix_step.cuh"
#include "framework/cuda/tma.cuh"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_floats.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_moments.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_sums.cuh"

namespace convscope::implicit_gemm_tma {

constexpr int kGatherThreads = 384;
constexpr int kProducerRegisters = 40;

// Half: type of the operands; float means f32 that TMA rounds to tf32. Out: type of the stored
// result. f32 results come from f32 operands, or from scaled fp16 operands (half_operands.h).
// kPlanes 2: f32 in full precision, with each operand as a high and a low plane in fp16. Three of
// the four products of planes are added, and results are planes (implicit_gemm_tma_fp16x3.cuh).
// kMoments: the kernel also stores mean and spread of y's channels (implicit_gemm_tma_moments.cuh).
template <class Half_, int kTiles_, int kColumns_, int kBlocks_, int kChunk_, bool kBackward_,
          class Out_ = Half_, int kPlanes_ = 1, bool kMoments_ = false>
struct GatherVariant {
  static constexpr int kPlanes = kPlanes_;
  using Half = Half_;
  using Out = Out_;
  using StoredHalf = std::conditional_t<std::is_same_v<Half, float>, Float16, Half>;
  static constexpr bool kFloats = std::is_same_v<Out, float>;
  static constexpr bool kScaled = kFloats && !std::is_same_v<Half, float>;
  static constexpr int kTiles = kTiles_;  // tiles of 64 pixels, for each warp group
  static constexpr int kRows = 128 * kTiles_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kBlocks = kBlocks_;   // blocks that share an SM
  static constexpr int kPatchRow = kChunk_;  // capacity of a patch row in fp16 numbers
  static constexpr int kChunk = kChunk_ * 2 / static_cast<int>(sizeof(Half));  // its channels
  static constexpr int kDepths = 32 / static_cast<int>(sizeof(Half));  // channels of one MMA
  static constexpr int kWeightRow = kBackward_ ? 64 : kChunk_;
  static constexpr bool kBackward = kBackward_;
  static constexpr bool kMoments = kMoments_;
  // kBeside is for two planes with few columns. High and low weights are then the columns of one
  // product, which reads the patch once for both, because the bandwidth of shared memory would
  // limit separate products. The third product has its own accumulators: the tensor cores start a
  // product of another width in the same registers only after the previous product has ended. Wider
  // tiles have no registers left for a second set of accumulators.
  static constexpr bool kBeside = kPlanes_ == 2 && kColumns_ == 32;
  static_assert(!kBeside || kColumns_ * kChunk_ * 2 >= 1024);  // low weights follow high ones
  // 384 threads begin with 168 registers each, or with 80 when two blocks share an SM. The producer
  // warps keep 40. A request for more registers than are left in the block would wait forever.
  static constexpr int kRegisters = kBlocks_ == 1 ? 232 : 96;
  static_assert(40 + 2 * kRegisters <= 3 * (kBlocks_ == 1 ? 168 : 80));
  // In backward_data the channels of the result are innermost in w, and a box has 64 of them.
  static constexpr int kWeightBoxes = kBackward_ ? (kColumns_ + 63) / 64 : 1;
  static constexpr int kWeightBytes =
      kBackward_ ? kWeightBoxes * kChunk_ * 128 : kColumns_ * kChunk_ * 2;
  static_assert(sizeof(Half) == 2 || !kBackward_);  // tf32 is never read transposed
  static constexpr int kWeightStageBytes = kBackward_            ? kWeightBoxes * 8192
                                           : kWeightBytes < 1024 ? 1024
                                                                 : kWeightBytes;
};

struct Gather {
  TensorMap pixels, weights;
  void* out = nullptr;       // [N, out_h, out_w, out_channels]
  float* parts = nullptr;    // [splits] arrays shaped like `out`, when splits > 1
  float* moments = nullptr;  // [parts][4][out_channels]; null: no statistics
  const void* bias = nullptr;
  const void* residual = nullptr;
  const float* pixels_scale = nullptr;  // scale of scaled operands, else null
  const float* weights_scale = nullptr;
  std::int64_t out_count = 0;
  int bias_channels = 0;
  bool bias_is_f32 = false, relu = false;
  int images = 0, out_h = 0, out_w = 0, out_channels = 0;
  int every_h = 1, every_w = 1;  // distance of two outputs of a phase, in pixels
  int depth = 0;                 // channels of `pixels`
  int step_h = 1, step_w = 1;    // distance of the pixels read for two outputs
  int width = 1, height = 1, tile_images = 1;  // outputs of a tile
  int patch_bytes = 0, patch_stage_bytes = 0, patch_stages = 1, weight_stages = 1;
  // If not 0, all weights stay in shared memory and are loaded once. Stage chunk * resident_taps +
  // t then holds tap t of a chunk of channels.
  int resident_taps = 0;
  bool zeros_behind = false;  // rows after a patch are read, and must be zero
  int splits = 1, tiles = 0, column_tiles = 1;
  const float2* unscale = nullptr;  // undoes the scale of two planes
  FastDivisor by_column_tiles, by_splits, by_pitch, by_lines;
  TapSets taps;
};
static_assert(sizeof(Gather) <= 4096);  // limit for the parameters of a kernel

#if defined(CONVSCOPE_MATRIX_STEP)

// The position of a tile, and the patches over which the block sums.
struct GatherTile {
  int column, part, phase, w, h, image;  // first column; w, h: first output of the phase
  int begin, end;                        // patches
  int groups;
};
__device__ inline GatherTile tile_at(const Gather& z, int tile, int columns, int chunk) {
  GatherTile out;
  const int rest = z.by_column_tiles.divide(tile);
  out.column = (tile - rest * z.column_tiles) * columns;
  int at = z.by_splits.divide(rest);
  out.part = rest - at * z.splits;
  int phase = 0;
  while (phase + 1 < z.taps.phases && z.taps.phase[phase + 1].first_tile <= at) ++phase;
  const Phase& of = z.taps.phase[phase];
  at -= of.first_tile;
  const int line = at / of.tiles_w;
  out.phase = phase;
  out.w = (at - line * of.tiles_w) * z.width;
  const int image = line / of.tiles_h;
  out.h = (line - image * of.tiles_h) * z.height;
  out.image = image * z.tile_images;
  out.groups = of.groups_end - of.groups_begin;
  const int patches = (z.depth + chunk - 1) / chunk * out.groups;
  out.begin = patches * out.part / z.splits;
  out.end = patches * (out.part + 1) / z.splits;
  return out;
}

// A ring of stages in shared memory.
struct Ring {
  int stage = 0;
  unsigned parity = 0;
  __device__ void next(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Calls body(std::integral_constant<int, n>), where n is `count` clamped to kLeast..kMax.
template <int kLeast, int kMax, class Body>
__device__ inline void with_count(int count, Body&& body) {
  if constexpr (kMax == kLeast) {
    body(std::integral_constant<int, kLeast>{});
  } else {
    if (count >= kMax) {
      body(std::integral_constant<int, kMax>{});
    } else {
      with_count<kLeast, kMax - 1>(count, body);
    }
  }
}

// Exchanges a tile row among four lanes. A lane begins with a pair of columns of each of four
// blocks of 8; afterwards it has all 8 columns of one block.
__device__ inline uint4 exchange_in_fours(const unsigned (&pair)[4], int lane) {
  const bool odd = (lane & 1) != 0;
  const bool high = (lane & 2) != 0;
  const unsigned near0 = __shfl_xor_sync(kAllLanes, odd ? pair[0] : pair[1], 1);
  const unsigned near1 = __shfl_xor_sync(kAllLanes, odd ? pair[2] : pair[3], 1);
  // a0 and a1 belong to block lane % 2, b0 and b1 to block 2 + lane % 2. Index 0 comes from the
  // even lane of a pair of lanes, index 1 from the odd lane.
  const unsigned a0 = odd ? near0 : pair[0], a1 = odd ? pair[1] : near0;
  const unsigned b0 = odd ? near1 : pair[2], b1 = odd ? pair[3] : near1;
  const unsigned far0 = __shfl_xor_sync(kAllLanes, high ? a0 : b0, 2);
  const unsigned far1 = __shfl_xor_sync(kAllLanes, high ? a1 : b1, 2);
  return high ? make_uint4(far0, far1, b0, b1) : make_uint4(a0, a1, far0, far1);
}

// Adds the bias. The residual and ReLU have separate loops, so that no branch separates
// conversions, exchanges and stores, and their latencies overlap.
template <class V>
__device__ inline void add_bias(const Gather& z, int first_column,
                                float (&sums)[V::kTiles][V::kColumns / 2]) {
#pragma unroll
  for (int j = 0; j < V::kColumns / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = first_column + 8 * j + 2 * (static_cast<int>(threadIdx.x) % 4) + e;
      float bias = 0;
      if (column < z.bias_channels) {
        bias = z.bias_is_f32 ? static_cast<const float*>(z.bias)[column]
                             : to_float(static_cast<const typename V::Half*>(z.bias)[column]);
      }
#pragma unroll
      for (int i = 0; i < V::kTiles; ++i) {
        sums[i][4 * j + e] += bias;
        sums[i][4 * j + 2 + e] += bias;
      }
    }
  }
}

// One of this thread's rows: its pixel of the result, and how many columns the result has from the
// tile's first column on. `columns_left` is 0 where the row is not a pixel.
struct GatherRow {
  std::int64_t pixel;
  int columns_left;
};
template <class V>
__device__ inline GatherRow row_of(const Gather& z, const GatherTile& tile, const Phase& phase,
                                   int thread, int row) {
  const int m = (thread / 128 * V::kTiles + row / 2) * 64 + thread % 128 / 32 * 16 +
                thread % 32 / 4 + 8 * (row % 2);
  const int line = z.by_pitch.divide(m);
  const int column_of_tile = m - line * z.by_pitch.d;
  const int image = z.by_lines.divide(line);
  const int line_of_tile = line - image * z.by_lines.d;
  const int w = tile.w + column_of_tile, h = tile.h + line_of_tile;
  const bool valid = column_of_tile < z.width && w < phase.outputs_w && line_of_tile < z.height &&
                     h < phase.outputs_h && image < z.tile_images && tile.image + image < z.images;
  const std::int64_t pixel =
      (static_cast<std::int64_t>(tile.image + image) * z.out_h + phase.first_h + h * z.every_h) *
          z.out_w +
      phase.first_w + w * z.every_w;
  return {pixel, valid ? z.out_channels - tile.column : 0};
}

template <class V, class Moments>
__device__ inline void store_gathered(const Gather& z, const GatherTile& tile, int unscale,
                                      float (&sums)[V::kTiles][V::kColumns / 2], Moments& moments) {
  using Half = typename V::StoredHalf;
  constexpr int kBlocks = V::kColumns / 8;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const Phase& phase = z.taps.phase[tile.phase];
  if constexpr (V::kScaled) {
    if (z.splits == 1) {
#pragma unroll
      for (int i = 0; i < V::kTiles; ++i) times_power_of_two(unscale, sums[i]);
    }
  }
  if (z.bias != nullptr && z.splits == 1) add_bias<V>(z, tile.column, sums);
  [[maybe_unused]] int pixels[2 * V::kTiles];
  [[maybe_unused]] bool valid[2 * V::kTiles];
  if constexpr (V::kMoments) {
#pragma unroll
    for (int row = 0; row < 2 * V::kTiles; ++row) {
      const GatherRow own = row_of<V>(z, tile, phase, thread, row);
      pixels[row] = static_cast<int>(own.pixel);
      valid[row] = own.columns_left > 0;
    }
    add_moments<V>(valid, sums, moments);
  }
#pragma unroll
  for (int row = 0; row < 2 * V::kTiles; ++row) {
    const int i = row % 2;
    const auto [pixel, columns_left] =
        V::kMoments ? GatherRow{pixels[row], valid[row] ? z.out_channels - tile.column : 0}
                    : row_of<V>(z, tile, phase, thread, row);
    const std::int64_t at = pixel * z.out_channels + tile.column;
    float(&mine)[V::kColumns / 2] = sums[row / 2];
    if (z.splits > 1) {
      float* const to = z.parts + tile.part * z.out_count + at + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        if (8 * j < columns_left) {
          *reinterpret_cast<float2*>(to + 8 * j) =
              make_float2(mine[4 * j + 2 * i], mine[4 * j + 2 * i + 1]);
        }
      }
      continue;
    }
    if constexpr (V::kFloats) {
      store_floats(mine, i, columns_left, z.relu,
                   z.residual == nullptr ? nullptr : static_cast<const float*>(z.residual) + at,
                   static_cast<float*>(z.out) + at);
      continue;
    }
    if (z.residual != nullptr) {
      const Half* const from = static_cast<const Half*>(z.residual) + at + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kBlocks; ++j) {
        const float2 more = floats_from_pair<Half>(
            8 * j < columns_left ? *reinterpret_cast<const unsigned*>(from + 8 * j) : 0u);
        mine[4 * j + 2 * i] += more.x;
        mine[4 * j + 2 * i + 1] += more.y;
      }
    }
    Half* const to = static_cast<Half*>(z.out) + at + 8 * (lane % 4);
#pragma unroll
    for (int four = 0; four < (kBlocks + 3) / 4; ++four) {
      unsigned pair[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int block = 4 * four + j;
        pair[j] = 0;
        if (block < kBlocks) {
          pair[j] = pair_from_floats<Half>(
              finished(mine[(4 * block + 2 * i) % (V::kColumns / 2)], z.relu),
              finished(mine[(4 * block + 2 * i + 1) % (V::kColumns / 2)], z.relu));
        }
      }
      const uint4 eight = exchange_in_fours(pair, lane);
      const int column = 32 * four + 8 * (lane % 4);
      if (column < columns_left && column < V::kColumns) {
        *reinterpret_cast<uint4*>(to + 32 * four) = eight;
      }
    }
  }
}

#endif

#if defined(CONVSCOPE_MATRIX_STEP)

template <class V>
__device__ void store_planes(const Gather& z, const GatherTile& tile,
                             const float (&sums)[V::kTiles][V::kColumns / 2]);

#endif

// Kernel: the grid has as many blocks as run at once. Each block computes every gridDim.x-th tile.
template <class V>
__global__ __launch_bounds__(kGatherThreads,
                             V::kBlocks) void gather_kernel(const __grid_constant__ Gather z) {
#if defined(CONVSCOPE_MATRIX_STEP)
  namespace step = matrix_step;
  unsigned char* const patches = aligned_shared();
  unsigned char* const weights = patches + z.patch_stages * V::kPlanes * z.patch_stage_bytes;
  auto* const barriers = reinterpret_cast<std::uint64_t*>(weights + z.weight_stages * V::kPlanes *
                                                                        V::kWeightStageBytes);
  std::uint64_t* const patch_full = barriers;
  std::uint64_t* const patch_empty = barriers + kMaxStages;
  std::uint64_t* const weight_full = barriers + 2 * kMaxStages;
  std::uint64_t* const weight_empty = barriers + 3 * kMaxStages;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  if (z.zeros_behind) {  // TMA does not write these rows
    const int pieces = (z.patch_stage_bytes - z.patch_bytes) / 16;
    for (int stage = 0; stage < z.patch_stages * V::kPlanes; ++stage) {
      unsigned char* const behind = patches + stage * z.patch_stage_bytes + z.patch_bytes;
      for (int i = thread; i < pieces; i += kGatherThreads) {
        reinterpret_cast<uint4*>(behind)[i] = make_uint4(0, 0, 0, 0);
      }
    }
    order_shared_writes_for_matrix_unit();
  }
  if (thread == 32) {
    tma::fetch_map(z.pixels);
    tma::fetch_map(z.weights);
  }
  // One lane of each warp initialises only the barriers in use. Several lanes of a warp would
  // initialise barriers one after another.
  if (thread % 32 == 0) {
    for (int i = warp; i < z.patch_stages; i += kGatherThreads / 32) {
      tma::start_phases(patch_full + i, 1);
      tma::start_phases(patch_empty + i, 8);
    }
    for (int i = warp; i < z.weight_stages; i += kGatherThreads / 32) {
      tma::start_phases(weight_full + i, 1);
      tma::start_phases(weight_empty + i, 8);
    }
    tma::phases_are_started();
  }
  __syncthreads();
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int first_tile = static_cast<int>(blockIdx.x);
  const int next_tile = static_cast<int>(gridDim.x);

  if (warp >= 8) {
    step::give_registers<kProducerRegisters>();
    if (thread % 32 != 0 || warp > 9) return;
    if (warp == 8) {
      Ring ring;
      for (int i = first_tile; i < z.tiles; i += next_tile) {
        const GatherTile tile = tile_at(z, i, V::kColumns, V::kChunk);
        const int first_group = z.taps.phase[tile.phase].groups_begin;
        for (int patch = tile.begin; patch < tile.end; ++patch) {
          const int chunk = patch / tile.groups;
          const Group& group = z.taps.group[first_group + patch - chunk * tile.groups];
          tma::wait_phase(patch_empty + ring.stage, ring.parity ^ 1);
          tma::expect(patch_full + ring.stage, static_cast<unsigned>(z.patch_bytes * V::kPlanes));
          for (int plane = 0; plane < V::kPlanes; ++plane) {
            tma::load_box(patches + (ring.stage * V::kPlanes + plane) * z.patch_stage_bytes,
                          z.pixels, patch_full + ring.stage, chunk * V::kChunk,
                          tile.w * z.step_w + group.w, plane, tile.h * z.step_h + group.h,
                          tile.image);
          }
          ring.next(z.patch_stages);
        }
      }
    } else if (z.resident_taps > 0) {
      for (int stage = 0; stage < z.weight_stages; ++stage) {
        const int chunk = stage / z.resident_taps;
        const int tap = z.taps.tap[stage - chunk * z.resident_taps].index;
        unsigned char* const to = weights + stage * V::kPlanes * V::kWeightStageBytes;
        tma::expect(weight_full + stage, V::kWeightBytes * V::kPlanes);
        for (int j = 0; j < V::kWeightBoxes * V::kPlanes; ++j) {
          V::kBackward ? tma::load_box(to + j * kTileBlockBytes, z.weights, weight_full + stage,
                                       64 * j, tap, 0, chunk * V::kChunk, 0)
                       : tma::load_box(to + j * V::kWeightStageBytes, z.weights,
                                       weight_full + stage, chunk * V::kChunk, tap, j, 0, 0);
        }
      }
    } else {
      Ring ring;
      for (int i = first_tile; i < z.tiles; i += next_tile) {
        const GatherTile tile = tile_at(z, i, V::kColumns, V::kChunk);
        const int first_group = z.taps.phase[tile.phase].groups_begin;
        for (int patch = tile.begin; patch < tile.end; ++patch) {
          const int chunk = patch / tile.groups;
          const Group& group = z.taps.group[first_group + patch - chunk * tile.groups];
          for (int t = group.first; t < group.last; ++t) {
            const int tap = z.taps.tap[t].index;
            unsigned char* const to = weights + ring.stage * V::kPlanes * V::kWeightStageBytes;
            tma::wait_phase(weight_empty + ring.stage, ring.parity ^ 1);
            tma::expect(weight_full + ring.stage, V::kWeightBytes * V::kPlanes);
            for (int j = 0; j < V::kWeightBoxes * V::kPlanes; ++j) {
              V::kBackward
                  ? tma::load_box(to + j * kTileBlockBytes, z.weights, weight_full + ring.stage,
                                  tile.column + 64 * j, tap, 0, chunk * V::kChunk, 0)
                  : tma::load_box(to + j * V::kWeightStageBytes, z.weights,
                                  weight_full + ring.stage, chunk * V::kChunk, tap, j, tile.column,
                                  0);
            }
            ring.next(z.weight_stages);
          }
        }
      }
    }
  } else {
    step::take_registers<V::kRegisters>();
    int unscale = 0;
    if constexpr (V::kScaled && V::kPlanes == 1)
      unscale = unscale_exponent(*z.pixels_scale, *z.weights_scale);
    Ring patch_ring, weight_ring;
    [[maybe_unused]] const step::Place low_patch = step::bytes(z.patch_stage_bytes);
    const int first_row = thread / 128 * V::kTiles * 64;
    const bool speaks = thread % 32 == 0;  // the lane that signals for its warp
    std::conditional_t<V::kMoments, WarpMoments<V>, NoMoments> moments;
    for (int i = first_tile; i < z.tiles; i += next_tile) {
      const GatherTile tile = tile_at(z, i, V::kColumns, V::kChunk);
      const int first_group = z.taps.phase[tile.phase].groups_begin;
      float sums[V::kTiles][V::kColumns / 2 * (V::kBeside ? 2 : 1)];
      [[maybe_unused]] float small[V::kBeside ? V::kTiles : 1][V::kColumns / 2];
      [[maybe_unused]] float whole[V::kPlanes == 2 ? V::kTiles : 1][V::kColumns / 2];
      if constexpr (V::kPlanes == 2) clear(whole);
      if (tile.begin == tile.end) clear(sums);
      // Terms added to `sums` since `sums` was last added to `whole`. The warp groups start at
      // different counts: while one group adds its sums to `whole`, the other group multiplies.
      [[maybe_unused]] int depths = thread / 128 * (kWholeDepths / 2);
      bool add = false;
      int used_patch = -1, used_weights = -1;  // stages that the previous products read
      for (int patch = tile.begin; patch < tile.end; ++patch) {
        const int chunk = patch / tile.groups;
        const Group& group = z.taps.group[first_group + patch - chunk * tile.groups];
        const int left = z.depth - chunk * V::kChunk;
        tma::wait_phase(patch_full + patch_ring.stage, patch_ring.parity);
        const step::Place from = step::place<V::kPatchRow>(patches + patch_ring.stage * V::kPlanes *
                                                                         z.patch_stage_bytes) +
                                 step::rows<V::kPatchRow>(first_row);
        // The products of a tap are straight-line code up to their commit. With a branch or a loop
        // around them, the compiler commits each product separately and adds an empty group.
        // wait<1> then waits for products that have just begun.
        with_count<1, V::kChunk / V::kDepths>(ceil_div(left, V::kDepths), [&](auto steps) {
          for (int t = group.first; t < group.last; ++t) {
            if (z.resident_taps > 0) weight_ring = {chunk * z.resident_taps + t, 0};
            tma::wait_phase(weight_full + weight_ring.stage, weight_ring.parity);
            const step::Place a = from + step::rows<V::kPatchRow>(z.taps.tap[t].shift);
            const step::Place b = step::place<V::kWeightRow>(
                weights + weight_ring.stage * V::kPlanes * V::kWeightStageBytes);
            constexpr int kBStep = V::kBackward ? 16 * kTileRowBytes : 32;
            matrix_tile::begin();
#pragma unroll
            for (int k = 0; k < decltype(steps)::value; ++k) {
#pragma unroll
              for (int j = 0; j < V::kTiles; ++j) {
                if constexpr (V::kBeside) {
                  const step::Place high =
                      a + step::rows<V::kPatchRow>(64 * j) + step::bytes(32 * k);
                  const step::Place b_high = b + step::bytes(kBStep * k);
                  step::multiply<typename V::Half, 2 * V::kColumns, false, false, V::kPatchRow,
                                 V::kWeightRow>(sums[j], high, b_high, add || k > 0);
                  step::multiply<typename V::Half, V::kColumns, false, false, V::kPatchRow,
                                 V::kWeightRow>(small[j], high + low_patch, b_high, add || k > 0);
                } else if constexpr (V::kPlanes == 2) {  // small products first: low high, high low
                  const step::Place high =
                      a + step::rows<V::kPatchRow>(64 * j) + step::bytes(32 * k);
                  const step::Place b_high = b + step::bytes(kBStep * k);
                  step::multiply<typename V::Half, V::kColumns, false, false, V::kPatchRow,
                                 V::kWeightRow>(sums[j], high + low_patch, b_high, add || k > 0);
                  step::multiply<typename V::Half, V::kColumns, false, false, V::kPatchRow,
                                 V::kWeightRow>(sums[j], high,
                                                b_high + step::bytes(V::kWeightStageBytes), true);
                  step::multiply<typename V::Half, V::kColumns, false, false, V::kPatchRow,
                                 V::kWeightRow>(sums[j], high, b_high, true);
                } else {
                  step::multiply<typename V::Half, V::kColumns, false, V::kBackward, V::kPatchRow,
                                 V::kWeightRow>(
                      sums[j], a + step::rows<V::kPatchRow>(64 * j) + step::bytes(32 * k),
                      b + step::bytes(kBStep * k), add || k > 0);
                }
              }
            }
            matrix_tile::commit();
            add = true;
            if constexpr (V::kPlanes == 2) {
              depths += V::kChunk;
              if (depths >= kWholeDepths) {
                matrix_tile::wait<0>();
                if constexpr (V::kBeside) {
                  add_to_whole(sums, small, whole);
                } else {
                  add_to_whole(sums, whole);
                }
                depths = 0;
                add = false;
              }
            }
            matrix_tile::wait<1>();
            if (speaks && used_weights >= 0) tma::arrive(weight_empty + used_weights);
            if (speaks && used_patch >= 0) tma::arrive(patch_empty + used_patch);
            used_weights = z.resident_taps > 0 ? -1 : weight_ring.stage;
            used_patch = t + 1 == group.last ? patch_ring.stage : -1;
            if (z.resident_taps == 0) weight_ring.next(z.weight_stages);
          }
        });
        patch_ring.next(z.patch_stages);
      }
      matrix_tile::wait<0>();
#pragma unroll
      for (int j = 0; j < V::kTiles; ++j) matrix_tile::hold(sums[j]);
      if (speaks && used_weights >= 0) tma::arrive(weight_empty + used_weights);
      if (speaks && used_patch >= 0) tma::arrive(patch_empty + used_patch);
      if constexpr (V::kPlanes == 2) {
        if constexpr (V::kBeside) {
          if (add) add_to_whole(sums, small, whole);
        } else {
          if (add) add_to_whole(sums, whole);
        }
        store_planes<V>(z, tile, whole);
      } else {
        store_gathered<V>(z, tile, unscale, sums, moments);
      }
    }
    if constexpr (V::kMoments) {  // all tiles of a block have the same columns
      const int rest = z.by_column_tiles.divide(first_tile);
      put_moments<V>(moments, (first_tile - rest * z.column_tiles) * V::kColumns, z.out_channels,
                     reinterpret_cast<float*>(patches),
                     z.moments + static_cast<std::int64_t>(rest) * kMomentSums * z.out_channels);
    }
  }
#else
  (void)z;
#endif
}

// Computes y: adds the parts of a split reduction in order and applies the epilogue. A thread takes
// 8 channels of a pixel.
template <class Half>
__global__ void sum_gathered_kernel(const __grid_constant__ Gather z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t eights = z.out_count / 8;
  const int in_pixel = z.out_channels / 8;
  for (std::int64_t i = global_thread(); i < eights; i += global_threads()) {
    float y[8] = {};
#pragma unroll 8
    for (int part = 0; part < z.splits; ++part) {
      const auto* const from =
          reinterpret_cast<const float4*>(z.parts + part * z.out_count + i * 8);
      const float4 a = from[0], b = from[1];
      y[0] += a.x, y[1] += a.y, y[2] += a.z, y[3] += a.w;
      y[4] += b.x, y[5] += b.y, y[6] += b.z, y[7] += b.w;
    }
    const int channel = static_cast<int>(i % in_pixel) * 8;
    uint4 more = make_uint4(0, 0, 0, 0);
    if (z.residual != nullptr) more = static_cast<const uint4*>(z.residual)[i];
    const unsigned pairs[4] = {more.x, more.y, more.z, more.w};
    unsigned out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 2 * j; e < 2 * j + 2; ++e) {
        if (z.bias != nullptr && channel + e < z.bias_channels) {
          y[e] += z.bias_is_f32 ? static_cast<const float*>(z.bias)[channel + e]
                                : to_float(static_cast<const Half*>(z.bias)[channel + e]);
        }
      }
      if (z.residual != nullptr) {
        const float2 two = floats_from_pair<Half>(pairs[j]);
        y[2 * j] += two.x;
        y[2 * j + 1] += two.y;
      }
      out[j] = pair_from_floats<Half>(finished(y[2 * j], z.relu), finished(y[2 * j + 1], z.relu));
    }
    static_cast<uint4*>(z.out)[i] = make_uint4(out[0], out[1], out[2], out[3]);
  }
}

}  // namespace convscope::implicit_gemm_tma
