// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_weight.cuh: backward_weight of grouped_gemm: pixels are the depth, and the taps of
// an octet of x are the rows of a product.
//
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], k and c of one group
// Textbook   for each tile of positions of this part:      # a warp; sums of 80 x 8 in registers
//              for 16 positions (f32: 8):
//                B [16 x 8] = an octet of dy
//                for 5 pairs of slots:                     # a slot is a tap and an octet of x
//                  A [16 x 16] = the channels of both slots, turned over
//                  sums[pair] += A B
// Plan       A block has a slice of the channels and every `parts`-th tile. It copies the patch of x
//            and the tile of dy into shared memory while it multiplies those of the tile before. Its
//            warps share out (octets of dy, pairs of slots). Each block leaves its sums as a part;
//            a second launch adds the parts in their order and leaves out what stands between two
//            groups.
//            Halves are turned over by ldmatrix; of f32 each lane reads single words.
// Shapes     x [N,H,W,Cp], dy [N,P,Q,Kp] in T; part [bundle, octet of dy][pair][lane][4] f32
// Cost       bytes = x, dy and dw, the seams of the patches again, and the parts written and read
// Numerics   sums in f32 by the tensor cores, one chain for each part; tf32 rounds x and dy to the
//            nearest
// Choices    5 pairs of a warp: nine taps of an octet are 5 pairs, those of a bundle of 32 channels
//            18; with four octets of dy that is 80 sums of a lane
// Read next  grouped_gemm_cuda.cu
#pragma once

#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_patch.cuh"

namespace convscope::grouped_gemm {

// Calls copy(piece in dy or -1, bytes in the tile) for the pieces of this thread.
template <class T, class Copy>
__device__ inline void visit_dy(const WeightPlan& plan, const TilePlace& tile, int first,
                                const Copy& copy) {
  const Sizes& z = plan.sizes;
  const int pieces = plan.by_dy_pieces.d;
  const int stored = z.out_octets * kOctetPieces<T>;
  const int count = z.padded_positions() * pieces;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    const int position = plan.by_dy_pieces.divide(i);
    const int piece = i - position * pieces;
    const Position at = position_of(z, position);
    const int n = tile.image + at.image, h = tile.h + at.h, w = tile.w + at.w;
    const bool inside = position < z.positions && n < z.images && h < z.out_h && w < z.out_w &&
                        first + piece < stored;
    copy(inside ? ((static_cast<std::int64_t>(n) * z.out_h + h) * z.out_w + w) * stored + first +
                      piece
                : -1,
         position * plan.dy_pitch + piece * 16);
  }
}

// The sums of a warp over a tile. `rows`: where a position's patch begins.
template <class T, int kOctets>
__device__ inline void add_tile(const WeightPlan& plan, const unsigned char* x,
                                const unsigned char* dy, const int* rows,
                                const int (&offset)[kChunkSteps][2],
                                float (&sums)[kChunkSteps][kOctets][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int positions = plan.sizes.padded_positions();
  if constexpr (sizeof(T) == 4) {
    const auto word = [](const unsigned char* at) { return *reinterpret_cast<const float*>(at); };
    x += lane / 4 * 4;
    dy += lane % 4 * plan.dy_pitch + lane / 4 * 4;
#pragma unroll 2
    for (int p = 0; p < positions; p += 8) {
      const unsigned char* const near = x + rows[p + lane % 4];
      const unsigned char* const far = x + rows[p + lane % 4 + 4];
      float b[kOctets][2];
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        const unsigned char* const at = dy + p * plan.dy_pitch + o * kOctetBytes<T>;
        b[o][0] = word(at);
        b[o][1] = word(at + 4 * plan.dy_pitch);
      }
#pragma unroll
      for (int k = 0; k < kChunkSteps; ++k) {
        const float a[4] = {word(near + offset[k][0]), word(near + offset[k][1]),
                            word(far + offset[k][0]), word(far + offset[k][1])};
#pragma unroll
        for (int o = 0; o < kOctets; ++o) mma_tf32(sums[k][o], a, b[o][0], b[o][1]);
      }
    }
  } else {
    dy += lane * plan.dy_pitch;
    const int own_row = lane / 16 * 8 + lane % 8;
    for (int p = 0; p < positions; p += 32) {
      unsigned b[kOctets][4];
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        load_matrices<true>(b[o], dy + p * plan.dy_pitch + o * kOctetBytes<T>);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned char* const from = x + rows[p + half * 16 + own_row];
#pragma unroll
        for (int k = 0; k < kChunkSteps; ++k) {
          unsigned a[4];
          load_matrices<true>(a, from + offset[k][0]);
#pragma unroll
          for (int o = 0; o < kOctets; ++o) {
            mma<T>(sums[k][o], a, b[o][half * 2], b[o][half * 2 + 1]);
          }
        }
      }
    }
  }
}

