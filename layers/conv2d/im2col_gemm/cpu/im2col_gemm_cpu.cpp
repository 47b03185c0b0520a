// SPDX-License-Identifier: Apache-2.0
// im2col_gemm_cpu.cpp: convolution as a matrix product over columns: each output pixel's C/G R S
// inputs form one column, packed a panel at a time and never as a whole matrix.
//
// Formula    y[k,(n,p,q)] = b[k] + sum over (c,r,s) of w[k,(c,r,s)] col[(c,r,s),(n,p,q)],
//            col[(c,r,s),(n,p,q)] = x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                                   q stride_w - pad_left + s dilation_w], or 0
// Textbook   for each image: col = im2col(x)      # [C/G R S, P Q]
//                            y = w * col + b      # [K/G, P Q]
//            dcol = w^T * dy; dx = col2im(dcol);  dw += dy * col^T
// Method     forward: pixels run through all images. kPanels panels, each as wide as a register
//            tile, are packed for kDepth rows of columns. Then every tile of weights, packed before
//            the call (prepare_weights), is multiplied with these panels. A panel that crosses into
//            the next image goes through a small buffer.
//            backward_data: for one image and a few channels, columns = w^T dy by the same tile,
//            with w and dy read in place. Then each pixel of dx gathers its columns.
//            backward_weight: pixels are in the vector lanes. Columns are packed for a block of
//            kernel rows and a block of pixels. Dot products of dy rows with column rows stay in
//            registers over the whole block. Threads take chunks that depend on the problem's sizes
//            only.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], f32 row-major, any alignment; sums in f32
// Supports   f32; every stride, dilation, padding and number of groups
// Cost       FLOPs = 2 N K P Q (C/G) R S in each direction, including columns that are in the
//            padding; bytes = the three tensors once, since panels stay in L2; workspace = the
//            panels of each thread. Compute-bound from K/G = 16 on. With fewer kernels the time of
//            packing is visible: 2 cycles for a vector, which K/G FMAs then use
// Numerics   one rounding per FMA, in chains (framework/simd/sum_chain.h); backward_weight sums
//            pixels in lanes, then blocks in order. Same bits on each run and for any number of
//            threads; exact on integers below 2^24.
// Backward   dx = col2im(w^T dy), assigned; dw = dy col^T, assigned or added to
// Choices    kDepth 384: a weight tile 14 x 384 x 4 B = 21 KiB stays in L1
//            kPanels 4: 4 x 384 x 32 x 4 B = 192 KiB of L2
//            kPixels 768, kColumnRows 48: 144 KiB of columns in L2, 6 rows of dy (18 KiB) in L1
// Source     K. Chellapilla, S. Puri, P. Simard 2006, hal inria-00112631; M. Cho, D. Brand: MEC,
//            2017, arXiv 1706.06873, which also argues against storing the whole matrix
// Read next  reference_cpu.cpp, the same sums without panels; framework/ops/gemm/gemm_simd.cpp, the
//            register tile
#include <algorithm>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/epilogue.h"
#include "layers/conv2d/shared/columns.h"
#include "layers/conv2d/shared/tiles.h"

namespace convscope {

namespace {

using Index = std::int64_t;

constexpr Index kDepth = 384;               // rows of columns packed at a time
constexpr Index kPanels = 4;                // panels packed at a time
constexpr Index kPixels = 768;              // backward_weight: pixels packed at a time
constexpr Index kColumnRows = 48;           // backward_weight: rows of columns packed at a time
constexpr Index kColumnFloats = 64 * 1024;  // backward_data: columns held at a time, 256 KiB
constexpr Index kDataChunks = 8;            // backward_data: least number of chunks
constexpr double kChunkFlops = 1e6;         // about 10 us of one core, enough work for a thread

std::size_t piece_bytes(Index floats) {
  return ScratchArena::round_up(static_cast<std::size_t>(floats) * sizeof(float));
}

// The sizes that every direction needs.
struct Im2colShape {
  explicit Im2colShape(const Conv2dProblem& z)
      : groups(z.groups),
        channels(z.c_per_group()),
        kernels(z.k_per_group()),
        taps(z.r * z.s),
        depth(channels * taps),
        plane(z.p() * z.q()),
        pixels(z.n * plane),
        kernel_rows(channels * z.r),
        rows_per_block(std::max<Index>(1, std::min(kernel_rows, kDepth / z.s))),
        block_depth(rows_per_block * z.s) {}

