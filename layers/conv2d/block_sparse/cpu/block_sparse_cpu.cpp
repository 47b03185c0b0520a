// SPDX-License-Identifier: Apache-2.0
// block_sparse_cpu.cpp: convolution with block-sparse weights. The accumulators of a tile of pixels
// stay in registers while the kernel reads a list of the kept weights.
//
// Formula    y[n,k,p,q] = b[k] + sum over the (c,r,s) that a block of row k holds of w[k,c,r,s]
//            x[n, g C/G + c, p stride_h - pad_top + r dilation_h, q stride_w - pad_left +
//            s dilation_w], or 0
// Textbook   for n, blocks of 16 kernels, p, q: y[n,k..k+15,p,q] = b[k..k+15]
//              for (c,r,s) in list[block]: y[n,k..k+15,p,q] += w[k..k+15,c,r,s] * x[n,c,..]
// Method     Images are NCHW16c. An entry is 16 weights that share one (c,r,s): one vector of
//            AVX-512. The prepared weights are lists of entries in the order in which they are
//            read; an entry has an int32 offset and 16 values. In forward, a tile of 28 pixels (up
//            to four rows of a narrow image) stays in registers. Each entry costs one load and 28
//            FMAs with a broadcast pixel. x is split into chunks of channels. The pixels of a chunk
//            that a tile reads stay in L1 over all blocks of output channels. backward_data reads
//            the list of one channel of dx. It multiplies an entry's 16 weights by 16 channels of
//            dy, and adds up the lanes for 16 channels of dx together. block_sparse_weights.cpp
//            describes backward_weight. Taps outside the image are skipped. Taps of one s are
//            neighbours in the list, so that a tile at a border has few loops. Threads share the
//            (images, rows, blocks of output channels). NCHW images are copied to NCHW16c and the
//            result is copied back. The planes of x of a first layer (nchw:nchw16c) are read
//            directly. Images of one pixel, as in a linear layer, are copied into one row of
//            pixels.
// Shapes     x [N,C/16,H,W,16] (nchw:nchw16c: [N,C,H,W]), w blocks [blocks,rows,columns], b [K], y
//            [N,K/16,P,Q,16], f32, any alignment; f32 accumulators
// Supports   f32 with block-sparse weights; every shape of blocks, stride, dilation and padding;
//            one group, or groups of whole blocks of 16 channels; kernels up to 1024 taps; images
//            of fewer than 2^31 elements; layout nchw:nchw16c only in forward
// Cost       FLOPs = 2 N K P Q times the entries of a block of output channels; bytes = the three
//            tensors; workspace = copies of images where needed, the lists, and for backward_weight
//            the accumulators; compute-bound when more than about 10 % of the weights are kept
// Numerics   one rounding per FMA, in the order of (chunk, s, r, c); chains of kSumChain entries.
//            Same bits on each run and for any number of threads; exact on integers below 2^24
// Backward   dx assigned; dw of the stored blocks assigned or added to
// Choices    A chunk of x takes 5/8 of L1, because the entries and y also pass through L1. At most
//            160 entries are added between two additions to y (framework/simd/sum_chain.h)
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723. The paper has 1x1 kernels, forward, with pixels in the lanes; here the
//            lanes are channels
// Read next  block_sparse_lesson_cpu.cpp, the lists only; block_sparse_simd.cpp, the tiles
#include <array>
#include <cmath>
#include <utility>

#include "framework/simd/sum_chain.h"
#include "layers/conv2d/block_sparse/cpu/block_sparse_plan.h"
#include "layers/conv2d/epilogue.h"

