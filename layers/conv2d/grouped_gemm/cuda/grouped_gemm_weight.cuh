// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_weight.cuh: backward_weight of grouped_gemm. The kernel reduces over pixels. A
// product has 16 rows: the channels of two slots, each an octet (8 channels) of x at one tap.
//
// Formula    dw[k,c,r,s] = sum over n, p, q of dy[n,k,p,q] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], k and c of one group
// Textbook   for each tile of positions of this part:      # a warp; 80 x 8 accumulators
//              for 16 positions (f32: 8):
//                B [16 x 8] = an octet of dy
//                for 5 pairs of slots:                     # a slot is a tap and an octet of x
//                  A [16 x 16] = the channels of both slots, transposed
//                  accumulators[pair] += A B
// Method     A block has a slice of the channels and every `parts`-th tile. It copies the patch of
//            x and the tile of dy into shared memory while it multiplies those of the previous
//            tile. Each warp takes some octets of dy and a chunk of the pairs of slots. When there
//            are few octets and pairs, several warps also split the positions. Each block stores
//            its accumulators as one part. A second launch adds the parts in a fixed order, writes
//            each sum to its element of dw and drops the sums that mix two groups. ldmatrix
//            transposes fp16/bf16; in f32 each lane reads single words.
// Shapes     x [N,H,W,Cp], dy [N,P,Q,Kp] in T; part [bundle, octet of dy][pair][lane][4] f32
// Cost       bytes = x, dy, dw and the overlaps of patches, plus writing and reading the parts
// Numerics   the tensor cores accumulate in f32, in one chain for each part; tf32 rounds x and dy
//            to nearest
// Choices    A warp takes up to 5 pairs: the nine taps of one octet make 5 pairs, those of a bundle
//            of 32 channels make 18. With four octets of dy, a lane has 80 accumulators
// Read next  grouped_gemm_cuda.cu
#pragma once

#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_patch.cuh"

