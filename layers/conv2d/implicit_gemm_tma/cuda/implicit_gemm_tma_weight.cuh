// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_weight.cuh: the kernel of backward_weight: dw = dy^T x, reduced over pixels. A
// block keeps several products of 64 output channels x 64 (or 16) input channels, one for each
// "slot". A slot is a tap with a block of channels. All slots read the same pixels of dy and one
// patch of x, or a few. The reduction counts pixels with the pitch of the patch. Where a row of the
// patch is longer than one of dy, dy's box is as long as the patch row, and has zeros from outside
// its tensor. Warp 12 issues the TMA loads of x and dy; three warp groups multiply.
// Read next  implicit_gemm_tma_gather.cuh
#pragma once

#include <cstdint>
#include <type_traits>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_gather.cuh"

namespace convscope::implicit_gemm_tma {

constexpr int kWeightGroups = 3;  // warp groups that multiply
constexpr int kWeightThreads = 128 * kWeightGroups + 128;
constexpr int kStepsAtOnce = 4;  // steps of 16 pixels whose products are issued together

// kPlanes 2: f32 in full precision, with each element as a high and a low part. Three of the four
// products of parts are added.
template <class Half_, int kColumns_, int kSlots_, int kPlanes_ = 1>
struct WeightVariant {
  using Half = Half_;
  static constexpr int kColumns = kColumns_;  // input channels of a slot
  static constexpr int kSlots = kSlots_;      // slots of a warp group
  static constexpr int kPlanes = kPlanes_;
  // The four warp groups have 512 registers for each lane. Two planes have twice the accumulators.
  static constexpr int kRegisters = kPlanes_ == 1 ? 152 : 160;
  static constexpr int kOwnOfProducer = kPlanes_ == 1 ? 40 : 24;
  static_assert(kOwnOfProducer + kWeightGroups * kRegisters <= 512);
};

struct WeightGather {
  TensorMap errors, pixels;             // dy, x
  TensorMap low_errors, low_pixels;     // two planes: the low ones
  float* parts = nullptr;               // [splits][K][R S][channels]
  const float* pixels_scale = nullptr;  // null: operands were not scaled
  const float* errors_scale = nullptr;
  const float2* unscale = nullptr;  // undoes the scale of two planes
  // dw [K,C,R,S] if the reduction is not split: blocks assign dw or add to it. Null if blocks write
  // parts.
  void* dw = nullptr;
  int real_channels = 0, store_pitch = 0;
  bool dw_is_f32 = false, accumulate = false, dw_in_fours = false;
  int k = 0, channels = 0, kernel = 1;            // K, C rounded up, R S
  int splits = 1, steps = 0;                      // steps: boxes of pixels
  int k_blocks = 1, c_blocks = 1, tap_count = 1;  // a tile: blocks of 64 (16) channels, taps
  int k_tiles = 1, c_tiles = 1, tap_tiles = 1;
  int tiles_w = 1, tiles_h = 1;
  int width = 1, height = 1, images = 1;  // pixels of a box
  int columns_apart = 0;                  // 1: dy's boxes are in dimension 2 of its map
  int step_h = 1, step_w = 1;
  int depth = 16;  // rows of dy in shared memory: a box, rounded up to 16
  int errors_bytes = 0, pixels_bytes = 0;  // bytes of one box
  int pixels_stage_bytes = 0;              // one box, with the following rows that taps read
  int stage_bytes = 0, stages = 2;
  int barriers_at = 0;  // after all other memory, including dw in its own order
  TapSets taps;
};
static_assert(sizeof(WeightGather) <= 4096);

#if defined(CONVSCOPE_MATRIX_STEP)

// Four adjacent elements of dw, in the type that is stored.
template <class Out>
struct alignas(4 * sizeof(Out)) FourOfWeight {
  Out at[4];
};

// Stores a row of dw: one warp stores `count` elements that are adjacent in dw.
template <class Out>
__device__ inline void store_weight_row(const float* from, Out* to, int count, bool in_fours,
                                        bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (in_fours) {
#pragma unroll 4
    for (int i = lane; i < count / 4; i += 32) {
      const float4 sum = reinterpret_cast<const float4*>(from)[i];
      float out[4] = {sum.x, sum.y, sum.z, sum.w};
      auto& four = reinterpret_cast<FourOfWeight<Out>*>(to)[i];
      FourOfWeight<Out> before;
      if (accumulate) before = four;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (accumulate) out[e] = to_float(before.at[e]) + out[e];
        before.at[e] = from_float<Out>(out[e]);
      }
      four = before;
    }
    return;
  }
  for (int i = lane; i < count; i += 32) {
    to[i] = from_float<Out>(accumulate ? to_float(to[i]) + from[i] : from[i]);
  }
}