namespace convscope {

constinit IsaTable<BlockSparseKernels> block_sparse_kernels;

namespace {

using namespace block_sparse;

// The layouts of a problem's images, and which of them a call copies to NCHW16c.
struct Places {
  explicit Places(const Conv2dProblem& z)
      : computed(side_by_side(z)),
        copies_x(z.layout == ActivationLayout::nchw || has_one_pixel(z)),
        copies_y(copies_x),
        x{computed.n, z.c, computed.h * computed.w},
        y{computed.n, z.k, computed.p() * computed.q()} {
    if (!has_one_pixel(z)) return;
    const bool whole = z.layout == ActivationLayout::nchw16c;
    x.row = whole ? round_up(z.c, kChannelBlock) : z.c;
    y.row = whole ? round_up(z.k, kChannelBlock) : z.k;
  }
  Index floats() const { return (copies_x ? x.floats() : 0) + (copies_y ? y.floats() : 0); }

  Conv2dProblem computed;
  bool copies_x, copies_y;
  Images x, y;
};

// ---- weights -----------------------------------------------------------------------------------

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  const Conv2dProblem computed = side_by_side(z);
  const BlockSparseTiling pass(computed, direction);
  return index_bytes(pass.counts, pass.segments());
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem computed = side_by_side(args.problem);
  const BlockSparseTiling pass(computed, args.direction);
  make_index(pass, args.views.w_blocks, index_at(pass.counts, pass.segments(), args.prepared),
             args.workspace);
}

// ---- forward and backward_data -----------------------------------------------------------------

class BlockSparsePass {
 public:
  BlockSparsePass(const BlockSparseTiling& pass, const float* in, const void* prepared, float* out)
      : pass_(pass),
        z_(pass.z),
        kernels_(block_sparse_kernels.get()),
        chain_(pass.forward ? kSumChain : kSumChain * kernels_.lanes / kChannelBlock),
        index_(index_at(pass.counts, pass.segments(), const_cast<void*>(prepared))),
        in_(in),
        out_(out) {}

  void set_epilogue(const float* b, const Conv2dEpilogue& epilogue) {
    b_ = b;
    epilogue_.residual = static_cast<const float*>(epilogue.residual);
    epilogue_.y = out_;
    epilogue_.relu = epilogue.relu;
    epilogue_.most = epilogue.most;
  }

  void run() const {
    const Index rows = ceil_div(pass_.out_h, pass_.row_parts);
    const Index jobs = z_.groups * pass_.image_jobs * pass_.row_jobs * pass_.splits;
    parallel_chunks(jobs, [&](Index job, int) {
      const Index split = job % pass_.splits;
      const Index row = job / pass_.splits % pass_.row_jobs * pass_.rows_at_once;
      const Index image =
          job / pass_.splits / pass_.row_jobs % pass_.image_jobs * pass_.images_at_once;
      Job here;
      here.group = job / pass_.splits / pass_.row_jobs / pass_.image_jobs;
      here.image = image;
      here.images = std::min(pass_.images_at_once, z_.n - image);
      here.row = row;
      here.row_end = std::min(row + pass_.rows_at_once, rows);
      const Index first = here.group * pass_.group_blocks;
      const Index end = first + (split + 1) * pass_.group_blocks / pass_.splits;
      const Index begin = first + split * pass_.group_blocks / pass_.splits;
      for (Index block = begin; block < end; block += pass_.blocks_at_once) {
        here.block = block;
        here.asks_ahead = block == begin && !pass_.in_planes;
        here.block_end = std::min(block + pass_.blocks_at_once, end);
        for (Index row_part = 0; row_part < pass_.row_parts; ++row_part) {
          for (Index part = 0; part < pass_.column_parts; ++part) run_part(here, row_part, part);
        }
      }
    });
  }

 private:
  struct Job {
    Index group, image, images, row, row_end;
    Index block, block_end;  // range of output blocks
    bool asks_ahead;         // whether x is not in the caches yet
  };
  // The taps of one row of pixels, and for each tap the pixels whose input is inside the image.
  struct Taps {
    std::array<Index, kMaxTaps> row, first, end;  // row[r]: row shift; [first, end)[s]: pixels
    int columns = 0;
  };

