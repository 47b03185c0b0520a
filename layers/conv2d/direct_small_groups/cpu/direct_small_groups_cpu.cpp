// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_cpu.cpp: convolution of NCHW16c images in groups of 2, 4 or 8 channels, as in
// ResNeXt. Each block of 16 channels of an image is a separate convolution, in which lanes of
// different groups never mix.
//
// Formula    y[n,k,p,q] = b[k] + sum over i < M, r, s of
//            w[k,i,r,s] x[n, k/M M + i, p stride_h - pad_top + r dilation_h, ...]; M = C/G = K/G
// Textbook   for n, blocks of 16 channels, p, q:
//              sums[16] = b[16]
//              for r, s, d < M:                       # lane l takes channel (l mod M) xor d
//                pixel[16] = x[n,block,p+r,q+s][16], permuted within the groups by d
//                sums[16] += pixel[16] * w[block,r,d,s][16]
//              y[n,block,p,q][16] = sums[16]
// Method     Schedule of direct: the loop nest of direct_lesson_cpu.cpp. A block of 16 channels
//            contains whole groups, so 16 channels of y depend on only the same 16 channels of x.
//            A tile is some pixels of a row of `out`, whose accumulators stay in registers over all
//            (r, s) and the M channels of a group. In step d every lane l takes channel (l mod M)
//            xor d of its group, so one shuffle of a pixel serves 16 output channels. The weights
//            are packed in the same order (direct_small_groups_tiles.h). In backward_data, columns
//            of dx with one residue modulo stride_w read neighbouring columns of dy. Rows of the
//            kernel are packed in reverse, so that neighbouring taps read neighbouring columns of
//            dy. Threads share the (image, block of channels, range of rows). backward_weight is in
//            direct_small_groups_weights.cpp.
// Shapes     x [N,C/16,H,W,16], y [N,K/16,P,Q,16], w [K,M,R,S], f32, any alignment; f32
//            accumulators; lanes after the last channel are 0
// Supports   f32 in layout nchw16c; groups of 2, 4 or 8 channels and as many kernels; every stride,
//            dilation and padding; kernels up to 1024 taps
// Cost       FLOPs = 2 N K P Q M R S; bytes = the tensors once; workspace = dw for each slice. The
//            algorithm is bound by FMAs and, with AVX-512, by shuffles on the same port
// Numerics   one rounding per FMA, in chains (framework/simd/sum_chain.h); same bits on each run
//            and for any number of threads; exact on integers below 2^24; NaN stays in its group
// Backward   dx assigned; dw assigned or added to
// Choices    kChunkFlops: a few microseconds of one core, as in depthwise_nchw16c.cpp. Groups of
//            12, 20 or 24 channels cross block borders, and with more kernels than channels x and y
//            of a group are in different blocks: direct computes these groups in NCHW
// Source     S. Xie et al. 2017: Aggregated Residual Transformations for Deep Neural Networks,
//            arXiv 1611.05431 (the layers); own work (the permutes)
// Read next  ../../direct/direct_lesson_cpu.cpp, the loop nest; direct_small_groups_simd.cpp, the
//            tiles; direct_small_groups_weights.cpp, dw; ../../direct_nchw16c, whole blocks
#include <algorithm>
#include <array>
#include <span>

#include "framework/int_math.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_tiles.h"
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_weights.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

constinit IsaTable<GroupKernels> group_kernels;

namespace direct_small_groups {
namespace {

using Index = std::int64_t;

constexpr Index kMaxTaps = 1024;
constexpr Index kChunks = 16;  // work for the threads when images x blocks are few
constexpr double kChunkFlops = 2e5;

struct GroupTiling {
  GroupTiling(const Conv2dProblem& problem, Direction direction)
      : z(problem),
        forward(direction == Direction::forward),
        group(z.c_per_group()),
        blocks(ceil_div(z.c, kChannelBlock)),
        in_h(forward ? z.h : z.p()),
        in_w(forward ? z.w : z.q()),
        out_h(forward ? z.p() : z.h),
        out_w(forward ? z.q() : z.w),
        classes(forward ? 1 : z.stride_w),
        lanes(group_kernels.get().lanes),
        pixels(group_kernels.get().pixels) {}

