// SPDX-License-Identifier: Apache-2.0
// gemm_1x1_cpu.cpp: pointwise convolution. For a 1x1 kernel an image of NCHW planes is already a
// matrix [C, P Q], so the convolution is one matrix product for each image, without im2col.
//
// Formula    y[n,k,p,q] = b[k] + sum over c of w[k,c] x[n, g C/G + c, p stride_h, q stride_w]
// Textbook   for n: y[n] = w x[n] + b           # [K,C] [C,PQ]
//                   dx[n] = w^T dy[n]           # [C,K] [K,PQ]
//                   dw += dy[n] x[n]^T          # [K,PQ] [PQ,C]
// Method     Forward and backward_data are one product. Weights are packed in tiles of rows before
//            the call (prepare_weights). A panel is the pixels of one register tile with all
//            channels of the reduction. On large planes, panels are read without a copy. All panels
//            of a group are multiplied by one tile of weights before the next tile, so the tile
//            stays in L1 and stores go to long runs of a row. The next group is prefetched
//            meanwhile, because each channel is on a new page and the hardware's prefetcher stops
//            at page borders. On small planes and with stride > 1, panels continue over all images
//            and are packed. The lines of y that a tile stores to are prefetched before its
//            products. backward_data with stride > 1 computes the pixels that forward reads, then
//            writes zeros between them. In backward_weight dy is transposed to k in the lanes,
//            pixels of 14 planes of x are broadcast, and 28 accumulators stay in registers over a
//            run of pixels.
// Shapes     x [N,C,H,W], w [K,C/G,1,1], y [N,K,P,Q], f32 row-major, any alignment; f32
//            accumulators
// Supports   f32 with a 1x1 kernel and no padding; every stride and number of groups
// Cost       FLOPs = 2 N K P Q C/G; bytes = the three tensors once; workspace = panels of each
//            thread (backward_weight: dw in lanes for each slice). Memory-bound under about 30
//            channels, where 2 / (1/K + 1/C) FLOPs a float is below the ridge
// Numerics   one rounding per FMA in the order of c (dw: of pixels, slices in order), in chains
//            (framework/simd/sum_chain.h); same bits on each run and for any number of threads;
//            exact on integers below 2^24
// Backward   dx assigned; dw assigned or added to (its sums start from dw)
// Choices    kLargePlane 512 pixels: from 16 panels on, the partial last panel of a plane costs
//            less than packing. kPanelFloats 64 Ki: 256 KiB of L2 for packed panels. kRun 256
//            pixels: 32 KiB of dy in lanes and 14 KiB of 14 planes of x
// Source     M. Lin, Q. Chen, S. Yan 2013: Network In Network, arXiv 1312.4400
// Read next  im2col_gemm_cpu.cpp, for kernels of any size; framework/ops/gemm/gemm_simd.cpp, the
//            tile
#include <algorithm>
#include <array>

#include "framework/int_math.h"
#include "framework/memory/memory.h"
#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/shared/data_pass.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/conv2d/shared/weight_sums.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr Index kLargePlane = 512;
constexpr Index kPanelFloats = 64 * 1024;
constexpr Index kRun = 256;
constexpr Index kSlices = 8;
constexpr double kChunkFlops = 1e6;
constexpr Index kMaxPanels = 8;
constexpr Index kMaxPixels = kMaxPanels * 32;  // no instruction set has wider panels

bool strided(const Conv2dProblem& z) { return z.stride_h != 1 || z.stride_w != 1; }

// ---- forward, backward_data: out[rows, pixels] = weights[rows, `depth`] in[`depth`, pixels] -----

