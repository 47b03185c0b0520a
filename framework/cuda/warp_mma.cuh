// SPDX-License-Identifier: Apache-2.0
// warp_mma.cuh: mma.cuh and mma_tf32.cuh for kernels that keep their own fragments: products of one
// warp on the tensor cores (sm_80) and the loads of 8 x 8 tiles, each with an emulated form.
//
//   unsigned a[4];
//   load_matrices<false>(a, row_of_this_lane);    // rows of 16 bytes, wherever they lie
//   mma<BFloat16>(sums, a, b0, b1);               // sums[0..3] += A [16 x 16] B [16 x 8]
//
// A tile of rows of four f32 is loaded by the same instruction: lane l gets number l%4 of row l/4,
// which is what mma_tf32() wants.
// Source: PTX ISA, "Warp level matrix instructions"
// Read next  mma.cuh: which lane holds what
#pragma once

#include <cstring>

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/mma_tf32.cuh"

#if !defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/mma.cuh"
#endif

namespace convscope {

#if defined(CONVSCOPE_CUDA_EMULATED)

template <bool kTransposed>
inline void load_matrices(unsigned (&tiles)[4], const void* row) {
  struct Words {
    unsigned w[4];
  };
  const Words words = emulation::warp_collective<Words>(
      "load_matrices", row,
      [](const emulation::Lanes<const void*>& in, emulation::Lanes<Words>& out) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          for (unsigned tile = 0; tile < 4; ++tile) {
            std::uint16_t pair[2];
            for (unsigned e = 0; e < 2; ++e) {
              const unsigned i = lane / 4, j = lane % 4 * 2 + e;
              const unsigned from = kTransposed ? j : i;
              const unsigned at = kTransposed ? i : j;
              std::memcpy(&pair[e],
                          static_cast<const unsigned char*>(in[tile * 8 + from]) + 2 * at, 2);
            }
            out[lane].w[tile] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
          }
        }
      },
      kAllLanes);
  std::memcpy(tiles, words.w, sizeof tiles);
}

template <class Half>
inline void mma(float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Factors {
    unsigned a[4], b[2];
  };
  struct Sums {
    float d[4];
  };
  const Factors mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const Sums sums = emulation::warp_collective<Sums>(
      "mma", mine,
      [](const emulation::Lanes<Factors>& in, emulation::Lanes<Sums>& out) {
        float rows[16][16], columns[8][16];
        for (unsigned lane = 0; lane < 32; ++lane) {
          for (unsigned i = 0; i < 4; ++i) {
            const float2 pair = floats_from_pair<Half>(in[lane].a[i]);
            float* const to = &rows[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
            to[0] = pair.x;
            to[1] = pair.y;
          }
          for (unsigned i = 0; i < 2; ++i) {
            const float2 pair = floats_from_pair<Half>(in[lane].b[i]);
            float* const to = &columns[lane / 4][lane % 4 * 2 + i * 8];
            to[0] = pair.x;
            to[1] = pair.y;
          }
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
          for (unsigned i = 0; i < 4; ++i) {
            const float* const row = rows[lane / 4 + i / 2 * 8];
            const float* const column = columns[lane % 4 * 2 + i % 2];
            float sum = 0;
            for (unsigned depth = 0; depth < 16; ++depth) sum += row[depth] * column[depth];
            out[lane].d[i] = sum;
          }
        }
      },
      kAllLanes);
  for (int i = 0; i < 4; ++i) d[i] += sums.d[i];
}

#endif

}  // namespace convscope