  // Packed weights: [blocks, vectors, R, M, S, lanes].
  Index vector_weights() const { return z.r * row_weights(); }
  Index row_weights() const { return group * z.s * lanes; }
  Index packed_floats() const { return blocks * kChannelBlock / lanes * vector_weights(); }

  const Conv2dProblem& z;
  bool forward;
  Index group, blocks;  // channels of a group; blocks of channels
  Index in_h, in_w, out_h, out_w, classes;
  Index lanes, pixels;
};

// Packs the weights. In step d, lane l multiplies channel source(l, d) of its group
// (direct_small_groups_tiles.h), so the weight of this channel is stored for (d, l). Lanes after
// the last channel get 0.
void pack(const GroupTiling& pass, const float* w, float* packed) {
  const Index m = pass.group, taps = pass.z.r * pass.z.s, lanes = pass.lanes;
  const Index vectors = pass.blocks * kChannelBlock / lanes;
  const Index grain = std::max<Index>(1, 16384 / pass.vector_weights());
  parallel_for(vectors, grain, [&](Index vector, Index end) {
    for (; vector < end; ++vector) {
      float* const to = packed + vector * pass.vector_weights();
      for (Index l = 0; l < lanes; ++l) {
        const Index channel = vector * lanes + l;  // of out
        const Index here = channel % m;            // of its group
        const bool there = channel < pass.z.c;
        for (Index d = 0; d < m; ++d) {
          const Index source = m < lanes ? here ^ d : d;  // of `in`
          const Index k = pass.forward ? channel : channel - here + source;
          const float* const from = w + (k * m + (pass.forward ? source : here)) * taps;
          for (Index r = 0; r < pass.z.r; ++r) {
            float* const row = to + r * pass.row_weights() + d * pass.z.s * lanes + l;
            for (Index s = 0; s < pass.z.s; ++s) {
              const Index at = pass.forward ? s : pass.z.s - 1 - s;
              row[s * lanes] = there ? from[r * pass.z.s + at] : 0.0f;
            }
          }
        }
      }
    }
  });
}

// Describes how one column class of `out` reads a row of `in`. `run` lists the runs of neighbouring
// taps; the `column` of a run is the column that its first tap reads for pixel 0.
struct Line {
  struct Run {
    Index column, w;
    Index first, end;  // pixels whose single tap is inside
  };
  GroupForm form = GroupForm::single;
  Index residue = 0, count = 0;  // first column of `out`; number of pixels
  Index step = 1;                // columns of `in` from pixel to pixel
  Index w_tap = 0;
  Index tiles = 0, height = 0, higher = 0;  // the first `higher` tiles have height + 1 pixels
  int runs = 0;
  std::array<Run, kMaxTaps> run;
};

void list_taps(const GroupTiling& pass, Index residue, Line& line) {
  const Conv2dProblem& z = pass.z;
  line.residue = residue;
  line.count = pass.out_w > residue ? ceil_div(pass.out_w - residue, pass.classes) : 0;
  line.step = pass.forward ? z.stride_w : 1;
  line.tiles = ceil_div(line.count, pass.pixels);
  if (line.tiles > 0) {
    line.height = line.count / line.tiles;
    line.higher = line.count % line.tiles;
  }
  line.form = GroupForm::single;
  line.runs = 0;
  for (Index i = 0; i < z.s; ++i) {  // columns ascend, as packed
    Index column = pass.forward ? i * z.dilation_w - z.pad_left
                                : residue + z.pad_left - (z.s - 1 - i) * z.dilation_w;
    if (!pass.forward && z.stride_w > 1) {
      const Index whole = floor_div(column, z.stride_w);
      if (whole * z.stride_w != column) continue;
      column = whole;
    }
    line.run[static_cast<std::size_t>(line.runs++)] = {
        .column = column, .w = i * pass.lanes, .first = 0, .end = line.count};
  }
  // Two or three taps on neighbouring columns form one run, if only the outermost columns of the
  // row can be outside the image (fewer columns on either side than there are taps).
  const auto& run = line.run;
  const bool near = line.runs > 1 && run[0].column >= 1 - line.runs &&
                    run[0].column + (line.count - 1) * line.step < pass.in_w;
  if (near && (line.runs == 2 ? line.step == 1 : line.runs == 3 && line.step <= 2)) {
    line.w_tap = run[1].w - run[0].w;
    bool even = true;
    for (std::size_t i = 1; i < static_cast<std::size_t>(line.runs); ++i) {
      even =
          even && run[i].column == run[i - 1].column + 1 && run[i].w == run[i - 1].w + line.w_tap;
    }
    if (even) {
      line.form = line.runs == 2   ? GroupForm::pair
                  : line.step == 1 ? GroupForm::triple
                                   : GroupForm::triple_by_two;
      line.runs = 1;
      return;
    }
  }
  int found = 0;
  for (int i = 0; i < line.runs; ++i) {
    Line::Run one = run[static_cast<std::size_t>(i)];
    one.first = one.column >= 0 ? 0 : ceil_div(-one.column, line.step);
    one.end = std::min(line.count, floor_div(pass.in_w - 1 - one.column, line.step) + 1);
    if (one.first < one.end) line.run[static_cast<std::size_t>(found++)] = one;
  }
  line.runs = found;
}

// Lists the rows of the kernel that are inside the image for row `row` of out. Returns the number
// of rows.
int list_rows(const GroupTiling& pass, Index row, std::array<GroupRow, kMaxTaps>& rows) {
  const Conv2dProblem& z = pass.z;
  int found = 0;
  for (Index r = 0; r < z.r; ++r) {
    Index h = pass.forward ? row * z.stride_h - z.pad_top + r * z.dilation_h
                           : row + z.pad_top - r * z.dilation_h;
    if (!pass.forward && z.stride_h > 1) {
      if (h < 0 || h % z.stride_h != 0) continue;
      h /= z.stride_h;
    }
    if (h < 0 || h >= pass.in_h) continue;
    rows[static_cast<std::size_t>(found++)] = {.in = h * pass.in_w * kChannelBlock,
                                               .w = r * pass.row_weights()};
  }
  return found;
}

struct Tensors {
  const float* in;
  const float* packed;
  const float* b = nullptr;
  const float* residual = nullptr;
  bool relu = false;
  float most = 0;
  float* out;
};

// Computes output rows of one block of channels of one image.
class BlockRows {
 public:
  BlockRows(const GroupTiling& pass, const Tensors& tensors, Index plane)
      : pass_(pass),
        kernels_(group_kernels.get()),
        out_(tensors.out + plane * pass.out_h * pass.out_w * kChannelBlock),
        residual_(tensors.residual == nullptr ? nullptr : tensors.residual + (out_ - tensors.out)),
        relu_(tensors.relu) {
    const Index block = plane % pass.blocks;
    const Index channel = block * kChannelBlock;
    tile_.in = tensors.in + plane * pass.in_h * pass.in_w * kChannelBlock;
    tile_.w = tensors.packed + block * (kChannelBlock / pass.lanes) * pass.vector_weights();
    if (tensors.b != nullptr) {
      std::copy_n(tensors.b + channel, std::min(kChannelBlock, pass.z.c - channel), start_.data());
    }
    tile_.channels = static_cast<int>(pass.group);
    tile_.w_step = pass.z.s * pass.lanes;
    tile_.w_vector = pass.vector_weights();
    tile_.out_step = kChannelBlock * pass.classes;
    tile_.most = tensors.most;
  }