// Stores the block's part of dw, [k][c][tap] in shared memory, to dw. A row (one k) is contiguous
// in dw only if the block computed all taps.
template <class Out>
__device__ inline void store_weights(const WeightGather& z, const float* from, int first_k,
                                     int rows, int first_c, int channels, int first_tap, int taps) {
  Out* const dw = static_cast<Out*>(z.dw);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += kWeightGroups * 4) {
    Out* const to =
        dw + (static_cast<std::int64_t>(first_k + row) * z.real_channels + first_c) * z.kernel;
    const float* const sums = from + row * z.store_pitch;
    if (taps == z.kernel) {
      store_weight_row(sums, to, channels * taps, z.dw_in_fours, z.accumulate);
      continue;
    }
    for (int i = lane; i < channels * taps; i += 32) {
      const int c = i / taps;
      Out& out = to[c * z.kernel + z.taps.tap[first_tap + i - c * taps].index];
      out = from_float<Out>(z.accumulate ? to_float(out) + sums[i] : sums[i]);
    }
  }
}

#endif

// Kernel: blockIdx.x selects a k tile inside a c tile inside a tap tile, blockIdx.y a split.
template <class V>
__global__ __launch_bounds__(kWeightThreads,
                             1) void weight_kernel(const __grid_constant__ WeightGather z) {
#if defined(CONVSCOPE_MATRIX_STEP)
  namespace step = matrix_step;
  unsigned char* const stages = aligned_shared();
  auto* const full = reinterpret_cast<std::uint64_t*>(stages + z.barriers_at);
  std::uint64_t* const empty = full + kMaxStages;
  const int thread = static_cast<int>(threadIdx.x);
  // Products also read the rows after a box and multiply them by zeros, so these rows must be
  // finite. One warp clears them for each box.
  const int error_boxes = z.k_blocks * V::kPlanes;
  const int boxes =
      error_boxes + (z.stage_bytes - error_boxes * z.depth * kTileRowBytes) / z.pixels_stage_bytes;
  const int warp = thread / 32;
  for (int i = warp; i < z.stages * boxes; i += kWeightThreads / 32) {
    const int stage = i / boxes;
    const int box = i - stage * boxes;
    const bool errors = box < error_boxes;
    unsigned char* const from =
        stages + stage * z.stage_bytes +
        (errors ? box * z.depth * kTileRowBytes + z.errors_bytes
                : error_boxes * z.depth * kTileRowBytes +
                      (box - error_boxes) * z.pixels_stage_bytes + z.pixels_bytes);
    const int bytes =
        errors ? z.depth * kTileRowBytes - z.errors_bytes : z.pixels_stage_bytes - z.pixels_bytes;
    for (int at = 16 * (thread % 32); at < bytes; at += 512) {
      *reinterpret_cast<uint4*>(from + at) = make_uint4(0, 0, 0, 0);
    }
  }
  if (thread == 32) {
    tma::fetch_map(z.errors);
    tma::fetch_map(z.pixels);
    if constexpr (V::kPlanes == 2) {
      tma::fetch_map(z.low_errors);
      tma::fetch_map(z.low_pixels);
    }
  }
  order_shared_writes_for_matrix_unit();
  if (thread % 32 == 0) {
    for (int i = warp; i < z.stages; i += kWeightThreads / 32) {
      tma::start_phases(full + i, 1);
      tma::start_phases(empty + i, 4 * kWeightGroups);
    }
    tma::phases_are_started();
  }
  __syncthreads();
  let_next_kernel_start();
  wait_for_previous_kernel();

  int rest = static_cast<int>(blockIdx.x);
  const int k_tile = rest % z.k_tiles;
  rest /= z.k_tiles;
  const int c_tile = rest % z.c_tiles;
  const int tap_tile = rest / z.c_tiles;
  const int first_k = k_tile * z.k_blocks * 64;
  const int first_c = c_tile * z.c_blocks * V::kColumns;
  const int first_tap = tap_tile * z.tap_count;
  const int last_tap = min(first_tap + z.tap_count, z.taps.taps);
  const int first_group = z.taps.tap[first_tap].group;
  const int groups = z.taps.tap[last_tap - 1].group - first_group + 1;
  const int part = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(static_cast<std::int64_t>(z.steps) * part / z.splits);
  const int end = static_cast<int>(static_cast<std::int64_t>(z.steps) * (part + 1) / z.splits);
  const int errors_stage_bytes = z.depth * kTileRowBytes;  // of 64 channels
  const int pixels_at = z.k_blocks * V::kPlanes * errors_stage_bytes;

  if (thread / 128 == kWeightGroups) {
    step::give_registers<V::kOwnOfProducer>();
    if (thread != 128 * kWeightGroups) return;
    Ring ring;
    const unsigned bytes = static_cast<unsigned>(
        V::kPlanes * (z.k_blocks * z.errors_bytes + groups * z.c_blocks * z.pixels_bytes));
    for (int i = begin; i < end; ++i) {
      const int line = i / z.tiles_w;
      const int column = i - line * z.tiles_w;
      const int image = line / z.tiles_h;
      const int w = column * z.width, h = (line - image * z.tiles_h) * z.height;
      unsigned char* const to = stages + ring.stage * z.stage_bytes;
      std::uint64_t* const arrived = full + ring.stage;
      tma::wait_phase(empty + ring.stage, ring.parity ^ 1);
      tma::expect(arrived, bytes);
      for (int a = 0; a < z.k_blocks; ++a) {
#pragma unroll
        for (int plane = 0; plane < V::kPlanes; ++plane) {
          tma::load_box(to + (a * V::kPlanes + plane) * errors_stage_bytes,
                        plane == 0 ? z.errors : z.low_errors, arrived, first_k + 64 * a,
                        z.columns_apart ? 0 : w, z.columns_apart ? column : 0, h, image * z.images);
        }
      }
      for (int j = 0; j < groups; ++j) {
        const Group& group = z.taps.group[first_group + j];
        for (int b = 0; b < z.c_blocks; ++b) {
#pragma unroll
          for (int plane = 0; plane < V::kPlanes; ++plane) {
            tma::load_box(
                to + pixels_at + ((j * z.c_blocks + b) * V::kPlanes + plane) * z.pixels_stage_bytes,
                plane == 0 ? z.pixels : z.low_pixels, arrived, first_c + V::kColumns * b,
                w * z.step_w + group.w, 0, h * z.step_h + group.h, image * z.images);
          }
        }
      }
      ring.next(z.stages);
    }
  } else {
    step::take_registers<V::kRegisters>();
    // The slots of this warp group, each given by a block a of output channels, a block b of input
    // channels and a tap. Taps vary fastest.
    const int warp_group = thread / 128;
    const int lane = thread % 32;
    int a_at[V::kSlots], b_at[V::kSlots], slot_tap[V::kSlots];
    int first_k_of[V::kSlots], first_c_of[V::kSlots];  // first channels of each slot, in the tile
    const int all_slots = z.k_blocks * z.c_blocks * z.tap_count;
    const int count = ceil_div(all_slots, kWeightGroups);
    // Distributes slots round-robin, so that the slot counts of the warp groups differ by at most
    // one.
#pragma unroll
    for (int i = 0; i < V::kSlots; ++i) {
      const int slot = warp_group + i * kWeightGroups;
      const int block_pair = slot / z.tap_count;
      const int tap = first_tap + slot - block_pair * z.tap_count;
      const int a = block_pair / z.c_blocks, b = block_pair - a * z.c_blocks;
      const bool valid = slot < all_slots && tap < last_tap;
      slot_tap[i] = valid ? tap : -1;
      first_k_of[i] = 64 * a, first_c_of[i] = V::kColumns * b;
      const Tap& at = z.taps.tap[valid ? tap : first_tap];
      a_at[i] = valid ? a * V::kPlanes * errors_stage_bytes : 0;
      b_at[i] = pixels_at + (valid ? ((at.group - first_group) * z.c_blocks + b) * V::kPlanes *
                                             z.pixels_stage_bytes +
                                         at.shift * V::kColumns * 2
                                   : 0);
    }
    float sums[V::kSlots][V::kColumns / 2];
    clear(sums);
    [[maybe_unused]] float whole[V::kPlanes == 2 ? V::kSlots : 1][V::kColumns / 2];
    if constexpr (V::kPlanes == 2) clear(whole);
    // Terms added to `sums` since `sums` was last added to `whole`. The warp groups start at
    // different counts: while one group adds its sums to `whole`, the other groups multiply.
    [[maybe_unused]] int depths = warp_group * (kWholeDepths / kWeightGroups);
    // The numbers of slots and steps are compile-time constants here, so that no branch separates
    // the products. The kernel in implicit_gemm_tma_gather.cuh explains why.
    with_count<1, V::kSlots>(count, [&](auto slots) {
      Ring ring;
      const bool speaks = lane == 0;
      int used = -1;
      for (int i = begin; i < end; ++i) {
        tma::wait_phase(full + ring.stage, ring.parity);
        const step::Place from = step::place<64>(stages + ring.stage * z.stage_bytes);
        const step::Place from_pixels =
            step::place<V::kColumns>(stages + ring.stage * z.stage_bytes);
        for (int row = 0; row < z.depth; row += 16 * kStepsAtOnce) {
          with_count<1, kStepsAtOnce>((z.depth - row) / 16, [&](auto steps) {
            matrix_tile::begin();
#pragma unroll
            for (int k = 0; k < decltype(steps)::value; ++k) {
#pragma unroll
              for (int j = 0; j < decltype(slots)::value; ++j) {
                const step::Place a = from + step::bytes(a_at[j]) + step::rows<64>(row + 16 * k);
                const step::Place b =
                    from_pixels + step::bytes(b_at[j]) + step::rows<V::kColumns>(row + 16 * k);
                if constexpr (V::kPlanes == 2) {  // small products first: low high, high low
                  step::multiply<typename V::Half, V::kColumns, true, true, 64, V::kColumns>(
                      sums[j], a + step::bytes(errors_stage_bytes), b, true);
                  step::multiply<typename V::Half, V::kColumns, true, true, 64, V::kColumns>(
                      sums[j], a, b + step::bytes(z.pixels_stage_bytes), true);
                }
                step::multiply<typename V::Half, V::kColumns, true, true, 64, V::kColumns>(
                    sums[j], a, b, true);
              }
            }
            matrix_tile::commit();
            if constexpr (V::kPlanes == 2) {
              depths += 16 * decltype(steps)::value;
              if (depths >= kWholeDepths) {
                matrix_tile::wait<0>();
                add_to_whole(sums, whole);
                clear(sums);
                depths = 0;
              }
            }
          });
          matrix_tile::wait<1>();
          if (row == 0 && speaks && used >= 0) tma::arrive(empty + used);
        }
        used = ring.stage;
        ring.next(z.stages);
      }
      matrix_tile::wait<0>();
      if (speaks && used >= 0) tma::arrive(empty + used);
    });
#pragma unroll
    for (int j = 0; j < V::kSlots; ++j) matrix_tile::hold(sums[j]);
    if constexpr (V::kPlanes == 2) {
      const float2 unscale = *z.unscale;
#pragma unroll
      for (int j = 0; j < V::kSlots; ++j) {
#pragma unroll
        for (int e = 0; e < V::kColumns / 2; ++e) {
          sums[j][e] = (whole[j][e] + sums[j][e]) * unscale.x * unscale.y;
        }
      }
    } else if (z.pixels_scale != nullptr) {
      const int unscale = unscale_exponent(*z.pixels_scale, *z.errors_scale);
#pragma unroll
      for (int j = 0; j < V::kSlots; ++j) times_power_of_two(unscale, sums[j]);
    }

    if (z.dw != nullptr) {
      constexpr unsigned kAll = 128 * kWeightGroups;
      auto* const transposed = reinterpret_cast<float*>(stages);  // all products have read it:
      tma::group_sync(1, kAll);
      const int channels = min(z.c_blocks * V::kColumns, z.real_channels - first_c);
      const int taps = last_tap - first_tap;
#pragma unroll
      for (int j = 0; j < V::kSlots; ++j) {
        if (slot_tap[j] < 0) continue;
        const int tap = taps == z.kernel ? z.taps.tap[slot_tap[j]].index : slot_tap[j] - first_tap;
#pragma unroll
        for (int e = 0; e < V::kColumns / 2; ++e) {  // sums[4 j + 2 i + column]
          const int k = first_k_of[j] + thread % 128 / 32 * 16 + lane / 4 + e / 2 % 2 * 8;
          const int c = first_c_of[j] + e / 4 * 8 + 2 * (lane % 4) + e % 2;
          if (c < channels) transposed[k * z.store_pitch + c * taps + tap] = sums[j][e];
        }
      }
      tma::group_sync(1, kAll);
      const int rows = min(64 * z.k_blocks, z.k - first_k);
      z.dw_is_f32
          ? store_weights<float>(z, transposed, first_k, rows, first_c, channels, first_tap, taps)
          : store_weights<typename V::Half>(z, transposed, first_k, rows, first_c, channels,
                                            first_tap, taps);
      return;
    }

#pragma unroll
    for (int j = 0; j < V::kSlots; ++j) {
      if (slot_tap[j] < 0) continue;
      const int tap = z.taps.tap[slot_tap[j]].index;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int k = first_k + first_k_of[j] + thread % 128 / 32 * 16 + lane / 4 + 8 * i;
        if (k >= z.k) continue;
        float* const to =
            z.parts + ((static_cast<std::int64_t>(part) * z.k + k) * z.kernel + tap) * z.channels;
#pragma unroll
        for (int e = 0; e < V::kColumns / 8; ++e) {
          const int c = first_c + first_c_of[j] + 8 * e + 2 * (lane % 4);
          if (c < z.channels) {
            *reinterpret_cast<float2*>(to + c) =
                make_float2(sums[j][4 * e + 2 * i], sums[j][4 * e + 2 * i + 1]);
          }
        }
      }
    }
  }