namespace convscope::grouped_gemm {

// Issues the copies of a tile of dy, position by position.
template <class T>
__device__ inline void copy_dy(const GroupedWeightTiling& plan, const TilePlace& tile, int first,
                               const Lanes& lanes, const uint4* dy, SharedAddress to) {
  const GroupedGemmParams& z = plan.sizes;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int stored = z.out_octets * kOctetPieces<T>;
  const int piece = first + lanes.piece;
  for (int line = static_cast<int>(threadIdx.x) / 32; line < z.tile_images * z.tile_h;
       line += warps) {
    const int image = z.by_tile_h.divide(line);
    const int n = tile.image + image, h = tile.h + line - image * z.tile_h;
    const int inside_w = n < z.images && h < z.out_h && piece < stored ? z.out_w - tile.w : 0;
    const uint4* const from =
        dy + ((static_cast<std::int64_t>(n) * z.out_h + h) * z.out_w + tile.w) * stored + piece;
    const SharedAddress at = to + (line * z.tile_w * plan.dy_pitch + lanes.piece * 16);
    lanes.walk(z.tile_w, 1, 0, [&](int column, int) {
      async_copy_piece(at + column * plan.dy_pitch, from + column * stored, column < inside_w);
    });
  }
}
template <class T>
__device__ inline void round_dy(const GroupedWeightTiling& plan, const Lanes& lanes,
                                unsigned char* dy) {
  if constexpr (sizeof(T) == 4) {
    const GroupedGemmParams& z = plan.sizes;
    const int warps = static_cast<int>(blockDim.x) / 32;
    for (int line = static_cast<int>(threadIdx.x) / 32; line < z.tile_images * z.tile_h;
         line += warps) {
      unsigned char* const at = dy + line * z.tile_w * plan.dy_pitch + lanes.piece * 16;
      lanes.walk(z.tile_w, 1, 0,
                 [&](int column, int) { round_piece(at + column * plan.dy_pitch); });
    }
  }
}

// Adds a warp's share of a tile to its accumulators. A share is every `shares`-th run of 32
// positions, from run `share` on. rows[p] is the byte offset of position p in the patch.
template <class T, int kOctets>
__device__ inline void add_tile(const GroupedWeightTiling& plan, unsigned char* x,
                                unsigned char* dy, const int* rows,
                                const int (&offset)[kChunkSteps][2], int share,
                                float (&sums)[kChunkSteps][kOctets][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int positions = plan.sizes.padded_positions();
  if constexpr (sizeof(T) == 4) {
    const auto word = [](const unsigned char* at) { return *reinterpret_cast<const float*>(at); };
    x += lane / 4 * 4;
    dy += lane % 4 * plan.dy_pitch + lane / 4 * 4;
    for (int p = share * kRows; p < positions;
         p += p % kRows == kRows - 8 ? 8 + (plan.shares - 1) * kRows : 8) {
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
    const SharedAddress patch = shared_address(x);
    const SharedAddress columns = shared_address(dy + lane * plan.dy_pitch);
    const int own_row = lane / 16 * 8 + lane % 8;
    for (int p = share * kRows; p < positions; p += plan.shares * kRows) {
      unsigned b[kOctets][4];
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        load_matrices<true>(b[o], columns + (p * plan.dy_pitch + o * kOctetBytes<T>));
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const SharedAddress from = patch + rows[p + half * 16 + own_row];
        unsigned a[kChunkSteps][4];  // all loads are issued before the first product
#pragma unroll
        for (int k = 0; k < kChunkSteps; ++k) load_matrices<true>(a[k], from + offset[k][0]);
#pragma unroll
        for (int k = 0; k < kChunkSteps; ++k) {
#pragma unroll
          for (int o = 0; o < kOctets; ++o) {
            mma<T>(sums[k][o], a[k], b[o][half * 2], b[o][half * 2 + 1]);
          }
        }
      }
    }
  }
}

// Kernel: blockIdx.x selects a part of the tiles and a slice of the channels. A block has plan.jobs
// x plan.shares warps.
template <class T, int kOctets>
__global__ void __launch_bounds__(kMaxWarps * 32, 1)
    weight_kernel(const __grid_constant__ GroupedWeightTiling plan, const uint4* x, const uint4* dy,
                  float4* part) {
  let_next_kernel_start();
  const GroupedGemmParams& z = plan.sizes;
  const int part_index = z.by_slices.divide(static_cast<int>(blockIdx.x));
  const int slice = static_cast<int>(blockIdx.x) - part_index * z.slices;
  const int pieces = z.slice_in() * kOctetPieces<T>;
  const int first_x = slice * pieces;
  const int first_dy = slice * plan.dy_pieces;

  auto* const stages = dynamic_shared<unsigned char>();
  int* const rows = reinterpret_cast<int*>(stages + 2 * plan.stage_bytes);
  for (int i = static_cast<int>(threadIdx.x); i < z.padded_positions();
       i += static_cast<int>(blockDim.x)) {
    rows[i] = patch_offset(z, position_of(z, min(i, z.positions - 1)));
  }
  // Positions that only fill up the last run of 32 get dy = 0.
  const int filled = z.positions * plan.dy_pitch / 16;
  for (int i = filled + static_cast<int>(threadIdx.x);
       i < z.padded_positions() * plan.dy_pitch / 16; i += static_cast<int>(blockDim.x)) {
    for (int stage = 0; stage < 2; ++stage) {
      *reinterpret_cast<uint4*>(stages + stage * plan.stage_bytes + z.patch_bytes() + i * 16) =
          make_uint4(0, 0, 0, 0);
    }
  }
  const Lanes x_lanes(pieces), dy_lanes(plan.dy_pieces);
  const auto copy_tile = [&](int tile_index, int stage) {
    const TilePlace tile = place_of_tile(z, tile_index);
    const SharedAddress to = shared_address(stages + stage * plan.stage_bytes);
    copy_patch<T>(z, tile, first_x, x_lanes, x, to);
    copy_dy<T>(plan, tile, first_dy, dy_lanes, dy, to + z.patch_bytes());
  };

  // This warp multiplies kOctets octets of dy by one chunk of slot pairs (grouped_gemm_plan.h).
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int share = warp / plan.jobs, job = warp - share * plan.jobs;
  const int octet = job / plan.chunks * kOctets;  // octet within the slice
  const int chunk = job % plan.chunks;
  const int bundle = octet / z.bundle_out;
  // Offsets of the slots of each pair. In f32 a lane reads both slots. In fp16/bf16 a lane provides
  // the address of a row of one slot, and both elements hold that slot's offset.
  int offset[kChunkSteps][2];
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
    round_patch<T>(z, x_lanes, stages + stage * plan.stage_bytes);
    round_dy<T>(plan, dy_lanes, stages + stage * plan.stage_bytes + z.patch_bytes());
    __syncthreads();
    unsigned char* const at = stages + stage * plan.stage_bytes;
    add_tile<T, kOctets>(plan, at, at + z.patch_bytes() + octet * kOctetBytes<T>, rows, offset,
                         share, sums);
    __syncthreads();  // the stage may be overwritten now
  }

  // The shares of a job are added in a fixed order, through the memory of the stages.
  auto* const others = reinterpret_cast<float4*>(stages) + lane;
  if (share > 0) {
#pragma unroll
    for (int k = 0; k < kChunkSteps; ++k) {
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        const float(&d)[4] = sums[k][o];
        others[(((share - 1) * plan.jobs + job) * kChunkSteps * kOctets + k * kOctets + o) * 32] =
            make_float4(d[0], d[1], d[2], d[3]);
      }
    }
  }
  if (plan.shares > 1) __syncthreads();
  if (share > 0) return;
  for (int other = 0; other < plan.shares - 1; ++other) {
#pragma unroll
    for (int k = 0; k < kChunkSteps; ++k) {
#pragma unroll
      for (int o = 0; o < kOctets; ++o) {
        const float4 v =
            others[((other * plan.jobs + job) * kChunkSteps * kOctets + k * kOctets + o) * 32];
        float(&d)[4] = sums[k][o];
        d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
      }
    }
  }