struct Gemm1x1Tiling {
  Gemm1x1Tiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction == Direction::forward),
        depth(forward ? z.c_per_group() : z.k_per_group()),
        rows(forward ? z.k_per_group() : z.c_per_group()),
        plane(z.p() * z.q()),
        width(gemm_kernels.get().columns),
        spread(!forward && strided(z)),
        in_place(spread || (plane >= kLargePlane && (!forward || !strided(z)))),
        tiles(rows, gemm_kernels.get().rows) {
    const double flops = 2.0 * static_cast<double>(rows * depth * width);  // FLOPs of a panel
    const auto worth = static_cast<Index>(kChunkFlops / flops) + 1;
    if (in_place) {
      panels = ceil_div(plane, width);
      group = std::clamp<Index>(kPanelFloats / (depth * width), 1, kMaxPanels);
      panels_at_once = std::min(panels, std::max<Index>(worth, 4 * group));
      if (spread) panels_at_once = panels;  // a chunk of work is a whole plane of dx
      chunks = z.n * ceil_div(panels, panels_at_once);
    } else {
      panels = ceil_div(z.n * plane, width);
      panels_at_once = std::clamp<Index>(kPanelFloats / (depth * width), 1, kMaxPanels);
      panels_at_once = std::min(panels_at_once, ceil_div(panels, kSlices));
      chunks = ceil_div(panels, panels_at_once);
    }
    // If there are few chunks of pixels, the output channels of each chunk are split into `splits`
    // chunks.
    splits = std::clamp<Index>(ceil_div(kSlices, chunks * z.groups), 1, tiles.tiles);
    if (z.nominal_flops() < kChunkFlops) splits = 1;
  }

  Index weight_floats() const { return piece_floats(z.groups * rows * depth); }
  Index thread_floats() const {
    if (spread) return piece_floats(rows * plane);
    return in_place ? 0 : piece_floats(panels_at_once * width * (depth + rows));
  }

  const Conv2dProblem& z;
  bool forward;
  Index depth, rows, plane, width;
  bool spread, in_place;
  RowTiles tiles;
  Index panels = 0, panels_at_once = 1, chunks = 0, splits = 1;
  Index group = 1;  // panels read without a copy that share a tile of weights
};

// ---- weights ------------------------------------------------------------------------------------

// Packs w in tiles of [`depth`, height], in the order in which a product reads them.
void pack_weights(const Gemm1x1Tiling& plan, const float* w, float* packed) {
  const GemmKernels& gemm = gemm_kernels.get();
  parallel_for(plan.z.groups * plan.tiles.tiles, std::max<Index>(1, 4096 / plan.depth),
               [&](Index begin, Index end) {
                 for (Index job = begin; job < end; ++job) {
                   const Index g = job / plan.tiles.tiles;
                   const Index row = plan.tiles.begin(job % plan.tiles.tiles);
                   const int height = plan.tiles.height(job % plan.tiles.tiles);
                   float* const to = packed + (g * plan.rows + row) * plan.depth;
                   if (plan.forward) {
                     gemm.transpose(w + (g * plan.rows + row) * plan.depth, plan.depth, height,
                                    plan.depth, to, height);
                     continue;
                   }
                   const PixelRun run{.count = height};
                   tile_kernels.get().copy_runs(w + g * plan.depth * plan.rows + row, plan.rows,
                                                plan.depth, &run, 1, 1, to, height);
                 }
               });
}

std::size_t prepared_bytes(const Conv2dProblem& problem, Direction direction) {
  return static_cast<std::size_t>(Gemm1x1Tiling(problem, direction).weight_floats()) *
         sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack_weights(Gemm1x1Tiling(args.problem, args.direction), static_cast<const float*>(args.w),
               static_cast<float*>(args.prepared));
}

// ---- the product --------------------------------------------------------------------------------

class Product {
 public:
  Product(const Gemm1x1Tiling& plan, const DataPass& data)
      : plan_(plan), z_(plan.z), gemm_(gemm_kernels.get()), data_(data) {}

  void run() const {
    const Index per_group = plan_.chunks * plan_.splits;
    parallel_chunks(z_.groups * per_group, [&](Index chunk, int thread) {
      const Index g = chunk / per_group;
      const Index split = chunk % plan_.splits;
      const Index begin = split * plan_.tiles.tiles / plan_.splits;
      const Index end = (split + 1) * plan_.tiles.tiles / plan_.splits;
      const Index piece = chunk / plan_.splits % plan_.chunks;
      float* const scratch = data_.workspace + thread * plan_.thread_floats();
      if (plan_.in_place) {
        run_in_place(g, piece, begin, end, scratch);
      } else {
        run_packed(g, piece * plan_.panels_at_once, begin, end, scratch);
      }
    });
  }

 private:
  GemmTile tile_of(Index g, Index t) const {
    GemmTile tile;
    tile.rows = plan_.tiles.height(t);
    tile.depth = plan_.depth;
    tile.a = data_.prepared + (g * plan_.rows + plan_.tiles.begin(t)) * plan_.depth;
    tile.a_step = tile.rows;
    tile.bias = data_.b == nullptr ? nullptr : data_.b + g * plan_.rows + plan_.tiles.begin(t);
    return tile;
  }

  void run_tile(const GemmTile& tile) const {
    for (int i = 0; i < tile.rows; ++i) {
      const float* const row = tile.c + i * tile.c_row;
      for (int j = 0; j < tile.columns; j += 16) __builtin_prefetch(row + j, 1);
    }
    gemm_.tile(tile);
    data_.epilogue.finish(tile.c, tile.rows, tile.columns, tile.c_row);
  }