#else
  (void)z;
#endif
}

constexpr int kSumThreads = 256;

// Adds up the parts of dw[k,c,r,s], then assigns or adds the total. Each block has one k and
// `width` channels, with all taps. With few elements several threads share one element: each thread
// adds some of the parts in order, then one thread adds their results. Shared memory transposes
// [tap][c] to [c][tap].
template <class Out>
__global__ void sum_weights_kernel(const float* parts, int splits, std::int64_t count, int channels,
                                   int real_channels, int kernel, int width, bool accumulate,
                                   Out* dw) {
  __shared__ float4 sums[kSumFours];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int first_c = static_cast<int>(blockIdx.x) * width;
  const int here = min(width, channels - first_c);  // a multiple of 8
  const std::int64_t k = blockIdx.y;
  const int in_tap = here / 4;
  const int fours = kernel * in_tap;
  const int lanes = fours >= kSumThreads ? 1 : kSumThreads / fours;
  for (int i = thread; i < fours * lanes; i += kSumThreads) {
    const int lane = i / fours;
    const int four = i - lane * fours;
    const int tap = four / in_tap;
    const float* const from =
        parts + (k * kernel + tap) * channels + first_c + (four - tap * in_tap) * 4;
    float4 sum = make_float4(0, 0, 0, 0);
    const int last = splits * (lane + 1) / lanes;
#pragma unroll 4
    for (int part = splits * lane / lanes; part < last; ++part) {
      const float4 more = *reinterpret_cast<const float4*>(from + part * count);
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    sums[i] = sum;
  }
  __syncthreads();
  const int real = min(here, real_channels - first_c);
  for (int i = thread; i < real * kernel; i += kSumThreads) {
    const int c = i / kernel;
    const int tap = i - c * kernel;
    float total = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      total += reinterpret_cast<const float*>(sums + lane * fours + tap * in_tap)[c];
    }
    Out* const to = dw + (k * real_channels + first_c) * kernel + i;
    *to = from_float<Out>(accumulate ? to_float(*to) + total : total);
  }
}

}  // namespace convscope::implicit_gemm_tma