  bool row_is_inside(Index row, Index shift) const {
    const Index h = row * pass_.row_step + shift;
    return h >= 0 && h < pass_.in_h;
  }
  // Tells whether output rows a and b have the same kernel rows r inside the image.
  bool rows_agree(Index a, Index b, Index row_part) const {
    if (a == b) return true;
    for (Index r = 0; r < z_.r; ++r) {
      if (pass_.row_part(r) != row_part) continue;
      const Index shift = pass_.row_shift(r);
      if (row_is_inside(a, shift) != row_is_inside(b, shift)) return false;
    }
    return true;
  }

  // Computes all tiles of the pixels with one residue of rows and columns modulo the stride.
  void run_part(const Job& job, Index row_part, Index part) const {
    const Index count = pass_.out_w > part ? ceil_div(pass_.out_w - part, pass_.column_parts) : 0;
    const Index rows = ceil_div(pass_.out_h - row_part, pass_.row_parts);
    const Index last = std::min(job.row_end, rows) * job.images;
    if (count == 0) return;
    const Index most = pass_.pixels / pass_.tile_rows;
    const Index tiles = ceil_div(count, most);
    for (Index i = job.row * job.images; i < last;) {
      const Index row = i / job.images;
      Index taken = 1;  // rows i .. i + taken of the tile
      while (taken < pass_.tile_rows && i + taken < last &&
             rows_agree(row, (i + taken) / job.images, row_part)) {
        ++taken;
      }
      if (taken == 5 || taken == 6) taken = 4;
      for (Index t = 0; t < tiles; ++t) {
        const Index begin = t * count / tiles;
        const Index end = (t + 1) * count / tiles;
        run_tile(job, {i, taken, row_part, part, begin, end});
      }
      i += taken;
    }
  }

  struct Place {  // position of a tile
    Index line, lines, row_part, part, begin, end;
  };

  void run_tile(const Job& job, const Place& at) const {
    std::array<SparseRun, kMaxTaps> runs;
    SparseTile tile;
    tile.rows = static_cast<int>(at.lines);
    tile.columns = static_cast<int>(at.end - at.begin);
    tile.in_step = pass_.in_pixel * pass_.column_step;
    tile.out_step = kChannelBlock * pass_.column_parts;
    tile.run = runs.data();
    tile.runs = list_runs(at.line / job.images, at, tile, runs);
    std::array<Index, kSparseRows> out{};
    for (Index i = 0; i < at.lines; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const Index row = (at.line + i) / job.images;
      const Index n = job.image + (at.line + i) % job.images;
      tile.in[k] =
          in_ + n * pass_.in_image() +
          (row * pass_.row_step * pass_.in_w + at.begin * pass_.column_step) * pass_.in_pixel;
      out[k] = n * pass_.out_blocks * pass_.out_plane() +
               ((row * pass_.row_parts + at.row_part) * pass_.out_w + at.part +
                at.begin * pass_.column_parts) *
                   kChannelBlock;
    }
    pass_.forward ? sum(job, tile, out) : dot(job, tile, out);
  }

  // Lists the taps of a tile that are inside the image. Neighbouring taps that are inside for the
  // same pixels form one run. Returns the number of runs.
  int list_runs(Index row, const Place& at, const SparseTile& tile,
                std::array<SparseRun, kMaxTaps>& runs) const {
    int found = 0;
    for (Index s = 0; s < z_.s; ++s) {
      if (pass_.column_part(s) != at.part) continue;
      const Index first = at.begin * pass_.column_step + pass_.column_shift(s);
      const Index outside = first < 0 ? ceil_div(-first, pass_.column_step) : 0;
      const Index end = floor_div(pass_.in_w - 1 - first, pass_.column_step) + 1;
      std::uint32_t pixels = 0;
      for (Index j = std::min<Index>(outside, tile.columns); j < std::min<Index>(end, tile.columns);
           ++j) {
        for (Index i = 0; i < tile.rows; ++i) pixels |= 1u << (i * tile.columns + j);
      }
      if (pixels == 0) continue;
      for (Index r = 0; r < z_.r; ++r) {
        if (pass_.row_part(r) != at.row_part || !row_is_inside(row, pass_.row_shift(r))) continue;
        const auto tap = static_cast<std::int32_t>(s * z_.r + r);
        SparseRun* const before = found > 0 ? &runs[static_cast<std::size_t>(found - 1)] : nullptr;
        if (before != nullptr && before->end == tap && before->pixels == pixels) {
          ++before->end;
        } else {
          runs[static_cast<std::size_t>(found++)] = {tap, tap + 1, pixels};
        }
      }
    }
    return found;
  }