  void run_in_place(Index g, Index piece, Index t_begin, Index t_end, float* scratch) const {
    const Index pieces = ceil_div(plan_.panels, plan_.panels_at_once);
    const Index image = piece / pieces * z_.groups + g;
    const Index first = piece % pieces * plan_.panels_at_once;
    const Index last = std::min(first + plan_.panels_at_once, plan_.panels);
    const float* const in = data_.in + image * plan_.depth * plan_.plane;
    float* const out = plan_.spread ? scratch : data_.out + image * plan_.rows * plan_.plane;
    for (Index begin = first; begin < last; begin += plan_.group) {
      const Index end = std::min(begin + plan_.group, last);
      for (Index t = t_begin; t < t_end; ++t) {
        if (end < last) {
          const Index ask_end = (t - t_begin + 1) * plan_.depth / (t_end - t_begin);
          const Index floats = std::min(plan_.group, last - end) * plan_.width;
          for (Index d = (t - t_begin) * plan_.depth / (t_end - t_begin); d < ask_end; ++d) {
            const float* const next = in + d * plan_.plane + end * plan_.width;
            for (Index j = 0; j < floats; j += 16) __builtin_prefetch(next + j, 0, 2);
          }
        }
        GemmTile tile = tile_of(g, t);
        tile.b_step = plan_.plane;
        tile.c_row = plan_.plane;
        for (Index panel = begin; panel < end; ++panel) {
          const Index pixel = panel * plan_.width;
          tile.columns = static_cast<int>(std::min(plan_.width, plan_.plane - pixel));
          tile.b = in + pixel;
          tile.c = out + plan_.tiles.begin(t) * plan_.plane + pixel;
          run_tile(tile);
        }
      }
    }
    if (plan_.spread) {
      for (Index t = t_begin; t < t_end; ++t) {
        for (Index i = plan_.tiles.begin(t); i < plan_.tiles.begin(t + 1); ++i) {
          spread_plane(scratch + i * plan_.plane,
                       data_.out + (image * plan_.rows + i) * z_.h * z_.w);
        }
      }
    }
  }

  // Writes dx: the computed pixels, with zeros between them.
  void spread_plane(const float* from, float* dx) const {
    std::fill_n(dx, z_.h * z_.w, 0.0f);
    const Index q = z_.q();
    for (Index p = 0; p < z_.p(); ++p) {
      float* const row = dx + p * z_.stride_h * z_.w;
      for (Index i = 0; i < q; ++i) row[i * z_.stride_w] = from[p * q + i];
    }
  }

  void run_packed(Index g, Index first, Index t_begin, Index t_end, float* scratch) const {
    const Index last = std::min(first + plan_.panels_at_once, plan_.panels);
    float* const packed = scratch;  // [panel][depth]
    float* const buffer = scratch + plan_.panels_at_once * plan_.width * plan_.depth;  // [rows]
    const Index pixels = z_.n * plan_.plane;
    const auto count_of = [&](Index panel) {
      return std::min(plan_.width, pixels - panel * plan_.width);
    };
    std::array<PixelRun, kMaxPixels> runs;
    const Index run_count = list_runs(
        g, first * plan_.width, std::min(last * plan_.width, pixels) - first * plan_.width, runs);
    tile_kernels.get().copy_runs(data_.in, plan_.forward ? z_.h * z_.w : plan_.plane, plan_.depth,
                                 runs.data(), run_count, plan_.forward ? z_.stride_w : 1, packed,
                                 plan_.width);
    for (Index t = t_begin; t < t_end; ++t) {
      GemmTile tile = tile_of(g, t);
      tile.b_step = plan_.width;
      for (Index panel = first; panel < last; ++panel) {
        const Index pixel = panel * plan_.width;
        const Index n = pixel / plan_.plane;
        tile.columns = static_cast<int>(count_of(panel));
        tile.b = packed + (panel - first) * plan_.width * plan_.depth;
        if (pixel % plan_.plane + tile.columns <= plan_.plane) {
          tile.c = data_.out +
                   ((n * z_.groups + g) * plan_.rows + plan_.tiles.begin(t)) * plan_.plane +
                   pixel % plan_.plane;
          tile.c_row = plan_.plane;
          run_tile(tile);
          continue;
        }
        tile.c = buffer;  // the panel continues in the next image
        tile.c_row = plan_.width;
        gemm_.tile(tile);
        copy_out(g, plan_.tiles.begin(t), tile, pixel);
      }
    }
  }
  // Splits `count` pixels from `pixel` on into runs. The pixels of a run are neighbours in `in` and
  // belong to one panel. Returns the number of runs.
  Index list_runs(Index g, Index pixel, Index count, std::array<PixelRun, kMaxPixels>& runs) const {
    const bool gaps = strided(z_);  // then a run ends at the end of its row
    const Index row = gaps ? z_.q() : plan_.plane;
    const Index in_plane = plan_.forward ? z_.h * z_.w : plan_.plane;
    std::size_t found = 0;
    for (Index done = 0; done < count; ++found) {
      const Index n = (pixel + done) / plan_.plane;
      const Index at = (pixel + done) % plan_.plane;
      PixelRun& run = runs[found];
      run.count = std::min({row - at % row, count - done, plan_.width - done % plan_.width});
      run.from = (n * z_.groups + g) * plan_.depth * in_plane +
                 (gaps ? at / row * z_.stride_h * z_.w + at % row * z_.stride_w : at);
      run.to = done / plan_.width * plan_.width * plan_.depth + done % plan_.width;
      done += run.count;
    }
    return static_cast<Index>(found);
  }

