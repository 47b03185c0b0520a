// SPDX-License-Identifier: Apache-2.0
// gemm_cpu.cpp: computes a whole matrix product from register tiles, with cache-sized blocks,
// packed panels and threads.
//
// Formula    C[i,j] (+)= sum over k of op(A)[i,k] op(B)[k,j]
// Textbook   for i: for j: for k: c[i][j] += a[i][k] * b[k][j]
// Method     K is cut into blocks of kDepth, so that the rows of A that a tile reads stay in L1.
//            Rows and columns are cut into blocks, so that the panels packed at once fit into
//            L2/L3. An operand is packed into panels only when it has the wrong layout or its rows
//            are far apart; otherwise, tiles read the operand itself. A panel is as wide as a tile
//            is high (A) or wide (B), and k is its outermost index. Threads get rectangles of
//            tiles, which depend only on the sizes.
// Shapes     row-major f32, any leading dimension, any alignment. Accumulates in f32.
// Cost       FLOPs = 2 M N K; workspace = at most (kBlockRows + kBlockColumns) kDepth floats
// Numerics   Each element is summed in the order of k, in chains of at most kSumChain terms whose
//            totals are added up in C. The bits are the same on each run and with any number of
//            threads. Results on integers are exact while sums stay below 2^24.
// Choices    kDepth 384: A tile 14 x 384 x 4 B = 21 KiB of a 32 KiB L1.
//            A rectangle is at most 8 tiles x 12 panels: 168 KiB + 576 KiB of a 1 MiB L2.
// Source     see gemm_simd.cpp
// Read next  gemm_simd.cpp: the tile
#include <algorithm>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"

namespace convscope {

constinit IsaTable<GemmKernels> gemm_kernels;

namespace {

constexpr std::int64_t kDepth = 384;
constexpr std::int64_t kBlockRows = 2016;
constexpr std::int64_t kBlockColumns = 2048;
// An operand whose rows are farther apart than this is packed even if its layout is suitable,
// because each step of k would access another page.
constexpr std::int64_t kFarRow = 1024;
// A product with fewer FLOPs than this (about 2 us) is faster on one thread.
constexpr double kSmallFlops = 2e5;

struct Operands {
  bool transpose_a, transpose_b;
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
};

// The block [i0, i0 + mb) x [j0, j0 + nb) of C, and the range [k0, k0 + kb) of k.
struct Block {
  std::int64_t i0, mb, j0, nb, k0, kb;
};

// Packs tile `tile` of A, which is [M x K] or [K x M], as [kb, height] to packed + begin(tile) *
// kb.
// height].
void pack_a_tile(const GemmKernels& kernels, const Operands& in, const Block& block,
                 const RowTiles& tiles, std::int64_t tile, float* packed) {
  const std::int64_t row = block.i0 + tiles.begin(tile);
  const int height = tiles.height(tile);
  float* to = packed + tiles.begin(tile) * block.kb;  // [kb, height]
  if (in.transpose_a) {
    for (std::int64_t k = 0; k < block.kb; ++k) {
      const float* from = in.a + (block.k0 + k) * in.lda + row;
      for (int i = 0; i < height; ++i) to[k * height + i] = from[i];
    }
  } else {
    kernels.transpose(in.a + row * in.lda + block.k0, in.lda, height, block.kb, to, height);
  }
}

// Packs one panel of B as [kb, kernels.columns].
void pack_b_panel(const GemmKernels& kernels, const Operands& in, const Block& block,
                  std::int64_t panel, float* packed) {
  const std::int64_t width = kernels.columns;
  const std::int64_t column = panel * width;
  const std::int64_t count = std::min(width, block.nb - column);
  float* to = packed + column * block.kb;  // [kb, width]
  if (in.transpose_b) {
    kernels.transpose(in.b + (block.j0 + column) * in.ldb + block.k0, in.ldb, count, block.kb, to,
                      width);
  } else {
    for (std::int64_t k = 0; k < block.kb; ++k) {
      const float* from = in.b + (block.k0 + k) * in.ldb + block.j0 + column;
      std::copy(from, from + count, to + k * width);
    }
  }
}

class Product {
 public:
  Product(const Operands& in, std::int64_t m, std::int64_t n, std::int64_t k, float* c,
          std::int64_t ldc, bool accumulate)
      : in_(in),
        m_(m),
        n_(n),
        k_(k),
        c_(c),
        ldc_(ldc),
        accumulate_(accumulate),
        kernels_(gemm_kernels.get()),
        pack_a_(!in.transpose_a || in.lda > kFarRow),
        pack_b_(in.transpose_b || (in.ldb > kFarRow && m > 2 * kernels_.rows)) {}

