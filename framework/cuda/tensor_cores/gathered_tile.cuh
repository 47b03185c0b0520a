// SPDX-License-Identifier: Apache-2.0
// gathered_tile.cuh: D [64 x N] += A [64 x 64] B [64 x N] by one warp group (128 threads), as in
// matrix_tile.cuh, but each row of A may be anywhere in shared memory. ldmatrix takes one address
// per row and loads A into registers. There, wgmma (sm_90a) or mma.sync (other GPUs from sm_80)
// multiplies A. The emulation uses plain loops.
//
// Rows       A warp has 16 rows. A row has 64 elements of K, which are 8 pieces of 16 bytes. Lane l
//            supplies the addresses of four pieces of row l % 16: piece 2 k + l / 16 is at[k] bytes
//            after `base`.
// Columns    B is stored as in matrix_tile.cuh, K-major.
// Registers  The layout of D and the order of the calls of begin, multiply, commit and wait are
//            those of matrix_tile.cuh. The rows of A must not change before wait, either.
#pragma once

#include "framework/cuda/tensor_cores/matrix_tile.cuh"

namespace convscope::gathered_tile {

#if defined(CONVSCOPE_CUDA_EMULATED)
template <class Half>
struct Rows {
  unsigned char pieces[4][16];  // loaded by this lane

  void load(const unsigned char* base, const int (&at)[4]) {
    for (int k = 0; k < 4; ++k) std::memcpy(pieces[k], base + at[k], sizeof pieces[k]);
  }
};
#else
template <class Half>
struct Rows {
  unsigned tiles[4][4];  // of 16 elements in K each

  __device__ void load(const unsigned char* base, const int (&at)[4]) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#if defined(__CUDA_ARCH__)
      load_matrices<false>(tiles[k], base + at[k]);
#endif
    }
  }
};
#endif

// Computes d = A B + (add ? d : 0).
template <class Half, int kColumns>
__device__ inline void multiply(float (&d)[kColumns / 2], const Rows<Half>& rows,
                                const unsigned char* columns, bool add) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  struct Step {
    const Rows<Half>* rows;
    const unsigned char* columns;
    float* d;
    bool add;
  };
  (void)emulation::warp_collective<char>(
      "a product of gathered rows", Step{&rows, columns, d, add},
      [](const emulation::Lanes<Step>& in, const auto&) {
        static emulation::Factor<16, kTileDepth> gathered;
        gathered.template fill<Half, false>([&](int row, int depth) {
          const int lane = row + depth / 8 % 2 * 16;
          return in[static_cast<unsigned>(lane)].rows->pieces[depth / 16];
        });
        const auto& factor = matrix_tile::decoded<Half, kColumns, false, 'b'>(in[0].columns);
        const emulation::Sums sums(gathered, 0, factor);
        for (unsigned lane = 0; lane < 32; ++lane) {
          emulation::give_out<kColumns>(sums.of, lane, in[lane].d, in[lane].add);
        }
      });
#elif defined(CONVSCOPE_WGMMA)
  const std::uint64_t from = wgmma_descriptor(columns, kTileBlockBytes);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    wgmma_rows<Half, kColumns>(d, rows.tiles[k], from + k * (32 >> 4), add || k > 0);
  }
#elif defined(__CUDA_ARCH__)
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int eight = lane / 8;  // the 8 x 8 tile that this lane addresses
  if (!add) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) d[i] = 0;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      unsigned b[4];
      load_matrices<false>(
          b, columns + swizzle_tile(16 * j + lane % 8 + eight / 2 * 8, 2 * k + eight % 2));
      mma<Half>(d + 8 * j, rows.tiles[k], b[0], b[1]);
      mma<Half>(d + 8 * j + 4, rows.tiles[k], b[2], b[3]);
    }
  }
#endif
}

}  // namespace convscope::gathered_tile