  // Computes rows [begin, end). Tiles of two column residues alternate, because two residues fill
  // whole cache lines of dx.
  void run(Index begin, Index end) {
    std::array<Line, 2> lines;
    const Index together = pass_.classes <= 2 ? pass_.classes : 1;
    for (Index residue = 0; residue < pass_.classes; residue += together) {
      for (Index i = 0; i < together; ++i)
        list_taps(pass_, residue + i, lines[static_cast<std::size_t>(i)]);
      for (Index row = begin; row < end; ++row) {
        run_row({lines.data(), static_cast<std::size_t>(together)}, row);
      }
    }
  }

 private:
  void run_row(std::span<const Line> lines, Index row) {
    std::array<GroupRow, kMaxTaps> rows;
    const int found = list_rows(pass_, row, rows);
    for (Index t = 0; t < lines[0].tiles; ++t) {
      for (const Line& line : lines) {
        if (t < line.tiles) run_tile(line, t, row, {rows.data(), static_cast<std::size_t>(found)});
      }
    }
  }

  void run_tile(const Line& line, Index t, Index row, std::span<const GroupRow> rows) {
    std::array<GroupRun, kMaxTaps> runs;
    const Index begin = t * line.height + std::min(t, line.higher);
    tile_.pixels = static_cast<int>(line.height + (t < line.higher ? 1 : 0));
    tile_.w_tap = line.w_tap;
    tile_.in_step = line.step * kChannelBlock;
    tile_.out = out_ + (row * pass_.out_w + line.residue) * kChannelBlock + begin * tile_.out_step;
    const int here = list_runs(line, begin, runs);
    run_chains(line.form, rows.first(here == 0 ? 0 : rows.size()),
               {runs.data(), static_cast<std::size_t>(here)});
  }