  void run() {
    const std::int64_t depth = std::min(k_, kDepth);
    const std::int64_t width = kernels_.columns;
    const auto a_floats = static_cast<std::size_t>(pack_a_ ? std::min(m_, kBlockRows) * depth : 0);
    const auto b_floats = static_cast<std::size_t>(
        pack_b_ ? ceil_div(std::min(n_, kBlockColumns), width) * width * depth : 0);
    const Workspace workspace({}, ScratchArena::round_up(a_floats * sizeof(float)) +
                                      ScratchArena::round_up(b_floats * sizeof(float)));
    ScratchArena arena(workspace.data(), workspace.bytes());
    packed_a_ = arena.take<float>(a_floats);
    packed_b_ = arena.take<float>(b_floats);
    for (std::int64_t j0 = 0; j0 < n_; j0 += kBlockColumns) {
      const std::int64_t nb = std::min(kBlockColumns, n_ - j0);
      for (std::int64_t k0 = 0; k0 < k_; k0 += kDepth) {
        const std::int64_t kb = std::min(kDepth, k_ - k0);
        for (std::int64_t i0 = 0; i0 < m_; i0 += kBlockRows) {
          run_block({i0, std::min(kBlockRows, m_ - i0), j0, nb, k0, kb});
        }
      }
    }
  }

 private:
  void run_block(const Block& block) const {
    const RowTiles tiles(block.mb, kernels_.rows);
    const std::int64_t panels = ceil_div(block.nb, kernels_.columns);
    const double flops =
        2.0 * static_cast<double>(block.mb * block.nb) * static_cast<double>(block.kb);
    const bool small = flops < kSmallFlops;

    const std::int64_t a_jobs = pack_a_ ? tiles.tiles : 0;
    const std::int64_t b_jobs = pack_b_ && block.i0 == 0 ? panels : 0;  // B serves all row blocks
    const std::int64_t jobs = a_jobs + b_jobs;
    // Packing a panel is little work, so threads get several panels at a time.
    parallel_for(jobs, small ? jobs : std::max<std::int64_t>(2, ceil_div(jobs, 16)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t job = begin; job < end; ++job) {
                     if (job < a_jobs) {
                       pack_a_tile(kernels_, in_, block, tiles, job, packed_a_);
                     } else {
                       pack_b_panel(kernels_, in_, block, job - a_jobs, packed_b_);
                     }
                   }
                 });

    // Threads get rectangles of tiles. A rectangle fits into L2, and there are at least 16
    // rectangles unless the work is small.
    std::int64_t high = std::min<std::int64_t>(tiles.tiles, 8);
    std::int64_t wide = std::min<std::int64_t>(panels, 12);
    const auto count = [&] { return ceil_div(tiles.tiles, high) * ceil_div(panels, wide); };
    while (!small && count() < 16 && high * wide > 1 &&
           flops / static_cast<double>(count()) > 2 * kSmallFlops) {
      std::int64_t& longer = high > wide ? high : wide;
      longer = ceil_div(longer, 2);
    }
    const std::int64_t across = ceil_div(panels, wide);
    parallel_for(count(), small ? count() : 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        const std::int64_t tile = chunk / across * high;
        const std::int64_t panel = chunk % across * wide;
        run_rectangle(block, tiles, tile, std::min(tile + high, tiles.tiles), panel,
                      std::min(panel + wide, panels));
      }
    });
  }

  void run_rectangle(const Block& block, const RowTiles& tiles, std::int64_t tile_begin,
                     std::int64_t tile_end, std::int64_t panel_begin,
                     std::int64_t panel_end) const {
    const std::int64_t width = kernels_.columns;
    for (std::int64_t t = tile_begin; t < tile_end; ++t) {
      GemmTile tile;
      tile.rows = tiles.height(t);
      tile.depth = block.kb;
      tile.accumulate = accumulate_ || block.k0 > 0;
      tile.c_row = ldc_;
      if (pack_a_) {
        tile.a = packed_a_ + tiles.begin(t) * block.kb;
        tile.a_step = tile.rows;
      } else {
        tile.a = in_.a + block.k0 * in_.lda + block.i0 + tiles.begin(t);
        tile.a_step = in_.lda;
      }
      for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
        const std::int64_t column = panel * width;
        tile.columns = static_cast<int>(std::min(width, block.nb - column));
        if (pack_b_) {
          tile.b = packed_b_ + column * block.kb;
          tile.b_step = width;
        } else {
          tile.b = in_.b + block.k0 * in_.ldb + block.j0 + column;
          tile.b_step = in_.ldb;
        }
        tile.c = c_ + (block.i0 + tiles.begin(t)) * ldc_ + block.j0 + column;
        kernels_.tile(tile);
      }
    }
  }

  const Operands in_;
  const std::int64_t m_, n_, k_;
  float* const c_;
  const std::int64_t ldc_;
  const bool accumulate_;
  const GemmKernels kernels_;
  const bool pack_a_, pack_b_;
  float* packed_a_ = nullptr;
  float* packed_b_ = nullptr;
};

}  // namespace

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
          std::int64_t ldc, bool accumulate) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; !accumulate && i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
    return;
  }
  Product({transpose_a, transpose_b, a, lda, b, ldb}, m, n, k, c, ldc, accumulate).run();
}

void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
          const double* a, std::int64_t lda, const double* b, std::int64_t ldb, double* c,
          std::int64_t ldc, bool accumulate) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = accumulate ? c[i * ldc + j] : 0.0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum +=
            a[transpose_a ? l * lda + i : i * lda + l] * b[transpose_b ? j * ldb + l : l * ldb + j];
      }
      c[i * ldc + j] = sum;
    }
  }
}

}  // namespace convscope
