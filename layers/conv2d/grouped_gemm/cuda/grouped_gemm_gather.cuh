// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_gather.cuh: forward and backward_data of grouped_gemm. A warp multiplies pixels of a
// patch by the weights of a bundle of groups, and each tap reads the same patch
// (grouped_gemm_plan.h defines patch and bundle).
//
// Formula    y[n,k,p,q] = relu(b[k] + residual + sum over c, r, s of w[k,c,r,s] x[n, c,
//            p stride_h - pad_top + r dilation_h, q stride_w - pad_left + s dilation_w]), k and c
//            of one group
// Textbook   for 32 positions, for each octet of y:        # a warp; 32 x 8 accumulators
//              for each product (two slots; f32: one):     # a slot is a tap and an octet of x
//                A [32 x 16] = x at the positions in two slots, from the patch
//                B [16 x 8]  = the weights of the two slots
//                accumulators += A B
// Method     A block of 8 warps has a slice of the channels and a tile of positions. It copies the
//            weights of the slice and the patch into shared memory, each once. A row of A is 16
//            bytes of a pixel, at any place in the patch, so ldmatrix reads every tap from the same
//            patch without a gather. Each warp takes a combination of phase, 32 positions and
//            octets of y. backward_data exchanges x and y. With a stride the output has phases
//            (shared/cuda/gather_lines.h), all of which read one patch of dy. fp16/bf16 results are
//            exchanged among four lanes, so that each lane stores 16 bytes.
// Shapes     x [N,H,W,Cp], y [N,P,Q,Kp] in T (Cp, Kp multiples of 8); weights [bundle, octet of
//            y][product][lane][2 words], as lanes hold B (tensor_cores/mma.cuh); b [K] f32
// Cost       bytes = x, y and w, plus the overlaps of the patches. A product of a bundle of small
//            groups contains zeros: half of its terms are 0 with 4 channels in a group. These zeros
//            take little time, because reads of shared memory limit the speed: 16 bytes for each
//            tap of an octet
// Numerics   the tensor cores accumulate in f32, in one chain; tf32 rounds x and w to nearest
// Choices    A warp takes 32 positions at once, so it reads a fragment of weights once for two
//            products. With 8 warps in a block, an SM holds two or more blocks, so that one block
//            loads while another multiplies
// Read next  grouped_gemm_weight.cuh
#pragma once

#include <type_traits>

#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/grouped_gemm/cuda/grouped_gemm_patch.cuh"

namespace convscope::grouped_gemm {

template <class T>
struct Finish {
  const float* bias;
  const T* residual;
  bool relu;
};

// Transposes 4 x 4 words among the four lanes of a quad. Before the call v[j] is word l%4 of item
// j. After the call lane l%4 holds the four words of item l%4.
__device__ inline void transpose_quad(unsigned (&v)[4]) {
  const unsigned lane = threadIdx.x;
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool odd = (lane & static_cast<unsigned>(distance)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const unsigned low = v[i], high = v[i + distance];
      const unsigned come = __shfl_xor_sync(kAllLanes, odd ? low : high, distance);
      v[i] = odd ? come : low;
      v[i + distance] = odd ? high : come;
    }
  }
}

