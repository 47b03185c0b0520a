// SPDX-License-Identifier: Apache-2.0
// cluster_gemm_kernel.cuh: the kernel of cluster_gemm, forward and backward_data. The blocks of a
// cluster split the input channels of a tile and add their results through shared memory.
//
// Formula    y[n,k,p,q] = relu(b[k] + residual + sum over c, r, s of w[k,c,r,s] x[n, c,
//            p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w])
// Textbook   for each tile of positions and columns:              # a cluster
//              for each chunk of the input channels:              # a block of it
//                patch = the pixels that the tile reads; weights = all taps of the chunk
//                for each tap, for 16 channels (f32: 8):          # a warp
//                  sums [16 x 16] += patch [16 x 16] weights [16 x 16]
//              y = the sums of all blocks, in their order
// Method     A block copies its patch and its weights once. It reads w as f32 [K,C,R,S] and rounds
//            it to [tap][column][channel], so no other launch is needed. ldmatrix reads rows of 16
//            bytes from any aligned address, so all taps use the same patch. When a block has fewer
//            units than warps, several warps (ways) split the K dimension of a unit. Results go to
//            shared memory [position][column]. After a barrier of the cluster, each block adds the
//            results of all blocks for some positions and stores these positions. backward_data
//            exchanges x and y; with a stride, its phases (shared/cuda/gather_lines.h) are separate
//            tiles.
// Shapes     x [N,H,W,Cp], y [N,P,Q,Kp] in T (Cp, Kp multiples of 8), w [K,C,R,S], b [K] f32
// Cost       bytes of a block = patch + weights in f32. The images of a layer are read once for
//            each tile of columns, weights once for each tile of positions, mostly from L2
// Numerics   operands rounded to T (f32: to tf32), to nearest; accumulated in f32 by the tensor
//            cores, one chain for each way; ways and blocks are added in a fixed order
// Read next  framework/cuda/cluster.cuh; cluster_gemm_cuda.cu
#pragma once

#include "framework/cuda/cluster.cuh"
#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/tensor_cores/warp_mma.cuh"
#include "layers/conv2d/cluster_gemm/cuda/cluster_gemm_plan.h"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::cluster_gemm {

inline constexpr int kBlockThreads = kWarps * 32;
// How many loads a thread issues before it stores the first values: loads of four weights in
// bring_columns(), loads of twice four weights in bring_depths().
inline constexpr int kColumnsAhead = 4, kDepthsAhead = 2;

template <class T>
struct Finish {
  const float* bias;
  const T* residual;
  bool relu;
};

// The position of a block: its tile, phase and first input channel.
struct Place {
  int rank, phase;
  int image, h, w;      // first image and position of the tile
  int column, channel;  // first output column, first input channel
};
__device__ inline Place place_of_block(const ClusterGemmParams& z) {
  Place at{};
  at.rank = static_cast<int>(blockIdx.x);
  at.channel = at.rank * z.chunk;
  const int column_tile = z.by_phases.divide(static_cast<int>(blockIdx.y));
  at.phase = static_cast<int>(blockIdx.y) - column_tile * z.by_phases.d;
  at.column = column_tile * z.columns;
  const int row = z.by_tiles_w.divide(static_cast<int>(blockIdx.z));
  const int image = z.by_tiles_h.divide(row);
  at.image = image * z.tile_images;
  at.h = (row - image * z.by_tiles_h.d) * z.tile_h;
  at.w = (static_cast<int>(blockIdx.z) - row * z.by_tiles_w.d) * z.tile_w;
  return at;
}