  Index groups, channels, kernels;  // G, C/G, K/G
  Index taps, depth;                // R S, C/G R S
  Index plane, pixels;              // P Q, N P Q
  Index kernel_rows;                // (c, r) pairs of a group
  Index rows_per_block, block_depth;
};

// ---- forward -----------------------------------------------------------------------------------

// Cuts the forward pass into runs of panels. A run has at least kChunkFlops FLOPs, unless the
// threads would then have too few runs.
struct Im2colForwardTiling {
  Im2colForwardTiling(const Im2colShape& z, Index panel_width)
      : width(panel_width), panels(ceil_div(z.pixels, width)), panels_per_chunk(1), chunks(0) {
    const double flops = 2.0 * static_cast<double>(z.kernels * z.depth * width);  // of a panel
    const auto wanted = static_cast<Index>(kChunkFlops / flops) + 1;
    panels_per_chunk =
        std::max<Index>(1, std::min(std::max(wanted, kPanels), ceil_div(panels, 16)));
    chunks = ceil_div(panels, panels_per_chunk);
  }
  Index width, panels, panels_per_chunk, chunks;
};

Index thread_floats_forward(const Im2colShape& z, Index width) {
  return kPanels * width * z.block_depth + kPanels * width * z.kernels;
}

// Packs weights as tiles of [block length, tile height], for each group and block of the reduction.
void pack_weights(const Im2colShape& z, const float* w, float* packed) {
  const GemmKernels& gemm = gemm_kernels.get();
  const RowTiles tiles(z.kernels, gemm.rows);
  parallel_for(z.groups * tiles.tiles, std::max<Index>(1, 32768 / (gemm.rows * z.depth)),
               [&](Index begin, Index end) {
                 for (Index job = begin; job < end; ++job) {
                   const Index g = job / tiles.tiles;
                   const Index tile = job % tiles.tiles;
                   const Index k = tiles.begin(tile);
                   for (Index d = 0; d < z.depth; d += z.block_depth) {
                     const Index depth = std::min(z.block_depth, z.depth - d);
                     gemm.transpose(w + (g * z.kernels + k) * z.depth + d, z.depth,
                                    tiles.height(tile), depth,
                                    packed + g * z.kernels * z.depth + d * z.kernels + k * depth,
                                    tiles.height(tile));
                   }
                 }
               });
}

// Returns 0 for backward_data, which reads w^T in place.
std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  const Im2colShape z(problem);
  return direction == Direction::forward ? piece_bytes(z.groups * z.kernels * z.depth) : 0;
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack_weights(Im2colShape(args.problem), static_cast<const float*>(args.w),
               static_cast<float*>(args.prepared));
}

class Forward {
 public:
  explicit Forward(const Conv2dForwardArgs& args)
      : problem_(args.problem),
        z_(args.problem),
        map_(args.problem),
        gemm_(gemm_kernels.get()),
        columns_(column_kernels.get()),
        plan_(z_, gemm_.columns),
        x_(static_cast<const float*>(args.x)),
        b_(static_cast<const float*>(args.b)),
        y_(static_cast<float*>(args.y)),
        weights_(static_cast<const float*>(args.prepared)),
        scratch_(static_cast<float*>(args.workspace)),
        epilogue_(args) {}

  void run() const {
    parallel_chunks(plan_.chunks * z_.groups, [&](Index chunk, int thread) {
      const Index g = chunk / plan_.chunks;
      const Index begin = chunk % plan_.chunks * plan_.panels_per_chunk;
      const Index end = std::min(begin + plan_.panels_per_chunk, plan_.panels);
      float* const scratch =
          scratch_ + thread * (piece_bytes(thread_floats_forward(z_, plan_.width)) / sizeof(float));
      for (Index panel = begin; panel < end; panel += kPanels) {
        run_panels(g, panel, std::min(panel + kPanels, end), scratch);
      }
    });
  }

 private:
  // Destination of a panel's results: y itself if all pixels of the panel are of one image,
  // otherwise a buffer.
  struct Target {
    float* c;
    Index row;
    bool buffered;
  };