  // Splits the entries [begin, end) of a list into summation chains and calls visit(part) for each.
  // An empty list gets one call with an empty part, so that its output is still initialised.
  template <class Visit>
  void for_each_chain(const std::int32_t* segment, Index begin, Index end, Index first, Index last,
                      const Visit& visit) const {
    SparsePart part{.segment = segment, .offset = index_.offset, .value = index_.value};
    if (first == last) {
      part.begin = part.end = static_cast<std::int32_t>(first);
      return visit(part);
    }
    const Index chains = ceil_div(end - begin, chain_);
    for (Index i = 0; i < chains; ++i) {
      part.begin = static_cast<std::int32_t>(begin + i * (end - begin) / chains);
      part.end = static_cast<std::int32_t>(begin + (i + 1) * (end - begin) / chains);
      part.first = part.begin == first;
      part.last = part.end == last;
      visit(part);
    }
  }

  // Prefetches input of the next tile into L2, for the planes [begin, end) of `in`. In a flat image
  // this is the next pixels of the row, otherwise the rows below the ones that this tile reads. The
  // hardware does not prefetch them, because the planes are far apart.
  void ask_ahead(const Job& job, const SparseTile& tile, Index begin, Index end) const {
    const Index rows = pass_.flat ? 1 : std::min(z_.r, pass_.row_step);
    const Index width =
        pass_.flat ? tile.columns : tile.columns * pass_.column_step + (z_.s - 1) * z_.dilation_w;
    const Index first = pass_.flat ? tile.columns : (pass_.row_step + z_.r - rows) * pass_.in_w;
    const Index group = job.group * pass_.in_group_blocks;
    for (Index plane = begin; plane < end; ++plane) {
      for (Index i = 0; i < tile.rows; ++i) {
        const float* const at = tile.in[static_cast<std::size_t>(i)] + first * kChannelBlock +
                                (group + plane) * pass_.in_plane();
        for (Index r = 0; r < rows; ++r) {
          for (Index j = 0; j < width; ++j) {
            __builtin_prefetch(at + (r * pass_.in_w + j) * kChannelBlock, 0, 2);
          }
        }
      }
    }
  }

  void sum(const Job& job, SparseTile& tile, const std::array<Index, kSparseRows>& out) const {
    alignas(64) std::array<float, kChannelBlock> start{};
    SparseEpilogue epilogue = epilogue_;
    const Index turns = pass_.chunks * (job.block_end - job.block);
    Index turn = 0;
    for (Index chunk = 0; chunk < pass_.chunks; ++chunk) {
      for (Index block = job.block; block < job.block_end; ++block, ++turn) {
        const Index planes = pass_.in_group_blocks;
        if (job.asks_ahead) {
          ask_ahead(job, tile, turn * planes / turns, (turn + 1) * planes / turns);
        }
        const std::int32_t* const list = index_.segment + block * pass_.chunks * pass_.counts.taps;
        const std::int32_t* const segment = list + chunk * pass_.counts.taps;
        const Index first = list[0], last = list[pass_.chunks * pass_.counts.taps];
        if (first == last && chunk > 0) continue;
        if (b_ != nullptr && segment[0] == first) {
          const Index k = block * kChannelBlock;
          start.fill(0);
          std::copy_n(b_ + k, std::min(kChannelBlock, z_.k - k), start.data());
          epilogue.start = start.data();
        }
        for (Index i = 0; i < tile.rows; ++i) {
          const auto row = static_cast<std::size_t>(i);
          tile.out[row] = out_ + out[row] + block * pass_.out_plane();
        }
        for_each_chain(
            segment, segment[0], segment[pass_.counts.taps], first, last,
            [&](const SparsePart& part) { kernels_.sum_channels(tile, part, epilogue); });
      }
    }
  }

