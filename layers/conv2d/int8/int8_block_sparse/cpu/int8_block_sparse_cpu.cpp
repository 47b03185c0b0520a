// SPDX-License-Identifier: Apache-2.0
// int8_block_sparse_cpu.cpp: convolution on int8 values that skips pruned weights. Each block of 16
// output channels has a list of quads, four neighbouring input channels each. A quad is in the list
// if at least one of the 16 output channels keeps a weight of it.
//
// Formula    as int8_direct, over the (c,r,s) that a block of row k holds
// Textbook   for n, blocks of 16 kernels, p, q: sum[16] = 0
//              for quads (c..c+3,r,s) in list[block]:
//                sum[0..15] += w[k..k+15][c..c+3][r][s] * x[n][c..c+3][..]     (exact)
//              y[n][k..k+15][p][q] = clip(round(real(sum) / s_y))
// Method     One instruction adds four products of neighbouring input channels, so an entry of the
//            list is a quad of these channels. A quad is kept when one of its 4 x 16 weights is
//            kept. Everything else is as in int8_direct: tiles of pixels, borders, chunks, and the
//            epilogue from sums to y.
//            16 x 1 blocks, density d:     kept quads   1 - (1 - d)^4:  0.1 -> 0.34, 0.2 -> 0.59
//            16 x 4 blocks of a 1x1 layer: four channels, kept quads d
// Shapes     as int8_direct; w blocks of i8 [blocks,rows,columns]
// Supports   forward; block-sparse weights of every block shape; types as int8_direct; images of
//            fewer than 2^31 bytes
// Cost       FLOPs = 2 N K P Q times four for each entry; bytes = x, the entries, y
// Numerics   sums are exact: the codes of int8_direct on the same weights, bit by bit
// Backward   none: gradients are those of the fake quantiser (quant/lsq.h)
// Choices    A tile has 16 channels, because the next 16 have another list. So each load of x
//            serves one vector of accumulators; in int8_direct it serves two
// Source     the lists: E. Elsen et al.: Fast Sparse ConvNets, CVPR 2020, arXiv 1911.09723; the
//            integers: B. Jacob et al., CVPR 2018, arXiv 1712.05877
// Read next  int8_direct_cpu.cpp; block_sparse_cpu.cpp, the same in f32
#include <array>
#include <cmath>
#include <limits>

#include "layers/conv2d/int8/shared/cpu/int8_pass.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

constinit IsaTable<Int8SparseKernels> int8_sparse_kernels;