// Computes the outputs of kBundles bundles at once, with kOctets octets (8 channels) of y in each
// bundle. The octets of one bundle read the same octets of x.
template <class T, int kOctets, int kBundles>
__global__ void __launch_bounds__(kWarps * 32, 3)
    gather_kernel(const __grid_constant__ GroupedGemmParams z, const uint4* x, const uint4* weights,
                  Finish<T> end, T* y) {
  constexpr int kAll = kOctets * kBundles;
  constexpr int kSlots = kStepSlots<T>;
  let_next_kernel_start();
  const int tile_index = z.by_slices.divide(static_cast<int>(blockIdx.x));
  const int slice = static_cast<int>(blockIdx.x) - tile_index * z.slices;
  const TilePlace tile = place_of_tile(z, tile_index);
  const int steps = z.steps();
  const int first_octet = slice * z.slice_out();  // index of an octet of y
  const int octets = min(z.slice_out(), z.bundles * z.bundle_out - first_octet);
  const int pieces = z.slice_in() * kOctetPieces<T>;
  const int first_piece = slice * pieces;

  // Shared memory: weights [product][octet of y][lane], the patch, and three tables.
  auto* const shared = dynamic_shared<unsigned char>();
  const int step_bytes = z.slice_out() * 256;
  unsigned char* const patch = shared + steps * step_bytes;
  int* const slot_at = reinterpret_cast<int*>(patch + z.patch_bytes());
  int* const from = slot_at + steps * kSlots;   // offsets of positions in the patch
  int* const to = from + z.padded_positions();  // pixels of y, for each phase; -1 = no pixel

  const Lanes lanes(pieces);
  wait_for_previous_kernel();
  copy_patch<T>(z, tile, first_piece, lanes, x, shared_address(patch));
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  {
    // Each half-warp copies the 256 bytes of one product and octet.
    const uint4* const source =
        weights + static_cast<std::int64_t>(first_octet) * steps * 16 + lane % 16;
    const SharedAddress target = shared_address(shared + lane % 16 * 16);
    for (int i = warp * 2 + lane / 16; i < octets * steps; i += kWarps * 2) {
      const int octet = z.by_steps.divide(i);
      async_copy_piece(target + ((i - octet * steps) * step_bytes + octet * 256), source + i * 16,
                       true);
    }
  }
  async_copy_commit();
  for (int i = static_cast<int>(threadIdx.x); i < steps * kSlots; i += kWarps * 32) {
    int phase = 0;
    while (i >= z.step_begin[phase + 1] * kSlots) ++phase;
    slot_at[i] = slot_offset<T>(z, phase, i - z.step_begin[phase] * kSlots);
  }
  for (int i = static_cast<int>(threadIdx.x); i < z.padded_positions(); i += kWarps * 32) {
    const Position at = position_of(z, min(i, z.positions - 1));
    from[i] = patch_offset(z, at);
    const int n = tile.image + at.image;
    for (int phase_h = 0; phase_h < z.phases_h; ++phase_h) {
      const int h = (tile.h + at.h) * z.out_step_h + phase_h;
      for (int phase_w = 0; phase_w < z.phases_w; ++phase_w) {
        const int w = (tile.w + at.w) * z.out_step_w + phase_w;
        const bool inside = i < z.positions && n < z.images && h < z.out_h && w < z.out_w;
        to[(phase_h * z.phases_w + phase_w) * z.padded_positions() + i] =
            inside ? (n * z.out_h + h) * z.out_w + w : -1;
      }
    }
  }
  async_copy_wait<0>();
  round_patch<T>(z, lanes, patch);
  __syncthreads();

  const int slot_lane = lane / 16;
  const int row_blocks = z.padded_positions() / kRows;
  const int column_blocks = ceil_div(z.slice_out(), kAll);
  const int units = z.phases() * row_blocks * column_blocks;
  const FastDivisor by_columns = z.by_columns;
  for (int unit = warp; unit < units; unit += kWarps) {
    const int above = by_columns.divide(unit);
    const int octet = (unit - above * column_blocks) * kAll;  // octet within the slice
    if (octet >= octets) continue;
    const int phase = z.by_row_blocks.divide(above);
    const int row = (above - phase * row_blocks) * kRows;
    const int begin = z.step_begin[phase], finish = z.step_begin[phase + 1];
    // The second slot of the last product may be unused.
    const bool has_half =
        kSlots == 2 && ((z.tap_begin[phase + 1] - z.tap_begin[phase]) * z.bundle_in & 1) != 0;

    float sums[2][kAll][4] = {};
    SharedAddress rows[2];
    int bundles[kBundles];  // byte offsets of the bundles' octets
    SharedAddress b[kBundles];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      rows[i] = shared_address(patch) +
                (from[row + i * 16 + lane % 16] + (kSlots == 1 ? slot_lane * 16 : 0));
    }
#pragma unroll
    for (int g = 0; g < kBundles; ++g) {
      const int at = min(octet + g * kOctets, octets - kOctets);
      bundles[g] = z.by_bundle_out.divide(at) * z.bundle_in * kOctetBytes<T>;
      b[g] = shared_address(shared) + (at * 256 + lane * 8);
    }
    const auto add_step = [&](int step, auto cut) {
      const int offset = slot_at[step * kSlots + (kSlots == 2 ? slot_lane : 0)];
      unsigned a[kBundles][2][4];  // all loads are issued before the first product
      uint2 factor[kAll];
#pragma unroll
      for (int g = 0; g < kBundles; ++g) {
#pragma unroll
        for (int i = 0; i < 2; ++i) load_matrices<false>(a[g][i], rows[i] + (offset + bundles[g]));
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
          factor[g * kOctets + o] = load_two_words(b[g] + (step * step_bytes + o * 256));
        }
      }
#pragma unroll
      for (int g = 0; g < kBundles; ++g) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (cut()) a[g][i][2] = a[g][i][3] = 0;
#pragma unroll
          for (int o = 0; o < kOctets; ++o) {
            const int at = g * kOctets + o;
            mma_step<T>(sums[i][at], a[g][i], factor[at].x, factor[at].y);
          }
        }
      }
    };
    const int whole = finish - (has_half ? 1 : 0);