  // Computes channels [c, c + channels) of dx.
  void dot_block(const SparseTile& tile, Index c, Index channels, float* sums) const {
    const Index taps = pass_.counts.taps;
    const std::int32_t* const segment = index_.segment + c * taps;
    bool short_lists = true;
    for (Index i = 0; i < channels; ++i) {
      short_lists = short_lists && segment[(i + 1) * taps] - segment[i * taps] <= chain_;
    }
    if (short_lists) {
      SparsePart part;
      part.segment = segment;
      part.offset = index_.offset;
      part.value = index_.value;
      return kernels_.dot_channels(tile, part, static_cast<int>(channels), static_cast<int>(taps),
                                   sums);
    }
    const Index channel_floats = static_cast<Index>(kernels_.dot_pixels) * kernels_.lanes;
    for (Index i = 0; i < channels; ++i) {
      const Index first = segment[i * taps], last = segment[(i + 1) * taps];
      for_each_chain(segment + i * taps, first, last, first, last, [&](const SparsePart& part) {
        kernels_.dot_channel(tile, part, sums + i * channel_floats);
      });
    }
  }

  void dot(const Job& job, SparseTile& tile, const std::array<Index, kSparseRows>& out) const {
    alignas(64) std::array<float, kMaxSums> sums;
    const Index channel_floats = static_cast<Index>(kernels_.dot_pixels) * kernels_.lanes;
    const Index turns = job.block_end - job.block;
    for (Index block = job.block; block < job.block_end; ++block) {
      const Index planes = pass_.in_group_blocks;
      const Index turn = block - job.block;
      if (job.asks_ahead) {
        ask_ahead(job, tile, turn * planes / turns, (turn + 1) * planes / turns);
      }
      const Index channels = std::min(kChannelBlock, z_.c - block * kChannelBlock);
      dot_block(tile, block * kChannelBlock, channels, sums.data());
      // Clears the lanes after the last channel.
      std::fill_n(sums.data() + channels * channel_floats,
                  (kChannelBlock - channels) * channel_floats, 0.0f);
      for (Index i = 0; i < tile.rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        tile.out[row] = out_ + out[row] + block * pass_.out_plane();
      }
      kernels_.fold(tile, sums.data());
    }
  }

  static constexpr Index kMaxSums = 16 * 28 * 16;  // 16 channels, 28 pixels, 16 lanes

