// SPDX-License-Identifier: Apache-2.0
// sparse_native_cpu.cpp: sparse convolution tap by tap: gathers the rows of a tap's neighbours,
// multiplies them, scatters the products. The literature calls the method native, or
// gather-GEMM-scatter.
//
// Formula    y[i,k] = b[k] + sum over taps t with a neighbour j(i,t), and c < C, of
//                w[k,c,t] x[j(i,t),c]   (problem.h)
// Textbook   y = b
//            for each tap t, with its list of pairs (i, j):
//              rows = x[j]                 # gather  [pairs, C]
//              products = rows w[t]        # GEMM    [pairs, K] = [pairs, C] [C, K]
//              y[i] += products            # scatter
// Method     Processes all pairs of one tap at a time. The list of pairs comes from the map's
//            table; each thread processes one chunk of sites. The matrix product is gemm().
// Shapes     x [n,C], w [K,C,taps], y [m,K], row-major, f32; w prepared as [taps, C, K]
// Supports   f32; every map
// Cost       FLOPs = 2 C K for each pair of neighbours, none wasted; for each pair memory traffic
//            is a row of x and a row of the product, each written and read, and a row of y, read
//            and written; workspace = rows and products of the longest list; bound by memory at few
//            channels
// Numerics   sums of a tap as in gemm(), then one addition for each tap. Up to 125 taps are fewer
//            additions than one chain has (framework/simd/sum_chain.h), so error_growth is 9. Taps
//            are added in their order, and an output occurs in a list once: same bits on each run
//            and with any number of threads. Exact on integers below 2^24
// Backward   dx: the same steps from inputs to outputs. dw[t] = (rows of dy)^T (rows of x), one
//            product for each tap; assigned or added to
// Choices    none
// Source     B. Graham et al. 2018, arXiv 1711.10275; Y. Yan et al. 2018 (SECOND, spconv),
//            Sensors 18(10) 3337
// Read next  sparse_implicit_gemm_cpu.cpp, which loops over the outputs and copies nothing
#include <cstring>

#include "framework/ops/gemm/gemm.h"
#include "framework/parallel.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using Problem = SparseConvProblem;
constexpr Index kSitesOfChunk = 4096;

// Returns the length of the longest list of a tap.
Index longest(const Problem& z) {
  Index out = 0;
  for (Index tap = 0; tap < z.taps(); ++tap) out = std::max(out, z.map->pairs(tap));
  return out;
}

// Scratch memory for the pairs of a tap, two arrays of rows, and one tap of dw.
struct NativeMemory {
  NativeMemory(const Problem& z, Direction direction, void* memory) {
    const Index pairs = longest(z);
    auto* at = static_cast<std::byte*>(memory);
    const auto piece = [&](Index elements) {
      void* const out = at == nullptr ? nullptr : at + bytes;
      bytes += ScratchArena::round_up(static_cast<std::size_t>(elements) * sizeof(float));
      return out;
    };
    here = static_cast<std::int32_t*>(piece(pairs));
    there = static_cast<std::int32_t*>(piece(pairs));
    first = static_cast<float*>(piece(pairs * z.c));
    second = static_cast<float*>(piece(pairs * z.k));
    if (direction == Direction::backward_weight) tap = static_cast<float*>(piece(z.k * z.c));
  }
  std::int32_t *here, *there;  // [pairs]
  float *first, *second;       // [pairs, C], [pairs, K]
  float* tap = nullptr;        // [K, C]
  std::size_t bytes = 0;
};

// Lists the pairs of a tap by ascending site of the table; returns the number of pairs.
Index list_pairs(const SparseTable& table, Index tap, const NativeMemory& to) {
  const Index chunks = ceil_div(table.sites, kSitesOfChunk);
  std::vector<Index> begin(static_cast<std::size_t>(chunks + 1), 0);
  const auto each = [&](Index chunk, const auto& visit) {
    const Index end = std::min(table.sites, (chunk + 1) * kSitesOfChunk);
    for (Index i = chunk * kSitesOfChunk; i < end; ++i) {
      const Index j = table.neighbour(tap, i);
      if (j >= 0) visit(i, j);
    }
  };
  parallel_chunks(chunks, [&](Index chunk, int) {
    Index count = 0;
    each(chunk, [&](Index, Index) { ++count; });
    begin[static_cast<std::size_t>(chunk + 1)] = count;
  });
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  parallel_chunks(chunks, [&](Index chunk, int) {
    Index at = begin[static_cast<std::size_t>(chunk)];
    each(chunk, [&](Index i, Index j) {
      to.here[at] = static_cast<std::int32_t>(i);
      to.there[at++] = static_cast<std::int32_t>(j);
    });
  });
  return begin.back();
}

void gather(const float* from, const std::int32_t* sites, Index count, Index width, float* to) {
  parallel_for(count, 1024, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      std::memcpy(to + i * width, from + sites[i] * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
  });
}