  Target target_of(Index g, Index panel, Index first, float* buffer) const {
    const Index pixel = panel * plan_.width;
    const Index n = pixel / z_.plane;
    if (pixel % z_.plane + count_of(panel) > z_.plane) {
      return {buffer + (panel - first) * plan_.width * z_.kernels, plan_.width, true};
    }
    return {y_ + (n * z_.groups + g) * z_.kernels * z_.plane + pixel % z_.plane, z_.plane, false};
  }
  Index count_of(Index panel) const {
    return std::min(plan_.width, z_.pixels - panel * plan_.width);
  }

  void run_panels(Index g, Index begin, Index end, float* scratch) const {
    float* const packed = scratch;                                           // [panel][rows, width]
    float* const buffer = scratch + kPanels * plan_.width * z_.block_depth;  // [panel][K/G, width]
    const float* const x = x_ + g * z_.channels * map_.channel_step;
    const RowTiles tiles(z_.kernels, gemm_.rows);
    for (Index row = 0; row < z_.kernel_rows; row += z_.rows_per_block) {
      const Index row_end = std::min(row + z_.rows_per_block, z_.kernel_rows);
      const Index depth = (row_end - row) * problem_.s;
      for (Index panel = begin; panel < end; ++panel) {
        columns_.pack(map_, x, panel * plan_.width, count_of(panel), row, row_end,
                      packed + (panel - begin) * plan_.width * z_.block_depth, plan_.width);
      }
      const float* const weights =
          weights_ + g * z_.kernels * z_.depth + row * problem_.s * z_.kernels;
      for (Index t = 0; t < tiles.tiles; ++t) {
        const Index k = tiles.begin(t);
        GemmTile tile;
        tile.rows = tiles.height(t);
        tile.depth = depth;
        tile.a = weights + k * depth;
        tile.a_step = tile.rows;
        tile.b_step = plan_.width;
        tile.bias = b_ == nullptr ? nullptr : b_ + g * z_.kernels + k;
        tile.accumulate = row > 0;
        for (Index panel = begin; panel < end; ++panel) {
          const Target to = target_of(g, panel, begin, buffer);
          tile.columns = static_cast<int>(count_of(panel));
          tile.b = packed + (panel - begin) * plan_.width * z_.block_depth;
          tile.c = to.c + k * to.row;
          tile.c_row = to.row;
          gemm_.tile(tile);
        }
      }
    }
    for (Index panel = begin; panel < end; ++panel) {
      const Target from = target_of(g, panel, begin, buffer);
      if (from.buffered) {
        copy_out(g, panel, from.c);
      } else {
        epilogue_.finish(from.c, z_.kernels, count_of(panel), from.row);
      }
    }
  }

  void copy_out(Index g, Index panel, const float* buffer) const {
    const Index first = panel * plan_.width;
    for (Index done = 0; done < count_of(panel);) {
      const Index n = (first + done) / z_.plane;
      const Index at = (first + done) % z_.plane;
      const Index run = std::min(z_.plane - at, count_of(panel) - done);
      for (Index k = 0; k < z_.kernels; ++k) {
        const float* from = buffer + k * plan_.width + done;
        float* const to = y_ + ((n * z_.groups + g) * z_.kernels + k) * z_.plane + at;
        std::copy(from, from + run, to);
        epilogue_.finish(to, 1, run, 0);
      }
      done += run;
    }
  }