// Calls visit(inside, offset in the image, offset in the patch) for the 16-byte segments that this
// thread copies. The thread copies the same segment of every pixel in its loop over pixels.
template <class Visit>
__device__ inline void visit_patch(const ClusterGemmParams& z, const Place& at, int pieces_of_octet,
                                   const Visit& visit) {
  const int first = z.by_pieces.divide(static_cast<int>(threadIdx.x));
  const int piece = static_cast<int>(threadIdx.x) - first * z.pieces;
  const int side_by_side = z.by_pieces.divide(kBlockThreads);
  if (first >= side_by_side) return;
  const int stored = z.in_octets * pieces_of_octet;
  const int pixel_piece = at.channel * pieces_of_octet / kOctet + piece;
  const int top = at.h * z.step_h + z.low_h, left = at.w * z.step_w + z.low_w;
  const int pixels = z.patch_pixels();
  const auto high = static_cast<unsigned>(pixel_piece < stored ? z.in_h : 0);
  const auto wide = static_cast<unsigned>(z.in_w);
  int place = first * z.pitch + piece * 16;
#pragma unroll 1
  for (int pixel = first; pixel < pixels; pixel += side_by_side) {
    const int line = z.by_patch_w.divide(pixel);
    const int patch_image = z.tile_images == 1 ? 0 : z.by_patch_h.divide(line);
    const int n = at.image + patch_image;
    const int h = top + line - patch_image * z.patch_h, w = left + pixel - line * z.patch_w;
    const bool inside =
        static_cast<unsigned>(h) < high && static_cast<unsigned>(w) < wide && n < z.images;
    visit(inside, static_cast<std::int64_t>((n * z.in_h + h) * z.in_w + w) * stored + pixel_piece,
          place);
    place += side_by_side * z.pitch;
  }
}

// Loads the four floats at run[at]; floats from `end` on are zeros. A run is a range of consecutive
// floats of w (cluster_gemm_plan.h). The run and its end must be 16-byte aligned.
__device__ inline float4 load_quad(const float* run, int at, int end) {
  return at < end ? __ldg(reinterpret_cast<const float4*>(run + at)) : make_float4(0, 0, 0, 0);
}
// As load_quad(), for a run with any alignment.
__device__ inline float4 load_floats(const float* run, int at, int end) {
  return make_float4(at < end ? __ldg(run + at) : 0.0f, at + 1 < end ? __ldg(run + at + 1) : 0.0f,
                     at + 2 < end ? __ldg(run + at + 2) : 0.0f,
                     at + 3 < end ? __ldg(run + at + 3) : 0.0f);
}

// Forward: converts the block's weights from f32 to T and stores them as [tap][column][channel of
// the chunk]. Each run of w is one column. `load` is load_quad or load_floats.
template <class T, int kAhead, class Load>
__device__ inline void bring_columns(const ClusterGemmParams& z, const Place& at, const float* w,
                                     unsigned char* weights, const Load& load) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  const int count = z.runs * z.run_quads;
  const int end = min(z.chunk, z.in_channels - at.channel) * z.kernel_taps;
  const int columns = z.out_channels - at.column;
  const float* const chunk = w + static_cast<std::int64_t>(at.column) * z.run_apart +
                             static_cast<std::int64_t>(at.channel) * z.kernel_taps;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kBlockThreads * kAhead) {
    float4 v[kAhead];
    int run[kAhead], quad[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * kBlockThreads;
      if (i >= count) break;
      run[j] = z.by_run_quads.divide(i);
      quad[j] = (i - run[j] * z.run_quads) * 4;
      v[j] = load(chunk + static_cast<std::int64_t>(run[j]) * z.run_apart, quad[j],
                  run[j] < columns ? end : 0);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kBlockThreads >= count) break;
      unsigned char* to = weights + run[j] * z.weight_pitch;
      if (z.kernel_taps == 1) {
        if constexpr (kBytes == 4) {
          *reinterpret_cast<float4*>(to + quad[j] * 4) =
              make_float4(to_tf32(v[j].x), to_tf32(v[j].y), to_tf32(v[j].z), to_tf32(v[j].w));
        } else {
          *reinterpret_cast<uint2*>(to + quad[j] * 2) =
              make_uint2(pair_from_floats<T>(v[j].x, v[j].y), pair_from_floats<T>(v[j].z, v[j].w));
        }
        continue;
      }
      const int channel = z.by_kernel_taps.divide(quad[j]);
      int tap = quad[j] - channel * z.kernel_taps;
      to += tap * z.tap_bytes() + channel * kBytes;
      const float numbers[4] = {v[j].x, v[j].y, v[j].z, v[j].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (kBytes == 4) {
          *reinterpret_cast<float*>(to) = to_tf32(numbers[e]);
        } else {
          *reinterpret_cast<T*>(to) = from_float<T>(numbers[e]);
        }
        to += z.tap_bytes();
        if (++tap == z.kernel_taps) tap = 0, to += kBytes - z.kernel_taps * z.tap_bytes();
      }
    }
  }
}