// Adds the rows to their sites. Each site is in the list once, so threads write different rows.
void scatter(const float* from, const std::int32_t* sites, Index count, Index width, float* to) {
  parallel_for(count, 1024, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      float* const row = to + sites[i] * width;
      for (Index d = 0; d < width; ++d) row[d] += from[i * width + d];
    }
  });
}

void sum_neighbours(const Problem& problem, Direction direction, const void* in, const void* w,
                    const void* start_at, void* out_at, void* workspace) {
  const SparseSums z = sparse_sums(problem, direction);
  const NativeMemory memory(problem, direction, workspace);
  float* const rows = z.backward ? memory.second : memory.first;
  float* const products = z.backward ? memory.first : memory.second;
  const auto* const start = static_cast<const float*>(start_at);
  auto* const out = static_cast<float*>(out_at);
  parallel_for(z.sites, 4096, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index d = 0; d < z.lanes; ++d) out[i * z.lanes + d] = start == nullptr ? 0.0f : start[d];
    }
  });
  for (Index tap = 0; tap < z.view.table->taps; ++tap) {
    const Index count = list_pairs(*z.view.table, tap, memory);
    if (count == 0) continue;
    gather(static_cast<const float*>(in), memory.there, count, z.depth, rows);
    gemm(false, false, count, z.lanes, z.depth, rows, z.depth,
         static_cast<const float*>(w) + tap * z.depth * z.lanes, z.lanes, products, z.lanes, false);
    scatter(products, memory.here, count, z.lanes, out);
  }
}

void backward_weight(const SparseConvBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  const NativeMemory memory(z, Direction::backward_weight, args.workspace);
  auto* const dw = static_cast<float*>(args.dw);
  const SparseTable& table = *z.map->by_output().table;
  for (Index tap = 0; tap < table.taps; ++tap) {
    const Index count = list_pairs(table, tap, memory);
    gather(static_cast<const float*>(args.x), memory.there, count, z.c, memory.first);
    gather(static_cast<const float*>(args.dy), memory.here, count, z.k, memory.second);
    gemm(true, false, z.k, z.c, count, memory.second, z.k, memory.first, z.c, memory.tap, z.c,
         false);
    for (Index i = 0; i < z.k * z.c; ++i) {
      float& to = dw[i * table.taps + tap];
      to = args.accumulate ? to + memory.tap[i] : memory.tap[i];
    }
  }
}

void prepare_weights(const PrepareArgs<Problem>& args) {
  const SparseSums z = sparse_sums(args.problem, args.direction);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const to = static_cast<float*>(args.prepared);
  parallel_for(z.view.table->taps, 1, [&](Index tap, Index) {
    for (Index d = 0; d < z.depth; ++d) {
      for (Index lane = 0; lane < z.lanes; ++lane) {
        to[(tap * z.depth + d) * z.lanes + lane] = w[z.weight_at(tap, d, lane)];
      }
    }
  });
}

const SparseConvAlgorithm kAlgorithm{
    .name = "native",
    .device = DeviceType::cpu,
    .idea = "tap by tap: gather neighbours' rows, one matrix product, scatter its rows",
    .paper = "Graham et al. 2018, arXiv 1711.10275; Yan et al. 2018: SECOND, Sensors 18(10) 3337",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32) return {};
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    },
    // Each pair writes and reads a row of x and a row of products, and reads and writes a row of
    // sums. Listing pairs takes about 8 cycles for each tap and site, and each copied row takes
    // some cycles.
    // Each pair of rows is gathered, multiplied, and added to a row of the result.
    .cost = [](const Problem& z, Direction direction) -> Cost {
      const double pairs = number(z.map->pairs());
      const bool weight = direction == Direction::backward_weight;
      return {.flops = z.nominal_flops(),
              .bytes = z.nominal_bytes(),
              .issued = z.nominal_flops(),
              .copied = pairs * number(direction == Direction::backward_data ? z.k : z.c),
              .transposed = pairs * number(direction == Direction::backward_data ? z.c : z.k),
              .listed = pairs,
              .cached = sizeof(float) * pairs * number(z.c + z.k) * (weight ? 3 : 4),
              .prepared = number(z.w_shape().numel()),
              .regions = number(3 * z.taps())};
    },
    .workspace_bytes = [](const Problem& z, Direction direction) -> std::size_t {
      return NativeMemory(z, direction, nullptr).bytes;
    },
    .prepared_bytes = [](const Problem& z, Direction) -> std::size_t {
      return sizeof(float) * static_cast<std::size_t>(z.w_shape().numel());
    },
    .prepare_weights = prepare_weights,
    .error_growth = 9,
    .exact_on_integers = true,
    .forward =
        [](const SparseConvForwardArgs& a) {
          sum_neighbours(a.problem, Direction::forward, a.x, a.prepared, a.b, a.y, a.workspace);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          sum_neighbours(a.problem, Direction::backward_data, a.dy, a.prepared, nullptr, a.dx,
                         a.workspace);
        },
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)