  const Conv2dProblem& problem_;
  const Im2colShape z_;
  const ColumnMap map_;
  const GemmKernels gemm_;
  const ColumnKernels columns_;
  const Im2colForwardTiling plan_;
  const float* const x_;
  const float* const b_;
  float* const y_;
  const float* const weights_;
  float* const scratch_;
  const FusedEpilogue epilogue_;
};

void forward(const Conv2dForwardArgs& args) { Forward(args).run(); }

// ---- backward_data -----------------------------------------------------------------------------

// Returns how many channels of x a chunk has. The limits are the columns that fit into
// kColumnFloats floats, and a size that gives several threads chunks even with one image. Channels
// are independent, so the chunk size does not change any sum.
Index channels_at_once(const Conv2dProblem& problem, const Im2colShape& z) {
  const Index fit = std::max<Index>(1, kColumnFloats / (z.taps * round_up(z.plane, 16)));
  const auto worth = static_cast<Index>(problem.nominal_flops() / kChunkFlops);
  const Index images = std::max<Index>(1, problem.n * z.groups);
  const Index wanted =
      std::clamp<Index>(ceil_div(kDataChunks, images), 1, std::max<Index>(1, worth / images));
  const Index share = round_up(ceil_div(z.channels, wanted), gemm_kernels.get().rows);
  return std::min({fit, share, z.channels});
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& problem = args.problem;
  const Im2colShape z(problem);
  const ColumnMap map(problem);
  const GemmKernels& gemm = gemm_kernels.get();
  const ColumnKernels& kernels = column_kernels.get();
  const auto* const dy = static_cast<const float*>(args.dy);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const dx = static_cast<float*>(args.dx);
  const Index at_once = channels_at_once(problem, z);
  const Index blocks = ceil_div(z.channels, at_once);
  const Index step = round_up(z.plane, 16);
  const Index thread_floats = at_once * z.taps * step;
  parallel_chunks(problem.n * z.groups * blocks, [&](Index chunk, int thread) {
    const Index image = chunk / blocks;  // n G + g
    const Index g = image % z.groups;
    const Index c = chunk % blocks * at_once;
    const Index channels = std::min(at_once, z.channels - c);
    auto* const columns =
        static_cast<float*>(args.workspace) + thread * (piece_bytes(thread_floats) / sizeof(float));
    const RowTiles tiles(channels * z.taps, gemm.rows);
    for (Index t = 0; t < tiles.tiles; ++t) {
      GemmTile tile;
      tile.rows = tiles.height(t);
      tile.depth = z.kernels;
      tile.a = w + g * z.kernels * z.depth + c * z.taps + tiles.begin(t);  // w^T, read in place
      tile.a_step = z.depth;
      tile.b_step = z.plane;
      tile.c_row = step;
      for (Index q = 0; q < z.plane; q += gemm.columns) {
        tile.columns = static_cast<int>(std::min<Index>(gemm.columns, z.plane - q));
        tile.b = dy + image * z.kernels * z.plane + q;
        tile.c = columns + tiles.begin(t) * step + q;
        gemm.tile(tile);
      }
    }
    kernels.unpack(map, columns, step, channels, dx + (image * z.channels + c) * map.channel_step);
  });
}

// ---- backward_weight ---------------------------------------------------------------------------

// Cuts pixels into blocks. A block is a part of one image, or several whole images. Consecutive
// blocks form a slice. A chunk computes the sums of one slice for one block of kernel rows. With
// several slices each slice has its own copy of dw, and the copies are added in order.
struct Im2colWeightTiling {
  explicit Im2colWeightTiling(const Conv2dProblem& problem)
      : Im2colWeightTiling(problem, Im2colShape(problem)) {}
  Im2colWeightTiling(const Conv2dProblem& problem, const Im2colShape& z)
      : images(std::max<Index>(1, std::min(problem.n, kPixels / std::max<Index>(1, z.plane)))),
        parts(images > 1 ? 1 : ceil_div(z.plane, kPixels)),
        part_pixels(images > 1 ? z.plane : round_up(ceil_div(z.plane, parts), 16)),
        blocks(images > 1 ? ceil_div(problem.n, images) : problem.n * parts),
        block_pixels(images * part_pixels),
        step(round_up(block_pixels, 16) +
             16),  // rows shifted by a cache line, to use different cache sets
        row_blocks(ceil_div(z.kernel_rows, std::max<Index>(1, kColumnRows / problem.s))),
        rows_at_once(ceil_div(z.kernel_rows, row_blocks)) {
    const Index wanted = ceil_div(16, std::max<Index>(1, z.groups * row_blocks));
    const auto worth = static_cast<Index>(problem.nominal_flops() / kChunkFlops) + 1;
    const Index room =
        std::max<Index>(1, (Index{1} << 22) / std::max<Index>(1, z.kernels * z.depth * z.groups));
    // No slice adds more than kSumChain totals to a sum (framework/simd/sum_chain.h).
    const Index totals = ceil_div(block_pixels, kSumChain * tile_kernels.get().lanes);
    const Index chains = std::min(blocks, ceil_div(blocks * totals, Index{kSumChain}));
    slices = std::max({Index{1}, chains, std::min({wanted, worth, blocks, room})});
  }
  Index images, parts, part_pixels, blocks, block_pixels, step;
  Index row_blocks, rows_at_once, slices = 1;
};

Index thread_floats_weight(const Conv2dProblem& problem, const Im2colWeightTiling& plan) {
  return (plan.rows_at_once * problem.s + (plan.images > 1 ? problem.k_per_group() : 0)) *
         plan.step;
}

class BackwardWeight {
 public:
  explicit BackwardWeight(const Conv2dBackwardWeightArgs& args)
      : problem_(args.problem),
        z_(args.problem),
        map_(args.problem),
        plan_(args.problem),
        kernels_(column_kernels.get()),
        x_(static_cast<const float*>(args.x)),
        dy_(static_cast<const float*>(args.dy)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate),
        slices_(static_cast<float*>(args.workspace)),
        scratch_(slices_ + piece_bytes(plan_.slices * dw_count()) / sizeof(float)) {}