  // Adds the products in chains of at most kSumChain.
  void run_chains(GroupForm form, std::span<const GroupRow> rows, std::span<const GroupRun> runs) {
    const int most = kSumChain / (taps_of(form) * tile_.channels);
    const int all_rows = static_cast<int>(rows.size()), all_runs = static_cast<int>(runs.size());
    const bool whole = all_rows * all_runs <= most;
    const int runs_at_once = whole ? all_runs : std::min(all_runs, most);
    const int rows_at_once = whole ? all_rows : std::max(1, most / all_runs);
    const float* const residual = residual_ == nullptr ? nullptr : residual_ + (tile_.out - out_);
    tile_.start = start_.data();
    tile_.adds = false;
    int row = 0;
    do {
      tile_.row = rows.data() + row;
      tile_.rows = std::min(rows_at_once, all_rows - row);
      row += tile_.rows;
      int run = 0;
      do {
        tile_.run = runs.data() + run;
        tile_.runs = std::min(runs_at_once, all_runs - run);
        run += tile_.runs;
        const bool last = row == all_rows && run == all_runs;
        tile_.residual = last ? residual : nullptr;
        tile_.relu = last && relu_;
        kernels_.tile(tile_, form);
        tile_.adds = true;
        tile_.start = nullptr;
      } while (run < all_runs);
    } while (row < all_rows);
  }

  // Lists the runs of the tile that begins at pixel `begin`. Returns the number of runs.
  int list_runs(const Line& line, Index begin, std::array<GroupRun, kMaxTaps>& runs) const {
    int found = 0;
    for (int i = 0; i < line.runs; ++i) {
      const Line::Run& from = line.run[static_cast<std::size_t>(i)];
      const Index column = from.column + begin * line.step;
      GroupRun& run = runs[static_cast<std::size_t>(found)];
      run.in = column * kChannelBlock;
      run.w = from.w;
      if (line.form == GroupForm::single) {
        run.first = static_cast<int>(std::clamp<Index>(from.first - begin, 0, tile_.pixels));
        run.end = static_cast<int>(std::clamp<Index>(from.end - begin, 0, tile_.pixels));
        if (run.first >= run.end) continue;
      } else {
        run.first = static_cast<int>(std::max<Index>(0, -column));
        run.end = static_cast<int>(std::min<Index>(pass_.in_w - column, 1 << 20));
      }
      ++found;
    }
    return found;
  }