#pragma unroll 2
    for (int step = begin; step < whole; ++step) add_step(step, std::false_type{});
    if (has_half) add_step(whole, std::true_type{});

    // A lane's accumulators belong to row 8 i + lane / 4 and channels 2 (lane % 4) + {0, 1}.
    const int* const pixels = to + phase * z.padded_positions() + row + lane / 4;
    const auto stores = [&](int o) {
      return octet + o < octets && first_octet + octet + o < z.out_octets;
    };
    const int stored = z.out_octets * kOctet;
    const int channel = (first_octet + octet) * kOctet + lane % 4 * 2;
    if (end.bias != nullptr) {
#pragma unroll
      for (int o = 0; o < kAll; ++o) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int c = channel + o * kOctet + e;
          const float bias = c < z.out_channels && stores(o) ? end.bias[c] : 0.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[i / 2][o][i % 2 * 2 + e] += bias;
        }
      }
    }
    if (end.residual != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int pixel = pixels[i * 8];
        if (pixel < 0) continue;
#pragma unroll
        for (int o = 0; o < kAll; ++o) {
          if (!stores(o)) continue;
          const T* const beside =
              end.residual + std::int64_t{pixel} * stored + channel + o * kOctet;
          sums[i / 2][o][i % 2 * 2] += to_float(beside[0]);
          sums[i / 2][o][i % 2 * 2 + 1] += to_float(beside[1]);
        }
      }
    }
    if (end.relu) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int o = 0; o < kAll; ++o) {
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][o][e] = finished(sums[i][o][e], true);
        }
      }
    }
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int pixel = pixels[i * 8];
        if (pixel < 0) continue;
#pragma unroll
        for (int o = 0; o < kAll; ++o) {
          if (!stores(o)) continue;
          const float* const pair = &sums[i / 2][o][i % 2 * 2];
          *reinterpret_cast<float2*>(y + std::int64_t{pixel} * stored + channel + o * kOctet) =
              make_float2(pair[0], pair[1]);
        }
      }
    } else {
      // An item is one octet of one row. Items are ordered by row, then by octet.
#pragma unroll
      for (int first = 0; first < 4 * kAll; first += 4) {
        unsigned words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = (first + j) / kAll, o = (first + j) % kAll;
          const float* const pair = &sums[i / 2][o][i % 2 * 2];
          words[j] = pair_from_floats<T>(pair[0], pair[1]);
        }
        transpose_quad(words);
        const int item = first + lane % 4;
        const int i = item / kAll, o = item - i * kAll;
        const int pixel = pixels[i * 8];
        if (pixel >= 0 && stores(o)) {
          *reinterpret_cast<uint4*>(y + std::int64_t{pixel} * stored +
                                    (first_octet + octet + o) * kOctet) =
              make_uint4(words[0], words[1], words[2], words[3]);
        }
      }
    }
  }
}

}  // namespace convscope::grouped_gemm