  void run() const {
    parallel_chunks(z_.groups * plan_.row_blocks * plan_.slices, [&](Index chunk, int thread) {
      const Index slice = chunk % plan_.slices;
      const Index block = chunk / plan_.slices % plan_.row_blocks;
      const Index g = chunk / plan_.slices / plan_.row_blocks;
      sum_slice(
          slice, g, block * plan_.rows_at_once,
          scratch_ + thread * (piece_bytes(thread_floats_weight(problem_, plan_)) / sizeof(float)));
    });
    parallel_for(dw_count(), 1 << 14, [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        float sum = accumulate_ ? dw_[i] : 0.0f;
        for (Index slice = 0; slice < plan_.slices; ++slice) sum += slices_[slice * dw_count() + i];
        dw_[i] = sum;
      }
    });
  }

 private:
  Index dw_count() const { return z_.groups * z_.kernels * z_.depth; }

  void sum_slice(Index slice, Index g, Index row, float* scratch) const {
    const Index row_end = std::min(row + plan_.rows_at_once, z_.kernel_rows);
    if (row >= row_end) return;
    const Index depth = (row_end - row) * problem_.s;
    float* const columns = scratch;                                                 // [rows, step]
    float* const dy_rows = scratch + plan_.rows_at_once * problem_.s * plan_.step;  // [K/G, step]
    float* const sums = slices_ + slice * dw_count() + g * z_.kernels * z_.depth + row * problem_.s;
    for (Index k = 0; k < z_.kernels; ++k) std::fill_n(sums + k * z_.depth, depth, 0.0f);
    const Index begin = slice * plan_.blocks / plan_.slices;
    const Index end = (slice + 1) * plan_.blocks / plan_.slices;
    for (Index block = begin; block < end; ++block) {
      const Index n = block / plan_.parts * plan_.images;
      const Index first = block % plan_.parts * plan_.part_pixels;
      const Index images = std::min(plan_.images, problem_.n - n);
      const Index count =
          images > 1 ? images * z_.plane : std::min(plan_.part_pixels, z_.plane - first);
      if (count <= 0) continue;
      kernels_.pack(map_, x_ + g * z_.channels * map_.channel_step, n * z_.plane + first, count,
                    row, row_end, columns, plan_.step);
      const float* left = dy_ + (n * z_.groups + g) * z_.kernels * z_.plane + first;
      Index left_step = z_.plane;
      if (images > 1) {
        for (Index i = 0; i < images; ++i) {
          for (Index k = 0; k < z_.kernels; ++k) {
            const float* from = left + (i * z_.groups * z_.kernels + k) * z_.plane;
            std::copy(from, from + z_.plane, dy_rows + k * plan_.step + i * z_.plane);
          }
        }
        left = dy_rows;
        left_step = plan_.step;
      }
      kernels_.dot(left, left_step, z_.kernels, columns, plan_.step, depth, count, sums, z_.depth);
    }
  }

  const Conv2dProblem& problem_;
  const Im2colShape z_;
  const ColumnMap map_;
  const Im2colWeightTiling plan_;
  const ColumnKernels kernels_;
  const float* const x_;
  const float* const dy_;
  float* const dw_;
  const bool accumulate_;
  float* const slices_;
  float* const scratch_;
};

void backward_weight(const Conv2dBackwardWeightArgs& args) { BackwardWeight(args).run(); }