  const int global_octet = slice * z.slice_out() + octet;
  if (global_octet >= z.bundles * z.bundle_out) return;
#pragma unroll
  for (int o = 0; o < kOctets; ++o) {
    float4* const to =
        part +
        (static_cast<std::int64_t>(part_index) * z.bundles * z.bundle_out + global_octet + o) *
            plan.pairs * 32 +
        lane;
#pragma unroll
    for (int k = 0; k < kChunkSteps; ++k) {
      const int pair = chunk * kChunkSteps + k;
      if (pair >= plan.pairs) break;
      const float(&d)[4] = sums[k][o];
      to[pair * 32] = make_float4(d[0], d[1], d[2], d[3]);
    }
  }
}

// Describes the array of parts, and the mapping from each sum to its element of dw.
struct WeightSums {
  int groups, in_channels;  // groups, and input channels of one group
  int bundled, bundle_in, taps, parts;
  int quads, rows_log2;  // see sum_parts_kernel
  bool accumulate;
  FastDivisor by_in_channels, by_out_channels, by_bundle_in, by_bundle_out, by_pairs;
};

// The location in dw of a row of the accumulators (channel lane / 4 of the octet of a slot) or of a
// column (a channel of an octet of dy). `group` is -1 if dw has no such element.
struct PlaceInWeights {
  int group;  // group within the bundle
  std::int64_t at;
};
__device__ inline PlaceInWeights place_of_x(const WeightSums& z, int slot, int lane) {
  const int tap = z.by_bundle_in.divide(slot);
  const int in = (slot - tap * z.bundle_in) * kOctet + lane / 4;
  const int group = z.by_in_channels.divide(in);
  return {tap < z.taps ? group : -1, (in - group * z.in_channels) * z.taps + tap};
}
__device__ inline PlaceInWeights place_of_dy(const WeightSums& z, int octet, int channel) {
  const int bundle = z.by_bundle_out.divide(octet);
  const int out = (octet - bundle * z.by_bundle_out.d) * kOctet + channel;
  const int group = z.by_out_channels.divide(out);
  const int global_group = bundle * z.bundled + group;
  const std::int64_t k =
      std::int64_t{global_group} * z.by_out_channels.d + out - group * z.by_out_channels.d;
  return {global_group < z.groups ? group : -1, k * z.in_channels * z.taps};
}
__device__ inline void put(const WeightSums& z, const PlaceInWeights& x, const PlaceInWeights& dy,
                           float sum, float* dw) {
  if (x.group != dy.group || x.group < 0) return;
  float& to = dw[dy.at + x.at];
  to = z.accumulate ? to + sum : sum;
}

inline constexpr int kSumQuads = 256, kMaxSumRows = 8;  // threads of a block; most threads that
                                                         // share the parts of a quad

// Kernel: adds the parts of each quad, which is four accumulators of dw. A block takes 256 / rows
// quads, a multiple of 32. Each quad has `rows` threads, and each of these adds every `rows`-th
// part.
__global__ void __launch_bounds__(kSumQuads)
    sum_parts_kernel(const __grid_constant__ WeightSums z, const float4* part, float* dw) {
  __shared__ float4 shares[kSumQuads];
  const int columns = kSumQuads >> z.rows_log2;
  const int row = static_cast<int>(threadIdx.x) / columns;
  const int column = static_cast<int>(threadIdx.x) - row * columns;
  const int quad = static_cast<int>(blockIdx.x) * columns + column;
  let_next_kernel_start();
  wait_for_previous_kernel();
  float4 sum = make_float4(0, 0, 0, 0);
  if (quad < z.quads) {
#pragma unroll 8
    for (int i = row; i < z.parts; i += 1 << z.rows_log2) {
      const float4 v = part[static_cast<std::int64_t>(i) * z.quads + quad];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
  }
  shares[threadIdx.x] = sum;
  __syncthreads();
  if (quad >= z.quads) return;
  const int lane = quad % 32;
  const int octet = z.by_pairs.divide(quad / 32);
  const int pair = quad / 32 - octet * z.by_pairs.d;
  // The four sums of a quad are divided among its rows.
  for (int e = row; e < 4; e += 1 << z.rows_log2) {
    float total = 0;
    for (int i = 0; i < 1 << z.rows_log2; ++i) {
      total += reinterpret_cast<const float*>(&shares[i * columns + column])[e];
    }
    put(z, place_of_x(z, pair * 2 + e / 2, lane), place_of_dy(z, octet, lane % 4 * 2 + e % 2),
        total, dw);
  }
}

}  // namespace convscope::grouped_gemm