// backward_data: does the same as bring_columns(). Here a run of w is one channel of dy, and two
// runs are read at a time to store pairs. plane_at[tap] is the byte offset of a tap of the kernel,
// or -1 when the tap is not in this phase.
template <class T, int kAhead, class Load>
__device__ inline void bring_depths(const ClusterGemmParams& z, const Place& at, const float* w,
                                    const int* plane_at, unsigned char* weights, const Load& load) {
  const int count = z.runs / 2 * z.run_quads;
  const int end = min(z.columns, z.out_channels - at.column) * z.kernel_taps;
  const int depths = z.in_channels - at.channel;
  const float* const tile = w + static_cast<std::int64_t>(at.channel) * z.run_apart +
                            static_cast<std::int64_t>(at.column) * z.kernel_taps;
  for (int first = static_cast<int>(threadIdx.x); first < count; first += kBlockThreads * kAhead) {
    float4 v[kAhead][2];
    int pair[kAhead], quad[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int i = first + j * kBlockThreads;
      if (i >= count) break;
      pair[j] = z.by_run_quads.divide(i);
      quad[j] = (i - pair[j] * z.run_quads) * 4;
      const float* const run = tile + static_cast<std::int64_t>(2 * pair[j]) * z.run_apart;
      v[j][0] = load(run, quad[j], 2 * pair[j] < depths ? end : 0);
      v[j][1] = load(run + z.run_apart, quad[j], 2 * pair[j] + 1 < depths ? end : 0);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (first + j * kBlockThreads >= count) break;
      const int column = z.by_kernel_taps.divide(quad[j]);
      int tap = quad[j] - column * z.kernel_taps;
      const float low[4] = {v[j][0].x, v[j][0].y, v[j][0].z, v[j][0].w};
      const float high[4] = {v[j][1].x, v[j][1].y, v[j][1].z, v[j][1].w};
      unsigned char* to =
          weights + pair[j] * 2 * static_cast<int>(sizeof(T)) + column * z.weight_pitch;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int plane = plane_at[tap];
        if (plane >= 0) {
          if constexpr (sizeof(T) == 4) {
            *reinterpret_cast<float2*>(to + plane) = make_float2(to_tf32(low[e]), to_tf32(high[e]));
          } else {
            *reinterpret_cast<unsigned*>(to + plane) = pair_from_floats<T>(low[e], high[e]);
          }
        }
        if (++tap == z.kernel_taps) tap = 0, to += z.weight_pitch;
      }
    }
  }
}

// Adds bias and residual to four columns of a position, applies the ReLU, and stores them.
template <class T>
__device__ inline void finish_quad(const ClusterGemmParams& z, const Finish<T>& end, int pixel,
                                   int column, float (&v)[4], T* y) {
  const std::int64_t at = static_cast<std::int64_t>(pixel) * (z.out_octets * kOctet) + column;
  if (end.bias != nullptr) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + e < z.out_channels) v[e] += end.bias[column + e];
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (end.residual != nullptr) v[e] += to_float(end.residual[at + e]);
    v[e] = finished(v[e], end.relu);
  }
  if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(y + at) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    *reinterpret_cast<uint2*>(y + at) =
        make_uint2(pair_from_floats<T>(v[0], v[1]), pair_from_floats<T>(v[2], v[3]));
  }
}

struct Sums {
  const float* at;  // [position][column]
  const int* to;    // pixel of y for a position; -1: none
  int column, rank;
};