// ---- algorithm ---------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype == DType::f32) return {};
  return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const Im2colShape shape(z);
  const GemmKernels& gemm = gemm_kernels.get();
  const Index lanes = tile_kernels.get().lanes;
  const double groups = number(shape.groups);
  const double columns = number(shape.depth) * number(shape.pixels) * groups;
  Conv2dCost out{.flops = z.nominal_flops(), .bytes = z.nominal_bytes()};
  if (direction == Direction::forward) {
    const Im2colForwardTiling plan(shape, gemm.columns);
    const double tiles = groups * number(plan.panels * ceil_div(shape.kernels, Index{gemm.rows}) *
                                         ceil_div(shape.kernel_rows, shape.rows_per_block));
    const RowTiles rows(shape.kernels, gemm.rows);
    const Index vectors = ceil_div(shape.pixels, lanes);
    const Index at_once = std::min(vectors, plan.width / lanes);
    out.issued = 2 * groups * number(vectors) / number(at_once) *
                 number(rows.tiles * lanes * shape.depth) * slots(at_once * rows.height(0));
    out.loads = groups * number(vectors) * number(rows.tiles * shape.depth);
    // Panels that end in the next image pass through a buffer.
    const Index borders = shape.plane % plan.width == 0 ? 0 : z.n - 1;
    out.transposed =
        number(std::min(plan.panels, borders)) * number(plan.width * shape.kernels) * groups;
    out.tiles = tiles;
    out.copied = columns;
    // A row of columns is copied in pieces of one row of the image.
    out.listed = groups * number((plan.panels + z.n * z.p()) * shape.depth);
    out.cached = number(ceil_div(plan.panels, kPanels) * z.w_shape().numel()) * sizeof(float);
    out.prepared = number(z.w_shape().numel());
    out.chunks = number(plan.chunks * shape.groups);
    out.schedule = z.stride_w > 1 ? "strided" : "";
    return out;
  }
  if (direction == Direction::backward_data) {
    const Index at_once = channels_at_once(z, shape);
    const Index blocks = ceil_div(shape.channels, at_once);
    const double images = number(z.n * shape.groups);
    const RowTiles rows(at_once * shape.taps, gemm.rows);
    const Index vectors = ceil_div(shape.plane, lanes);
    const Index together = std::min<Index>(vectors, gemm.columns / lanes);
    const double row_tiles = images * number(blocks * rows.tiles);
    out.issued = 2 * row_tiles * number(vectors) / number(together) *
                 number(lanes * shape.kernels) * slots(together * rows.height(0));
    out.loads = row_tiles * number(vectors * shape.kernels);
    out.tiles = row_tiles * number(ceil_div(shape.plane, Index{gemm.columns}));
    // Each image reads w again.
    out.cached = number(z.n * z.w_shape().numel()) * sizeof(float);
    out.transposed = columns;  // added to dx
    out.listed = images * number(shape.channels * shape.taps * z.p());
    out.chunks = images * number(blocks);
    out.schedule = z.stride_w > 1 ? "strided" : "";
    return out;
  }
  const Im2colWeightTiling plan(z, shape);
  const double blocks = number(z.n) / number(plan.images) * number(plan.parts);
  const double sums = groups * number(shape.kernels * shape.depth);
  out.issued = 2 * sums * blocks * number(round_up(plan.block_pixels, lanes));
  out.tiles = sums * blocks;  // a sum across lanes for each element of dw
  out.copied = columns + sums * number(plan.slices) +
               (plan.images > 1 ? number(z.y_shape().numel() * plan.row_blocks) : 0);
  out.listed = groups * number(z.n * z.p() * shape.kernel_rows * z.s);
  out.regions = 2;
  out.chunks = groups * number(plan.row_blocks * plan.slices);
  out.schedule = z.stride_w > 1 ? "strided" : "";
  return out;
}

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  const Im2colShape z(problem);
  const auto threads = static_cast<std::size_t>(num_threads());
  if (direction == Direction::forward) {
    return threads * piece_bytes(thread_floats_forward(z, gemm_kernels.get().columns));
  }
  if (direction == Direction::backward_data) {
    return threads * piece_bytes(channels_at_once(problem, z) * z.taps * round_up(z.plane, 16));
  }
  const Im2colWeightTiling plan(problem);
  return piece_bytes(plan.slices * z.groups * z.kernels * z.depth) +
         threads * piece_bytes(thread_floats_weight(problem, plan));
}

const Conv2dAlgorithm kAlgorithm{
    .name = "im2col_gemm",
    .device = DeviceType::cpu,
    .idea = "a matrix product over columns of inputs, packed a panel at a time",
    .paper = "Chellapilla, Puri, Simard 2006: High Performance CNNs for Document Processing",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
