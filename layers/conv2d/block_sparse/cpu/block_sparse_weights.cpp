// SPDX-License-Identifier: Apache-2.0
// block_sparse_weights.cpp: backward_weight of convolution with block-sparse weights.
//
// Method     The dw of an entry is a sum over pixels: 16 channels of dy, a vector, times one value
//            of x. A strip (some rows of an image) stays in the caches over all entries. A tile has
//            up to 16 entries of one tap (shared/nchw16c_weight_tiles_simd.cpp). Each entry has an
//            accumulator vector over the pixels whose tap is inside the image. A thread computes a
//            range of the entries and loops over all images. At the end the accumulated sums are
//            copied to the stored blocks.
// Numerics   A chain of kSumChain pixels is added to an entry's `sums`; after kSumChain chains
//            `sums` is added to the entry's `totals` (framework/simd/sum_chain.h).
// Read next  block_sparse_cpu.cpp; direct_nchw16c_weights.cpp, the dense version
#include <array>

#include "framework/simd/sum_chain.h"
#include "layers/conv2d/block_sparse/cpu/block_sparse_plan.h"
#include "layers/conv2d/shared/nchw16c_tiles.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::block_sparse {
namespace {

constexpr Index kEntriesAtOnce = 16;  // entries of a tile

BlockSparseTiling pass_of(const Conv2dProblem& z) {
  BlockSparseTiling pass(z, Direction::forward);
  pass.chunk_blocks = z.c;  // entries of a tap are neighbours
  pass.chunks = 1;
  pass.flat = false;
  pass.in_h = z.h;
  pass.in_w = z.w;
  pass.out_h = z.p();
  pass.out_w = z.q();
  return pass;
}

// Arrays of the workspace, in this order.
struct Memory {
  Memory(const BlockSparseTiling& pass, float* at)
      : index(index_at(pass.counts, pass.segments(), at)),
        places(reinterpret_cast<std::int32_t*>(at + index_bytes(pass.counts, pass.segments()) /
                                                        sizeof(float))),
        scratch(places + piece_floats(pass.counts.k_blocks * pass.counts.columns)),
        sums(reinterpret_cast<float*>(scratch + index_scratch(pass) / sizeof(std::int32_t))),
        totals(sums + pass.counts.most * kChannelBlock) {}

  Index16 index;
  std::int32_t* places;
  std::int32_t* scratch;
  float* sums;    // [most, 16]
  float* totals;  // [most, 16]
};

// The pixels [first, end) of an axis of y for which the tap is inside x.
struct Range {
  Index first, end;
};
Range inside(Index shift, Index step, Index in, Index out) {
  const Index first = shift < 0 ? ceil_div(-shift, step) : 0;
  return {first, std::min(out, floor_div(in - 1 - shift, step) + 1)};
}

class Sums {
 public:
  Sums(const BlockSparseTiling& pass, const Memory& memory, const float* x, const float* dy)
      : pass_(pass),
        z_(pass.z),
        kernels_(nchw16c_kernels.get()),
        index_(memory.index),
        x_(x),
        dy_(dy),
        sums_(memory.sums),
        totals_(memory.totals) {
    // A strip is one chain of pixels, and the rows of x that it reads fit into L2.
    const auto l2 = static_cast<Index>(cache_sizes().l2 / sizeof(float));
    const Index row_floats = z_.c * z_.w * std::min(z_.stride_h, z_.r * z_.dilation_h);
    strip_ = std::clamp<Index>(std::min(kSumChain / z_.q(), l2 / 4 / row_floats), 1, z_.p());
    strip_ = ceil_div(z_.p(), ceil_div(z_.p(), strip_));
    const Index strips = ceil_div(z_.p(), strip_) * ceil_div(z_.q(), kSumChain);
    images_ = std::max<Index>(1, kSumChain / strips);
  }

  void run() const {
    const Index entries = index_.segment[pass_.segments()];
    const int threads = num_threads();
    parallel_chunks(threads, [&](Index job, int) {
      run(job * entries / threads, (job + 1) * entries / threads);
    });
  }

 private:
  void run(Index begin, Index end) const {
    if (begin == end) return;
    float* const sums = sums_ + begin * kChannelBlock;
    float* const totals = totals_ + begin * kChannelBlock;
    const Index floats = (end - begin) * kChannelBlock;
    std::fill_n(sums, floats, 0.0f);
    std::fill_n(totals, floats, 0.0f);
    Index block = 0;
    while (index_.segment[(block + 1) * pass_.counts.taps] <= begin) ++block;
    for (Index n = 0; n < z_.n; ++n) {
      for (Index row = 0; row < z_.p(); row += strip_) {
        add_strip(n, row, std::min(row + strip_, z_.p()), block, begin, end);
      }
      if ((n + 1) % images_ != 0 && n + 1 < z_.n) continue;
      for (Index i = 0; i < floats; ++i) totals[i] += sums[i];
      std::fill_n(sums, floats, 0.0f);
    }
  }