namespace int8 {
namespace {

// ---- sizes --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction direction) {
  const Conv2dSupport types = supports_types(z, direction);
  if (!types.yes) return types;
  if (z.weight_format.is_dense()) {
    return Conv2dSupport::no("expects block-sparse weights, got dense");
  }
  const Index image = Int8Image(z).image;
  if (image > std::numeric_limits<std::int32_t>::max()) {
    return Conv2dSupport::no(cat("expects images of fewer than 2^31 bytes, got ", image));
  }
  return supports_shape(z);
}

Index columns_of(const Conv2dProblem& z) { return z.c_per_group() * z.r * z.s; }

// Returns an upper bound of the number of list entries. A column of a stored block adds at most one
// quad to the list of each block of 16 output channels that the stored block overlaps.
Index most_entries(const Int8Plan& plan) {
  const WeightFormat& format = plan.z.weight_format;
  const Index touched = (format.block_rows + kChannelBlock - 2) / kChannelBlock + 1;
  return std::min(plan.z.groups * plan.blocks * plan.all_quads(),
                  format.blocks * format.block_columns * touched);
}

// Layout of the prepared weights.
struct Prepared {
  explicit Prepared(const Int8Plan& plan)
      : segments(plan.z.groups * plan.blocks * plan.taps + 1), most(most_entries(plan)) {
    const auto ints = [](Index count) {
      return ScratchArena::round_up(static_cast<std::size_t>(count) * sizeof(std::int32_t));
    };
    offset = ints(segments);
    totals = offset + ints(most);
    w = totals + ints(plan.channels());
    bytes = w + static_cast<std::size_t>(most * kChannelBlock * plan.weight_bytes);
  }
  Index segments, most;
  std::size_t offset, totals, w, bytes;  // in bytes; the segments are stored first
};

// Returns the bytes for one block of 16 output channels: the weights [column][16], and the list of
// its kept columns.
std::size_t scratch_bytes(const Conv2dProblem& z) {
  return static_cast<std::size_t>((kChannelBlock + 1) * columns_of(z));
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction) {
  return std::max(pass_bytes(Int8Plan(z)), scratch_bytes(z));
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return Prepared(Int8Plan(z)).bytes;
}

// ---- the list -----------------------------------------------------------------------------------

// Expands the weights of the output channels [first, end), at most 16, to [column][16].
void spread_block(const BlockSparseView& w, Index first, Index end, Index columns,
                  std::int8_t* dense, std::int8_t* kept) {
  std::fill_n(dense, kChannelBlock * columns, std::int8_t{0});
  std::fill_n(kept, columns, std::int8_t{0});
  const auto* const values = static_cast<const std::int8_t*>(w.values);
  for (Index k = first; k < end; ++k) {
    const Index row = k / w.block_rows;
    for (Index b = w.row_begin[row]; b < w.row_begin[row + 1]; ++b) {
      for (Index i = 0; i < w.block_columns; ++i) {
        const Index column = w.columns[b] * w.block_columns + i;
        kept[column] = 1;
        dense[column * kChannelBlock + k - first] =
            values[(b * w.block_rows + k % w.block_rows) * w.block_columns + i];
      }
    }
  }
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Int8Plan plan(z);
  const Prepared at(plan);
  auto* const prepared = static_cast<std::int8_t*>(args.prepared);
  auto* const segment = reinterpret_cast<std::int32_t*>(prepared);
  auto* const offset = reinterpret_cast<std::int32_t*>(prepared + at.offset);
  auto* const totals = reinterpret_cast<std::int32_t*>(prepared + at.totals);
  std::fill_n(totals, plan.channels(), 0);
  const Index columns = columns_of(z), entry_bytes = kChannelBlock * plan.weight_bytes;
  auto* const dense = static_cast<std::int8_t*>(args.workspace);
  std::int8_t* const kept = dense + kChannelBlock * columns;
  Index entries = 0, segments = 0;
  for (Index block = 0; block < z.groups * plan.blocks; ++block) {
    const Index g = block / plan.blocks, channel = block % plan.blocks * kChannelBlock;
    const Index first = g * z.k_per_group() + channel;
    const Index end = std::min(first + kChannelBlock, (g + 1) * z.k_per_group());
    spread_block(args.views.w_blocks, first, end, columns, dense, kept);
    for (Index t = 0; t < plan.taps; ++t) {
      segment[segments++] = static_cast<std::int32_t>(entries);
      for (Index d = 0; d < plan.x.depth; ++d) {
        const Index quads = d + 1 == plan.x.depth ? plan.x.last_quads : plan.x.quads;
        for (Index q = 0; q < quads; ++q) {
          std::array<Index, kQuad> column{};
          bool any = false;
          for (Index i = 0; i < kQuad; ++i) {
            WeightPlace from;
            const bool exists = place_of(plan, d, t, kQuad * q + i, from);
            const Index found = exists ? (from.c * z.r + from.r) * z.s + from.s : -1;
            column[static_cast<std::size_t>(i)] = found;
            any = any || (exists && kept[found] != 0);
          }
          if (!any) continue;
          offset[entries] = static_cast<std::int32_t>(d * plan.x.block + kQuad * q);
          std::int8_t* const to = prepared + at.w + entries * entry_bytes;
          for (Index k = 0; k < kChannelBlock; ++k) {
            for (Index i = 0; i < kQuad; ++i) {
              const Index from = column[static_cast<std::size_t>(i)];
              const std::int8_t weight =
                  from < 0 ? std::int8_t{0} : dense[from * kChannelBlock + k];
              put_weight(plan, k, i, weight, to);
              totals[g * plan.padded + channel + k] += weight;
            }
          }
          ++entries;
        }
      }
    }
  }
  segment[segments] = static_cast<std::int32_t>(entries);
}

// ---- the pass -----------------------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const Int8Plan plan(args.problem);
  const Prepared at(plan);
  const auto* const prepared = static_cast<const std::int8_t*>(args.prepared);
  const auto ints = [&](std::size_t offset) {
    return reinterpret_cast<const std::int32_t*>(prepared + offset);
  };
  run_pass(plan, args,
           {.totals = ints(at.totals),
            .entries = {.segment = ints(0), .offset = ints(at.offset), .w = prepared + at.w}});
}

// Returns the expected number of kept quads of 16 output channels, if blocks are random.
double expected_quads(const Conv2dProblem& z, const Int8Plan& plan) {
  const WeightFormat& format = z.weight_format;
  const double density = std::min(1.0, static_cast<double>(format.stored_elements()) /
                                           static_cast<double>(z.k * columns_of(z)));
  const auto rows = static_cast<double>(std::min(format.block_rows, kChannelBlock));
  // Adjacent columns are channels only in a 1x1 kernel.
  const double together =
      z.r * z.s == 1 ? static_cast<double>(std::min(format.block_columns, kQuad)) : 1;
  const double share = 1 - std::pow(1 - density, 16 / rows * static_cast<double>(kQuad) / together);
  return static_cast<double>(plan.all_quads()) * share;
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const Int8Plan plan(z);
  const double quads = expected_quads(z, plan);
  const double products = products_of(plan, quads);
  return {.flops = std::max(1.0, products),
          .bytes = z.nominal_bytes(),
          .issued = products,
          .loads = loads_of(plan, quads),
          .tiles = tiles_of(plan),
          .copied = number(static_cast<Index>(plan.copy_bytes())),
          .transformed = number(z.y_shape().numel()),  // scaled and rounded
          .prepared = number(z.w_shape().numel()),
          .chunks = chunks_of(plan),
          .schedule = uses_vnni() ? "vnni" : ""};
}

const Conv2dAlgorithm kAlgorithm{
    .name = "int8_block_sparse",
    .device = DeviceType::cpu,
    .idea = "int8 products of the kept weights only: lists of quads of input channels",
    .paper = "Elsen et al. 2020: Fast Sparse ConvNets, arXiv 1911.09723",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 2,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_sparse_weights = true,
    .takes_nchw16c_layout = true,
    .takes_nchw_x = true,
    .forward = forward,
};

}  // namespace
}  // namespace int8
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::int8::kAlgorithm)