  void copy_out(Index g, Index row, const GemmTile& tile, Index pixel) const {
    for (Index done = 0; done < tile.columns;) {
      const Index n = (pixel + done) / plan_.plane;
      const Index at = (pixel + done) % plan_.plane;
      const Index run = std::min<Index>(plan_.plane - at, tile.columns - done);
      for (Index i = 0; i < tile.rows; ++i) {
        const float* const from = tile.c + i * tile.c_row + done;
        float* const to =
            data_.out + ((n * z_.groups + g) * plan_.rows + row + i) * plan_.plane + at;
        for (Index j = 0; j < run; ++j) to[j] = from[j];
        data_.epilogue.finish(to, 1, run, 0);
      }
      done += run;
    }
  }

  const Gemm1x1Tiling& plan_;
  const Conv2dProblem& z_;
  const GemmKernels gemm_;
  const DataPass data_;
};

void forward(const Conv2dForwardArgs& args) {
  const Gemm1x1Tiling plan(args.problem, Direction::forward);
  Product(plan, DataPass(args)).run();
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Gemm1x1Tiling plan(args.problem, Direction::backward_data);
  Product(plan, DataPass(args)).run();
}

// ---- backward_weight ----------------------------------------------------------------------------

// A run is a range of pixels of one image, and a slice is a range of the runs of all images. A
// chunk of work is one block of output channels for one slice.
struct Gemm1x1WeightTiling : WeightBlocks {
  explicit Gemm1x1WeightTiling(const Conv2dProblem& problem)
      : WeightBlocks(problem),
        channels(z.c_per_group()),
        // Without strides a plane is one long row.
        rows(strided(z) ? z.p() : 1),
        columns(strided(z) ? z.q() : z.p() * z.q()),
        rows_at_once(std::clamp<Index>(kRun / columns, 1, rows)),
        columns_at_once(rows == 1 ? std::min(columns, kRun) : columns) {
    runs_of_row = ceil_div(columns, columns_at_once);
    runs = ceil_div(rows, rows_at_once) * runs_of_row;
    // A slice has at most kSumChain runs (framework/simd/sum_chain.h), because each run adds one
    // value to each accumulator in memory.
    const Index wanted = ceil_div(kSlices, z.groups * blocks);
    slices = std::min(std::max(wanted, ceil_div(z.n * runs, Index{kSumChain})), z.n * runs);
  }
  Index thread_floats() const { return piece_floats(rows_at_once * columns_at_once * width); }

  Index channels;
  Index rows, columns, rows_at_once, columns_at_once;
  Index runs_of_row = 1, runs = 1;  // runs of an image
};

class WeightGradient : WeightRuns<Gemm1x1WeightTiling> {
 public:
  using WeightRuns::WeightRuns;