// Block (x: part and slice); plan.warps warps.
template <class T, int kOctets>
__global__ void __launch_bounds__(kMostWarps * 32)
    weight_kernel(const __grid_constant__ WeightPlan plan, const uint4* x, const uint4* dy,
                  float4* part) {
  let_next_kernel_start();
  const Sizes& z = plan.sizes;
  const int part_index = z.by_slices.divide(static_cast<int>(blockIdx.x));
  const int slice = static_cast<int>(blockIdx.x) - part_index * z.slices;
  const int pieces = z.slice_in() * kOctetPieces<T>;
  const int first_x = slice * pieces;
  const int first_dy = slice * plan.by_dy_pieces.d;

  auto* const stages = dynamic_shared<unsigned char>();
  int* const rows = reinterpret_cast<int*>(stages + 2 * plan.stage_bytes);
  for (int i = static_cast<int>(threadIdx.x); i < z.padded_positions();
       i += static_cast<int>(blockDim.x)) {
    rows[i] = patch_offset(z, position_of(z, min(i, z.positions - 1)));
  }
  const auto copy_tile = [&](int tile_index, int stage) {
    const TilePlace tile = place_of_tile(z, tile_index);
    unsigned char* const to = stages + stage * plan.stage_bytes;
    copy_patch<T>(z, tile, first_x, pieces, x, to);
    visit_dy<T>(plan, tile, first_dy, [&](std::int64_t from, int at) {
      async_copy<16, false>(to + z.patch_bytes() + at, dy + (from < 0 ? 0 : from), from >= 0);
    });
  };
  const auto round_tile = [&](int tile_index, int stage) {
    if constexpr (sizeof(T) == 4) {
      const TilePlace tile = place_of_tile(z, tile_index);
      unsigned char* const to = stages + stage * plan.stage_bytes;
      round_patch<T>(z, tile, first_x, pieces, to);
      visit_dy<T>(plan, tile, first_dy, [&](std::int64_t, int at) {
        round_piece(to + z.patch_bytes() + at);
      });
    }
  };

  // What this warp adds up: octets of dy, and a chunk of the pairs of slots.
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int octet = warp / plan.chunks * kOctets;  // in the slice
  const int chunk = warp % plan.chunks;
  const int bundle = octet / z.bundle_out;
  int offset[kChunkSteps][2];  // of both slots; halves: of the slot of this lane's row, twice
#pragma unroll
  for (int k = 0; k < kChunkSteps; ++k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int slot = (chunk * kChunkSteps + k) * 2 + (sizeof(T) == 4 ? i : lane / 8 % 2);
      offset[k][i] = bundle * z.bundle_in * kOctetBytes<T> + slot_offset<T>(z, 0, slot);
    }
  }
  float sums[kChunkSteps][kOctets][4] = {};

  wait_for_previous_kernel();
  const int tiles = z.tiles();
  int stage = 0;
  if (part_index < tiles) copy_tile(part_index, 0);
  async_copy_commit();
  for (int tile = part_index; tile < tiles; tile += plan.parts, stage ^= 1) {
    if (tile + plan.parts < tiles) copy_tile(tile + plan.parts, stage ^ 1);
    async_copy_commit();
    async_copy_wait<1>();
    round_tile(tile, stage);
    __syncthreads();
    const unsigned char* const at = stages + stage * plan.stage_bytes;
    add_tile<T, kOctets>(plan, at, at + z.patch_bytes() + octet * kOctetBytes<T>, rows, offset,
                         sums);
    __syncthreads();  // the stage is copied into again
  }

  const int global_octet = slice * z.slice_out() + octet;
  if (global_octet >= z.bundles * z.bundle_out) return;
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
    float4* const to =
        part + (static_cast<std::int64_t>(part_index) * z.bundles * z.bundle_out + global_octet +
                o) * plan.pairs * 32 + lane;
#pragma unroll
    for (int k = 0; k < kChunkSteps; ++k) {
      const int pair = chunk * kChunkSteps + k;
      if (pair >= plan.pairs) break;
      const float(&d)[4] = sums[k][o];
      to[pair * 32] = make_float4(d[0], d[1], d[2], d[3]);
    }
  }
}

// What stands in dw, and how the parts' columns come to it.
struct WeightSums {
  int groups, in_channels, out_channels;  // of a group
  int bundled, bundle_in, bundle_out, pairs, taps, parts;
  std::int64_t quads;
  bool accumulate;
};

inline constexpr int kSumQuads = 32, kSumRows = 8;  // of a block: quads side by side, shares of parts

__global__ void __launch_bounds__(kSumQuads* kSumRows)
    sum_parts_kernel(const __grid_constant__ WeightSums z, const float4* part, float* dw) {
  __shared__ float4 shares[kSumRows][kSumQuads];
  const int column = static_cast<int>(threadIdx.x) % kSumQuads;
  const int row = static_cast<int>(threadIdx.x) / kSumQuads;
  const std::int64_t quad = static_cast<std::int64_t>(blockIdx.x) * kSumQuads + column;
  let_next_kernel_start();
  wait_for_previous_kernel();
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 4
  for (int i = row; i < z.parts; i += kSumRows) {
    const float4 v = part[i * z.quads + quad];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  shares[row][column] = sum;
  __syncthreads();
  if (row >= 4) return;
  // Row 0..3 of threads: one of the four sums of a quad each.
  const auto of = [&](int i) { return reinterpret_cast<const float*>(&shares[i][column])[row]; };
  float total = 0;
#pragma unroll
  for (int i = 0; i < kSumRows; ++i) total += of(i);
  const int lane = column;
  const std::int64_t above = quad / 32;
  const int pair = static_cast<int>(above % z.pairs);
  const int octet = static_cast<int>(above / z.pairs);
  const int slot = pair * 2 + row / 2;
  const int tap = slot / z.bundle_in;
  const int in = slot % z.bundle_in * kOctet + lane / 4;                             // in the bundle
  const int out = octet % z.bundle_out * kOctet + lane % 4 * 2 + row % 2;  // the same
  const int group = out / z.out_channels;
  const int of_all = octet / z.bundle_out * z.bundled + group;
  if (tap >= z.taps || in / z.in_channels != group || of_all >= z.groups) return;
  float& to =
      dw[((static_cast<std::int64_t>(of_all) * z.out_channels + out % z.out_channels) *
              z.in_channels +
          in % z.in_channels) *
             z.taps +
         tap];
  to = z.accumulate ? to + total : total;
}

}  // namespace convscope::grouped_gemm