  const BlockSparseTiling& pass_;
  const Conv2dProblem& z_;
  const BlockSparseKernels kernels_;
  // Maximum number of entries in a summation chain. In backward_data each entry adds 16 / lanes
  // products to a lane of the accumulator.
  const Index chain_;
  const Index16 index_;
  const float* const in_;
  float* const out_;
  const float* b_ = nullptr;
  SparseEpilogue epilogue_;
};

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Places places(z);
  const BlockSparseTiling pass(places.computed, Direction::forward);
  const auto* x = static_cast<const float*>(args.x);
  auto* const y = static_cast<float*>(args.y);
  auto* const x_blocks = static_cast<float*>(args.workspace);
  float* const y_blocks =
      places.copies_y ? x_blocks + (places.copies_x ? places.x.floats() : 0) : y;
  if (places.copies_x) {
    to_nchw16c(places.x, x, x_blocks);
    x = x_blocks;
  }
  // If y is computed in an NCHW16c copy, the residual, which has the layout of y, is added after
  // the copy back.
  const bool later = places.copies_y && args.epilogue.residual != nullptr;
  BlockSparsePass convolution(pass, x, args.prepared, y_blocks);
  convolution.set_epilogue(static_cast<const float*>(args.b), later ? Epilogue{} : args.epilogue);
  convolution.run();
  if (!places.copies_y) return;
  from_nchw16c(places.y, y_blocks, y);
  if (!later) return;
  const FusedEpilogue epilogue(args);
  const Index channels = places.y.row > 0 ? places.y.row : z.k;
  const Index plane = z.p() * z.q();
  parallel_for(z.n * channels, std::max<Index>(1, 8192 / plane), [&](Index begin, Index end) {
    epilogue.finish(y + begin * plane, end - begin, plane, plane);
  });
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Places places(args.problem);
  const BlockSparseTiling pass(places.computed, Direction::backward_data);
  const auto* dy = static_cast<const float*>(args.dy);
  auto* const dx = static_cast<float*>(args.dx);
  if (!places.copies_x) return BlockSparsePass(pass, dy, args.prepared, dx).run();
  auto* const dx_blocks = static_cast<float*>(args.workspace);
  float* const dy_blocks = dx_blocks + places.x.floats();
  to_nchw16c(places.y, dy, dy_blocks);
  BlockSparsePass(pass, dy_blocks, args.prepared, dx_blocks).run();
  from_nchw16c(places.x, dx_blocks, dx);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Places places(args.problem);
  const auto* x = static_cast<const float*>(args.x);
  const auto* dy = static_cast<const float*>(args.dy);
  auto* const x_blocks = static_cast<float*>(args.workspace);
  float* const dy_blocks = x_blocks + places.x.floats();
  if (places.copies_x) {
    to_nchw16c(places.x, x, x_blocks);
    to_nchw16c(places.y, dy, dy_blocks);
    x = x_blocks;
    dy = dy_blocks;
  }
  sum_weights(args, places.computed, x, dy, x_blocks + places.floats());
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  if (z.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.weight_format.is_dense()) {
    return Conv2dSupport::no("expects block-sparse weights, got dense");
  }
  if (z.layout.x != z.layout.y && direction == Direction::backward_weight) {
    return Conv2dSupport::no(
        cat("expects x and dy in one layout for dw, got layout ", name_of(z.layout)));
  }
  if (z.r * z.s > kMaxTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMaxTaps, " taps, got ", z.r, "x", z.s));
  }
  if (z.groups > 1 &&
      (z.c_per_group() % kChannelBlock != 0 || z.k_per_group() % kChannelBlock != 0)) {
    return Conv2dSupport::no(cat("expects groups of a multiple of 16 channels, got ", z.groups,
                                 " groups of ", z.c_per_group(), " and ", z.k_per_group()));
  }
  constexpr Index kMax = Index{1} << 31;
  if (round_up(z.c, kChannelBlock) * z.h * z.w >= kMax ||
      round_up(z.k, kChannelBlock) * z.p() * z.q() >= kMax) {
    return Conv2dSupport::no(cat("expects images of fewer than 2^31 numbers, got ", z.c, "x", z.h,
                                 "x", z.w, " and ", z.k, "x", z.p(), "x", z.q()));
  }
  return {};
}

// Returns the expected number of entries when the stored blocks are at random positions.
double expected_entries(const Conv2dProblem& z, const EntryCounts& counts) {
  const double all = static_cast<double>(counts.k_blocks * counts.columns);
  const double kept = static_cast<double>(z.weight_format.stored_elements()) /
                      static_cast<double>(z.k * counts.columns);
  const auto rows = static_cast<double>(std::min(z.weight_format.block_rows, kChannelBlock));
  return all * (1 - std::pow(1 - std::min(1.0, kept), 16 / rows));
}