  void run() const {
    run_slices([&](Index slice, Index block, float* sums, float* dy) {
      const Index g = block / plan_.blocks, runs = z_.n * plan_.runs;
      const Index end = (slice + 1) * runs / plan_.slices;
      for (Index run = slice * runs / plan_.slices; run < end; ++run) {
        const Index n = run / plan_.runs;
        const Index p = run % plan_.runs / plan_.runs_of_row * plan_.rows_at_once;
        const Index q = run % plan_.runs_of_row * plan_.columns_at_once;
        WeightTile tile;
        tile.rows = std::min(plan_.rows_at_once, plan_.rows - p);
        tile.columns = std::min(plan_.columns_at_once, plan_.columns - q);
        tile.x_row = z_.stride_h * z_.w;
        tile.x_step = z_.stride_w;
        tile.dy = dy;
        dy_to_lanes(n, block, p * plan_.columns + q, tile.rows * tile.columns, dy);
        const float* x =
            x_ + (n * z_.c + g * plan_.channels) * z_.h * z_.w + p * tile.x_row + q * z_.stride_w;
        float* to = sums;
        run_tiles(tile, plan_.channels, [&](const float*& row, float*& row_sums) {
          row = x;
          row_sums = to;
          x += z_.h * z_.w;
          to += plan_.width;
        });
      }
    });
  }
};

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Gemm1x1WeightTiling plan(args.problem);
  WeightGradient(plan, args).run();
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.r != 1 || z.s != 1) {
    return Conv2dSupport::no(cat("expects a 1x1 kernel, got ", z.r, "x", z.s));
  }
  if (z.pad_top != 0 || z.pad_bottom != 0 || z.pad_left != 0 || z.pad_right != 0) {
    return Conv2dSupport::no(cat("expects no padding, got ", z.pad_top, ", ", z.pad_bottom, ", ",
                                 z.pad_left, ", ", z.pad_right, " (top, bottom, left, right)"));
  }
  return {};
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const Index lanes = tile_kernels.get().lanes;
  Conv2dCost out{.flops = z.nominal_flops(), .bytes = z.nominal_bytes()};
  if (direction == Direction::backward_weight) {
    const Gemm1x1WeightTiling plan(z);
    const double pixels = number(z.n * plan.rows * plan.columns);
    const double blocks = number(z.groups * plan.blocks);
    const RowTiles rows(plan.channels, tile_kernels.get().rows);
    const double tiles = blocks * number(rows.tiles);
    out.issued =
        2 * pixels * tiles * number(plan.lanes) * slots(rows.height(0) * plan.width / plan.lanes);
    out.loads = pixels * tiles * number(plan.width / plan.lanes);
    out.tiles = number(z.n * plan.runs) * tiles;
    out.copied = number(plan.slices * plan.width * plan.depth) * blocks;
    out.transposed = pixels * number(z.k);
    out.listed = number(z.n * plan.rows) * tiles;
    out.regions = 2;
    out.chunks = number(plan.slices) * blocks;
    return out;
  }
  const Gemm1x1Tiling plan(z, direction);
  const Index pixels = z.n * plan.plane;
  const double vectors =
      number(plan.in_place ? z.n * ceil_div(plan.plane, lanes) : ceil_div(pixels, lanes));
  const double panels = number((plan.in_place ? z.n : 1) * plan.panels * z.groups);
  const double tiles = panels * number(plan.tiles.tiles);
  const Index at_once = std::min(ceil_div(plan.in_place ? plan.plane : pixels, lanes),
                                 plan.width / lanes);  // vectors of a tile
  out.issued = 2 * vectors / number(at_once) * number(lanes * z.groups * plan.tiles.tiles) *
               slots(at_once * plan.tiles.height(0)) * number(plan.depth);
  out.loads = vectors * number(z.groups * plan.tiles.tiles * plan.depth);
  out.tiles = tiles;
  out.cached = number(plan.chunks * z.groups * plan.rows * plan.depth) * sizeof(float);
  if (!plan.in_place) {
    out.copied = number(plan.splits * pixels * z.groups * plan.depth);
    // Panels that end in the next image pass through a buffer.
    const Index borders = plan.plane % plan.width == 0 ? 0 : z.n - 1;
    out.transposed = number(std::min(plan.panels, borders) * plan.width * plan.rows * z.groups);
    out.listed = out.copied / number(std::min(plan.width, strided(z) ? z.q() : plan.plane));
  }
  if (plan.spread) out.transposed = number(z.x_shape().numel());
  out.prepared = number(z.w_shape().numel());
  out.chunks = number(plan.chunks * plan.splits * z.groups);
  out.schedule = plan.in_place ? "in_place" : strided(z) ? "packed_strided" : "packed";
  return out;
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::backward_weight) {
    const Gemm1x1WeightTiling plan(z);
    return static_cast<std::size_t>(plan.sums_floats() + num_threads() * plan.thread_floats()) *
           sizeof(float);
  }
  const Gemm1x1Tiling plan(z, direction);
  return static_cast<std::size_t>(num_threads() * plan.thread_floats()) * sizeof(float);
}

const Conv2dAlgorithm kAlgorithm{
    .name = "gemm_1x1",
    .device = DeviceType::cpu,
    .idea = "a 1x1 kernel: the planes of an image are the matrix already",
    .paper = "Lin, Chen, Yan 2013: Network In Network, arXiv 1312.4400",
    .supports = with_workspace_limit<supports, workspace_bytes>,
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