  // Adds the products of one strip to entries [begin, end). `block` is the block of output channels
  // of entry `begin`.
  void add_strip(Index n, Index row, Index row_end, Index block, Index begin, Index end) const {
    const Index taps = pass_.counts.taps;
    for (; index_.segment[block * taps] < end; ++block) {
      for (Index tap = 0; tap < taps; ++tap) {
        const std::int32_t* const segment = index_.segment + block * taps + tap;
        const Index first = std::max<Index>(begin, segment[0]);
        const Index last = std::min<Index>(end, segment[1]);
        if (first < last) add_tap(n, row, row_end, block, tap, first, last);
      }
      if (block + 1 == pass_.counts.k_blocks) break;
    }
  }

  void add_tap(Index n, Index row, Index row_end, Index block, Index tap, Index first,
               Index last) const {
    const Range rows = inside(pass_.row_shift(tap % z_.r), z_.stride_h, z_.h, z_.p());
    const Range columns = inside(pass_.column_shift(tap / z_.r), z_.stride_w, z_.w, z_.q());
    row = std::max(row, rows.first);
    row_end = std::min(row_end, rows.end);
    if (row >= row_end || columns.first >= columns.end) return;
    std::array<Nchw16cWeightRow, kEntriesAtOnce> list;
    Nchw16cWeightTile tile;
    tile.row = list.data();
    tile.rows = row_end - row;
    tile.columns = columns.end - columns.first;
    tile.in = x_ + n * pass_.in_blocks * pass_.in_plane() +
              (row * z_.stride_h * z_.w + columns.first * z_.stride_w) * kChannelBlock;
    tile.in_row = z_.stride_h * z_.w * kChannelBlock;
    tile.in_step = z_.stride_w * kChannelBlock;
    tile.beside =
        dy_ + ((n * pass_.out_blocks + block) * z_.p() * z_.q() + row * z_.q() + columns.first) *
                  kChannelBlock;
    tile.beside_row = z_.q() * kChannelBlock;
    tile.next = tile.beside;
    // Two vectors share each load of a pixel, unless a block is one vector.
    const int vectors = kernels_.lanes > 1 && kernels_.lanes < kChannelBlock ? 2 : 1;
    const Index tiles = ceil_div(last - first, kEntriesAtOnce);
    for (Index t = 0; t < tiles; ++t) {
      const Index from = first + t * (last - first) / tiles;
      const Index to = first + (t + 1) * (last - first) / tiles;
      for (Index i = from; i < to; ++i) {
        list[static_cast<std::size_t>(i - from)] = {index_.offset[i], (i - from) * kChannelBlock};
      }
      tile.channels = static_cast<int>(to - from);
      for (int lane = 0; lane < kChannelBlock; lane += vectors * kernels_.lanes) {
        Nchw16cWeightTile lanes = tile;
        lanes.beside += lane;
        lanes.sums = sums_ + from * kChannelBlock + lane;
        kernels_.weight_tile(lanes, vectors * kernels_.lanes);
      }
    }
  }

  const BlockSparseTiling& pass_;
  const Conv2dProblem& z_;
  const Nchw16cKernels kernels_;
  const Index16 index_;
  const float* const x_;
  const float* const dy_;
  float* const sums_;
  float* const totals_;
  Index strip_ = 1, images_ = 1;  // rows of a strip; images that share `sums`
};

// Writes the stored blocks of dw.
void write(const BlockSparseTiling& pass, const Memory& memory,
           const Conv2dBackwardWeightArgs& args) {
  const BlockSparseView& w = args.views.w_blocks;
  auto* const dw = static_cast<float*>(args.dw);
  parallel_for(pass.z.k / w.block_rows, 1, [&](Index row, Index) {
    for (Index b = w.row_begin[row]; b < w.row_begin[row + 1]; ++b) {
      float* to = dw + b * w.block_rows * w.block_columns;
      for (Index i = 0; i < w.block_rows; ++i) {
        const Index k = row * w.block_rows + i;
        const std::int32_t* const places = memory.places + k / kChannelBlock * pass.counts.columns +
                                           w.columns[b] * w.block_columns;
        for (Index j = 0; j < w.block_columns; ++j, ++to) {
          const float sum = memory.totals[places[j] * kChannelBlock + k % kChannelBlock];
          *to = args.accumulate ? *to + sum : sum;
        }
      }
    }
  });
}

}  // namespace

std::size_t sums_bytes(const Conv2dProblem& z) {
  const BlockSparseTiling pass = pass_of(z);
  return index_bytes(pass.counts, pass.segments()) +
         static_cast<std::size_t>(piece_floats(pass.counts.k_blocks * pass.counts.columns)) *
             sizeof(float) +
         index_scratch(pass) +
         static_cast<std::size_t>(2 * pass.counts.most * kChannelBlock) * sizeof(float);
}

void sum_weights(const Conv2dBackwardWeightArgs& args, const Conv2dProblem& computed,
                 const float* x, const float* dy, float* workspace) {
  const BlockSparseTiling pass = pass_of(computed);
  const Memory memory(pass, workspace);
  make_places(pass, args.views.w_blocks, memory.index, memory.places, memory.scratch);
  Sums(pass, memory, x, dy).run();
  write(pass, memory, args);
}

}  // namespace convscope::block_sparse