// Returns the share of (tap column, tile) pairs in which the tap is outside the image for more than
// one pixel column. For such pairs the kernel tests each pixel, which is slower.
double skipping_share(const BlockSparseTiling& pass) {
  if (pass.flat) return 0;
  const Conv2dProblem& z = pass.z;
  const auto tiles = static_cast<double>(ceil_div(pass.line, pass.widest_tile()));
  double share = 0;
  for (Index s = 0; s < z.s; ++s) {
    const Index shift = pass.column_shift(s), step = pass.column_step;
    const Index first = shift < 0 ? ceil_div(-shift, step) : 0;
    const Index end = floor_div(pass.in_w - 1 - shift, step) + 1;
    const int ends = (first > 1 ? 1 : 0) + (pass.line - end > 1 ? 1 : 0);
    share += std::min(1.0, ends / tiles);
  }
  return share / static_cast<double>(z.s);
}

// Forward calls the kernel once for each tile, chunk and block of output channels. backward_data
// has
// one call for each tile and channel, and adds up the lanes. backward_weight has one call for each
// strip of rows and 16 entries of a tap, and reads x from L2; it makes its lists in each call.
Conv2dCost cost(const Conv2dProblem& problem, Direction direction) {
  const Places places(problem);
  const Conv2dProblem& z = places.computed;
  const bool data = direction == Direction::backward_data;
  const bool for_dw = direction == Direction::backward_weight;
  const BlockSparseTiling pass(z, data ? direction : Direction::forward);
  const double entries = expected_entries(z, pass.counts);
  const double pixels = number(z.n * z.p() * z.q());
  const double out_pixels = number(z.n * pass.out_h * pass.out_w);
  const double tiles = out_pixels / number(pass.widest_tile() * pass.tile_rows);
  const double products = 32 * pixels * entries;
  const double lists = number(pass.counts.k_blocks * pass.counts.taps);
  Conv2dCost out{.flops = std::max(1.0, products),
                 .bytes = problem.nominal_bytes(),
                 .issued = std::max(1.0, products),
                 // Pixels of which each is tested, because the tap is outside the image for some.
                 .loads = for_dw ? 0 : skipping_share(pass) * pixels * entries,
                 .copied = number(places.floats()),
                 .prepared = number(pass.counts.k_blocks * pass.counts.columns) + 16 * entries,
                 .schedule = places.floats() > 0 ? "" : "nchw16c"};
  if (direction == Direction::forward) {
    out.tiles = tiles * number(pass.chunks * pass.counts.k_blocks);
  } else if (data) {
    out.tiles = tiles * number(z.c);
    out.transformed = out_pixels * number(z.c);
  } else {
    const double of_list = entries / lists;
    const double strips = pixels / number(std::min(z.p() * z.q(), Index{kSumChain}));
    const double blocks = number(ceil_div(z.c_per_group(), kChannelBlock));
    out.tiles = lists * strips * std::ceil(of_list / 16);
    // The blocks of x that at least one entry of a list reads.
    out.cached = lists * pixels * blocks *
                 (1 - std::pow(1 - std::min(1.0, of_list / (16 * blocks)), 16)) * 64;
    out.listed = std::exchange(out.prepared, 0);
  }
  return out;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  const Places places(z);
  const auto bytes = static_cast<std::size_t>(places.floats()) * sizeof(float);
  if (direction == Direction::backward_weight) return bytes + sums_bytes(places.computed);
  return std::max(bytes, index_scratch(BlockSparseTiling(places.computed, direction)));
}

const Conv2dAlgorithm kAlgorithm{
    .name = "block_sparse",
    .device = DeviceType::cpu,
    .idea = "only the kept weights: lists of (c,r,s), each with 16 output channels",
    .paper = "Elsen et al. 2020: Fast Sparse ConvNets, arXiv 1911.09723",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_sparse_weights = true,
    .takes_nchw16c_layout = true,
    .takes_nchw_x = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