  const GroupTiling& pass_;
  const GroupKernels kernels_;
  float* const out_;
  const float* const residual_;
  const bool relu_;
  std::array<float, kChannelBlock> start_{};
  GroupTile tile_;
};

void run(const GroupTiling& pass, const Tensors& tensors) {
  const Conv2dProblem& z = pass.z;
  const double flops = 2.0 * static_cast<double>(kChannelBlock * z.p() * z.q() * z.r * z.s) *
                       static_cast<double>(pass.group);  // of a block of an image
  const Index parts = std::clamp<Index>(
      std::min(ceil_div(kChunks, z.n * pass.blocks), static_cast<Index>(flops / kChunkFlops)), 1,
      pass.out_h);
  const auto grain = static_cast<Index>(kChunkFlops * static_cast<double>(parts) / flops) + 1;
  parallel_for(z.n * pass.blocks * parts, grain, [&](Index job, Index end) {
    for (; job < end; ++job) {
      const Index part = job % parts;
      BlockRows(pass, tensors, job / parts)
          .run(part * pass.out_h / parts, (part + 1) * pass.out_h / parts);
    }
  });
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (z.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
  }
  if (z.layout != ActivationLayout::nchw16c) {
    return Conv2dSupport::no(cat("expects images in layout nchw16c, got ", name_of(z.layout)));
  }
  if (z.r * z.s > kMaxTaps) {
    return Conv2dSupport::no(
        cat("expects a kernel of at most ", kMaxTaps, " taps, got ", z.r, "x", z.s));
  }
  const Index m = z.c_per_group();
  if (z.groups == 1 || m != z.k_per_group() || (m != 2 && m != 4 && m != 8)) {
    return Conv2dSupport::no(cat("expects groups of 2, 4 or 8 channels and as many kernels, got ",
                                 z.groups, " groups of ", m, " and ", z.k_per_group()));
  }
  return {};
}

// Lanes after the last channel count as work, too. In each step of a group but the first one, a
// shuffle permutes the lanes of a pixel. Three neighbouring taps share its result.
Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const Index group = z.c_per_group();
  const Index lanes = group_kernels.get().lanes;
  const double vectors = number(z.n * ceil_div(z.c, kChannelBlock) * (kChannelBlock / lanes));
  const double pairs = rows_inside(z) * columns_inside(z);
  const bool near = z.s == 3 && z.stride_w <= 2 && z.dilation_w == 1;
  const double rows = number(z.n * ceil_div(z.c, kChannelBlock)) * rows_inside(z);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * vectors * pairs * number(lanes * group),
          .transformed = vectors * pairs * number(lanes * (group - 1)) / (near ? 3 : 1),
          .listed = rows * number(z.s),
          .prepared = number(round_up(z.c, kChannelBlock) * group * z.r * z.s),
          .chunks = vectors,
          .schedule = near ? "3_wide" : ""};
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return static_cast<std::size_t>(GroupTiling(z, direction).packed_floats()) * sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  pack(GroupTiling(args.problem, args.direction), static_cast<const float*>(args.w),
       static_cast<float*>(args.prepared));
}

void forward(const Conv2dForwardArgs& args) {
  run(GroupTiling(args.problem, Direction::forward),
      {.in = static_cast<const float*>(args.x),
       .packed = static_cast<const float*>(args.prepared),
       .b = static_cast<const float*>(args.b),
       .residual = static_cast<const float*>(args.epilogue.residual),
       .relu = args.epilogue.relu,
       .most = args.epilogue.most,
       .out = static_cast<float*>(args.y)});
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  run(GroupTiling(args.problem, Direction::backward_data),
      {.in = static_cast<const float*>(args.dy),
       .packed = static_cast<const float*>(args.prepared),
       .out = static_cast<float*>(args.dx)});
}

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_small_groups",
    .device = DeviceType::cpu,
    .idea =
        "groups of 2, 4 or 8 channels of NCHW16c images: permutes within a vector, so that one "
        "step serves 16 output channels",
    .paper =
        "Xie et al. 2017: Aggregated Residual Transformations for Deep Neural Networks, arXiv "
        "1611.05431",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace direct_small_groups
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::direct_small_groups::kAlgorithm)