// Adds the results of kBlocks blocks in order. A thread has eight loads of four floats in flight,
// because loads from other blocks take some hundred cycles.
template <class T, int kBlocks>
__device__ inline void add_blocks(const ClusterGemmParams& z, const Sums& tile,
                                  const Finish<T>& end, T* y) {
  constexpr int kItems = kMaxBlocks / kBlocks;
  constexpr int kThreads = kBlocks * kBlockThreads;
  const int quads = z.columns / 4, count = z.rows * quads;
#pragma unroll 1
  for (int first = tile.rank * kBlockThreads + static_cast<int>(threadIdx.x); first < count;
       first += kItems * kThreads) {
    float4 part[kItems][kBlocks];
    int pixel[kItems], column[kItems];
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int i = first + j * kThreads;
      const int row = z.by_column_quads.divide(i);
      column[j] = (i - row * quads) * 4;
      pixel[j] = i < count ? tile.to[row] : -1;
      if (tile.column + column[j] >= z.out_octets * kOctet) pixel[j] = -1;
      if (pixel[j] < 0) continue;
      const auto* const mine =
          reinterpret_cast<const float4*>(tile.at + row * z.sum_pitch() + column[j]);
#pragma unroll
      for (int r = 0; r < kBlocks; ++r) {
        if constexpr (kBlocks == 1) {
          part[j][r] = *mine;
        } else {
          part[j][r] = load_from_block(mine, static_cast<unsigned>(r));
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      if (pixel[j] < 0) continue;
      float v[4] = {part[j][0].x, part[j][0].y, part[j][0].z, part[j][0].w};
#pragma unroll
      for (int r = 1; r < kBlocks; ++r) {
        v[0] += part[j][r].x, v[1] += part[j][r].y, v[2] += part[j][r].z, v[3] += part[j][r].w;
      }
      finish_quad(z, end, pixel[j], tile.column + column[j], v, y);
    }
  }
}

// Computes a unit: 16 kRowTiles positions and 16 kColumnTiles columns.
template <class T, int kRowTiles, int kColumnTiles>
__global__ void __launch_bounds__(kBlockThreads, kRowTiles* kColumnTiles == 4 ? 1 : 2)
    cluster_kernel(const __grid_constant__ ClusterGemmParams z, const uint4* x, const float* w,
                   bool aligned, Finish<T> end, T* y) {
  constexpr int kPiecesOfOctet = kOctet * static_cast<int>(sizeof(T)) / 16;
  let_next_kernel_start();
  const Place at = place_of_block(z);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int taps = z.taps(at.phase), steps = taps * z.chunk_steps();

  auto* const patch = dynamic_shared<unsigned char>();
  unsigned char* const weights = patch + z.patch_bytes();
  auto* const sums = reinterpret_cast<float*>(weights + z.most_taps * z.tap_bytes());
  int* const from = reinterpret_cast<int*>(sums + z.rows * z.sum_pitch());  // in the patch
  int* const to = from + z.rows;                               // pixel of y of a position; -1: none
  auto* const step_at = reinterpret_cast<int2*>(to + z.rows);  // offset for a position, for a
                                                               // column
  int* const plane_at = reinterpret_cast<int*>(step_at + z.most_taps * z.chunk_steps());

  if (!z.runs_are_columns) {
#pragma unroll 1
    for (int i = thread; i < z.kernel_taps; i += kBlockThreads) plane_at[i] = -1;
  }
#pragma unroll 1
  for (int i = thread; i < steps; i += kBlockThreads) {
    const int tap = z.by_chunk_steps.divide(i), step = i - tap * z.chunk_steps();
    step_at[i] = make_int2(z.tap_at[z.tap_begin[at.phase] + tap] * z.pitch + step * kStepBytes,
                           tap * z.tap_bytes() + step * kStepBytes);
  }
  const int phase_h = at.phase / z.phases_w, phase_w = at.phase - phase_h * z.phases_w;
#pragma unroll 1
  for (int i = thread; i < z.rows; i += kBlockThreads) {
    const int position = min(i, z.positions - 1);
    const int row = z.by_tile_w.divide(position);
    const int tile_image = z.by_tile_h.divide(row);
    const int tile_row = row - tile_image * z.tile_h, tile_column = position - row * z.tile_w;
    from[i] =
        ((tile_image * z.patch_h + tile_row * z.step_h) * z.patch_w + tile_column * z.step_w) *
        z.pitch;
    const int n = at.image + tile_image, h = (at.h + tile_row) * z.out_step_h + phase_h,
              ww = (at.w + tile_column) * z.out_step_w + phase_w;
    const bool inside = i < z.positions && n < z.images && h < z.out_h && ww < z.out_w;
    to[i] = inside ? (n * z.out_h + h) * z.out_w + ww : -1;
  }
  __syncthreads();
  if (!z.runs_are_columns) {
#pragma unroll 1
    for (int i = thread; i < taps; i += kBlockThreads) {
      plane_at[z.tap_kernel[z.tap_begin[at.phase] + i]] = i * z.tap_bytes();
    }
    __syncthreads();
  }
  wait_for_previous_kernel();  // the tables are made before this, while that kernel ends
  const SharedAddress in_patch = shared_address(patch);
  visit_patch(z, at, kPiecesOfOctet, [&](bool inside, std::int64_t from_image, int place) {
    async_copy_piece(in_patch + place, x + from_image, inside);
  });
  async_copy_commit();
  if (z.runs_are_columns) {
    aligned ? bring_columns<T, kColumnsAhead>(z, at, w, weights, load_quad)
            : bring_columns<T, 1>(z, at, w, weights, load_floats);
  } else {
    aligned ? bring_depths<T, kDepthsAhead>(z, at, w, plane_at, weights, load_quad)
            : bring_depths<T, 1>(z, at, w, plane_at, weights, load_floats);
  }
  async_copy_wait<0>();
  if constexpr (sizeof(T) == 4) {  // a thread converts the data that it has loaded
    visit_patch(z, at, kPiecesOfOctet, [&](bool, std::int64_t, int place) {
      auto* const piece = reinterpret_cast<float4*>(patch + place);
      const float4 v = *piece;
      *piece = make_float4(to_tf32(v.x), to_tf32(v.y), to_tf32(v.z), to_tf32(v.w));
    });
  }
  __syncthreads();

  const int ways = z.ways(), slot = warp >> z.ways_log2, way = warp - slot * ways;
  const int begin = (steps * way) >> z.ways_log2, finish = (steps * (way + 1)) >> z.ways_log2;
  const int unit_columns = z.by_unit_columns.d;
  const int units = z.rows / (kTileRows * kRowTiles) * unit_columns;
  for (int first = 0; first < units; first += kWarps >> z.ways_log2) {
    const int unit = first + slot;
    const bool is_there = unit < units;
    const int unit_row = z.by_unit_columns.divide(unit);
    const int row = unit_row * kTileRows * kRowTiles;
    const int column = (unit - unit_row * unit_columns) * kTileColumns * kColumnTiles;
    float sum[kRowTiles][2 * kColumnTiles][4] = {};
    if (is_there) {
      SharedAddress a_row[kRowTiles], b_row[kColumnTiles];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        a_row[i] = shared_address(patch) + (from[row + i * kTileRows + lane % 16] + lane / 16 * 16);
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        b_row[j] = shared_address(weights) +
                   ((column + j * kTileColumns + lane % 8 + lane / 16 * 8) * z.weight_pitch +
                    lane / 8 % 2 * 16);
      }
#pragma unroll 4
      for (int step = begin; step < finish; ++step) {
        const int2 further = step_at[step];
        unsigned a[kRowTiles][4], b[kColumnTiles][4];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) load_matrices<false>(a[i], a_row[i] + further.x);
#pragma unroll
        for (int j = 0; j < kColumnTiles; ++j) load_matrices<false>(b[j], b_row[j] + further.y);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
          for (int j = 0; j < kColumnTiles; ++j) {
            mma_step<T>(sum[i][2 * j], a[i], b[j][0], b[j][1]);
            mma_step<T>(sum[i][2 * j + 1], a[i], b[j][2], b[j][3]);
          }
        }
      }
    }
    // Lane l has rows l/4 and l/4 + 8, columns 2 (l%4) + {0, 1}. The warps that share a unit (ways)
    // add their results one after another, in a fixed order.
    for (int turn = 0; turn < ways; ++turn) {
      if (is_there && turn == way) {
#pragma unroll
        for (int i = 0; i < 2 * kRowTiles; ++i) {
#pragma unroll
          for (int j = 0; j < 2 * kColumnTiles; ++j) {
            auto* const pair = reinterpret_cast<float2*>(
                sums + (row + i * 8 + lane / 4) * z.sum_pitch() + column + j * 8 + lane % 4 * 2);
            float2 v = make_float2(sum[i / 2][j][i % 2 * 2], sum[i / 2][j][i % 2 * 2 + 1]);
            if (turn > 0) {
              const float2 before = *pair;
              v = make_float2(before.x + v.x, before.y + v.y);
            }
            *pair = v;
          }
        }
      }
      if (ways > 1) __syncthreads();
    }
  }
  if (z.blocks > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }

  const Sums tile{sums, to, at.column, at.rank};
  switch (z.blocks) {
    case 1:
      add_blocks<T, 1>(z, tile, end, y);
      break;
    case 2:
      add_blocks<T, 2>(z, tile, end, y);
      break;
    case 4:
      add_blocks<T, 4>(z, tile, end, y);
      break;
    default:
      add_blocks<T, 8>(z, tile, end, y);
  }
  if (z.blocks > 1) cluster_leave();  // a block waits until others have read its results
}

}  // namespace convscope::cluster_gemm
