// SPDX-License-Identifier: Apache-2.0
// sparse_implicit_gemm_cpu.cpp: sparse convolution that loops over outputs. A chunk of output rows
// stays in the cache while register tiles read the rows of the neighbours in place. No row is
// copied, and nothing is scattered beyond the chunk.
//
// Formula    y[i,k] = b[k] + sum over taps t with a neighbour j(i,t), and c < C, of
//                w[k,c,t] x[j(i,t),c]   (problem.h)
// Textbook   sparse_implicit_gemm_lesson_cpu.cpp: for each site: y[i] += x[j] w[t] for its taps
// Method     for each chunk of 512 output sites:
//              y = b
//              for each row of taps: list the pairs of its taps from the entries of the map
//              for each tap of the row: multiply the pairs of the chunk, 8 at a time, for up to 48
//              lanes at once (AVX-512). Registers accumulate over C and are then added to rows of y
//            The chunks are divided among the threads.
// Shapes     x [n,C], w [K,C,taps], y [m,K], row-major, f32, sums in f32; w prepared as
//            [taps, C, lanes] for each tile of lanes
// Supports   f32; every map
// Cost       FLOPs = 2 C K for each pair of neighbours, none for missing ones; for each tap a row
//            of y is read and written in the cache; workspace = the pairs of one row of taps for
//            each thread; for dw also up to 16 copies of dw; bound by arithmetic from about C = K =
//            32 on
// Numerics   a sum has chains of at most 160 terms, and at most 125 chains if C is at most 160, so
//            error_growth is 9. A sum goes over taps, then channels, in order. dw adds 512 sites at
//            a time, and adds the results of chunks and of parts of chunks in order. The division
//            into chunks depends only on the problem, so bits are the same on each run and with any
//            number of threads. Exact on integers below 2^24
// Backward   dx: the same algorithm from inputs to outputs, with w transposed. dw: each chunk lists
//            the pairs of a tap, and register tiles of 8 channels and up to 48 kernels sum over the
//            pairs. At most 16 groups of chunks have separate copies of dw. dw is assigned or added
//            to
// Choices    a chunk has 512 sites, whose rows of up to 128 channels stay in L2. A tile of 8 x 48
//            uses 28 of 32 registers: 24 accumulators, 3 vectors of weights and a vector of x. A
//            tile of 8 outputs that keeps all taps in registers, as on a GPU, would multiply zeros
//            for missing neighbours: 1.84 times the products on a noisy shell of 100,000 sites,
//            even where the sites of a chunk are sorted by their neighbours
// Source     B. Graham et al. 2018, arXiv 1711.10275; the rows of pointers are those of
//            M. Dukhan: The Indirect Convolution Algorithm, 2019, arXiv 1907.02129
// Read next  sparse_implicit_gemm_simd.cpp, the tiles; sparse_native_cpu.cpp, tap by tap
#include <algorithm>

#include "framework/parallel.h"
#include "layers/sparse_conv/algorithm.h"
#include "layers/sparse_conv/implicit_gemm/cpu/sparse_kernels.h"

namespace convscope {

constinit IsaTable<SparseKernels> sparse_kernels;

namespace {

using Index = std::int64_t;
using Problem = SparseConvProblem;
constexpr Index kChunk = kMaxSparseSites;

// Cuts a block of memory into arrays. With a null block, only counts the bytes.
class Scratch64 {
 public:
  explicit Scratch64(void* memory) : memory_(static_cast<std::byte*>(memory)) {}
  template <class T>
  T* take(Index elements) {
    T* const out = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += ScratchArena::round_up(static_cast<std::size_t>(elements) * sizeof(T));
    return out;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

// Cuts the lanes of an output into tiles of a few vectors.
struct LaneTiles {
  explicit LaneTiles(Index lanes_of_row)
      : lanes(sparse_kernels.get().lanes), vectors(ceil_div(lanes_of_row, lanes)) {
    const Index tiles = ceil_div(vectors, sparse_kernels.get().vectors);
    most = ceil_div(vectors, tiles);
  }
  Index padded() const { return vectors * lanes; }
  Index width(Index first) const { return std::min(most, vectors - first) * lanes; }

  Index lanes, vectors;
  Index most;  // vectors of a tile
};

// A thread's memory for the pairs of a chunk of sites with one row of kernel taps.
struct ChunkPairs {
  ChunkPairs(const SparseTable& table, Scratch64& scratch)
      : there(scratch.take<std::int32_t>(table.run * kStep)),
        here(scratch.take<std::int32_t>(table.run * kStep)) {}
  static constexpr Index kStep = kChunk + kSparseSlack;
  std::int32_t *there, *here;  // [run, kStep]

  struct Pairs {
    const std::int32_t *there, *here;
    int count;
  };
  // Calls visit(tap, pairs) for the taps of the table in their order; skips taps without pairs.
  template <class Visit>
  void for_each_tap(const SparseTable& table, Index begin, Index count, const Visit& visit) const {
    int pairs[kMaxRun];
    for (Index row = 0; row < table.taps / table.run; ++row) {
      sparse_kernels.get().list({.entries = table.entries.data() + row * table.sites + begin,
                                 .count = static_cast<int>(count),
                                 .run = static_cast<int>(table.run),
                                 .descending = table.descending,
                                 .first_site = static_cast<std::int32_t>(begin),
                                 .there = there,
                                 .here = here,
                                 .step = kStep,
                                 .pairs = pairs});
      for (Index s = 0; s < table.run; ++s) {
        if (pairs[s] == 0) continue;
        visit(row * table.run + s, Pairs{there + s * kStep, here + s * kStep, pairs[s]});
      }
    }
  }
};

// ---- forward and backward_data ------------------------------------------------------------------

struct SumsMemory {
  SumsMemory(const SparseSums& z, void* memory) {
    Scratch64 scratch(memory);
    for (int t = 0; t < num_threads(); ++t) threads.emplace_back(*z.view.table, scratch);
    bytes = scratch.bytes();
  }
  std::vector<ChunkPairs> threads;
  std::size_t bytes = 0;
};

void sum_chunk(const SparseSums& z, const ChunkPairs& own, const float* in, const float* w,
               const float* start, float* out, Index chunk) {
  const SparseTable& table = *z.view.table;
  const Index begin = chunk * kChunk, count = std::min(kChunk, z.sites - begin);
  for (Index i = begin; i < begin + count; ++i) {
    float* const row = out + i * z.lanes;
    start == nullptr ? std::fill_n(row, z.lanes, 0.0f) : std::copy_n(start, z.lanes, row);
  }
  const LaneTiles tiles(z.lanes);
  own.for_each_tap(table, begin, count, [&](Index tap, const ChunkPairs::Pairs& pairs) {
    for (Index vector = 0; vector < tiles.vectors; vector += tiles.most) {
      const Index lane = vector * tiles.lanes, width = tiles.width(vector);
      sparse_kernels.get().pairs({.in = in,
                                  .depth = z.depth,
                                  .there = pairs.there,
                                  .here = pairs.here,
                                  .pairs = pairs.count,
                                  .w = w + (lane * table.taps + tap * width) * z.depth,
                                  .vectors = static_cast<int>(width / tiles.lanes),
                                  .lanes = static_cast<int>(std::min(width, z.lanes - lane)),
                                  .out = out + lane,
                                  .out_step = z.lanes});
    }
  });
}

void sum_neighbours(const SparseSums& z, const void* in, const void* w, const void* start,
                    void* out, void* workspace) {
  const SumsMemory memory(z, workspace);
  parallel_chunks(ceil_div(z.sites, kChunk), [&](Index chunk, int thread) {
    sum_chunk(z, memory.threads[static_cast<std::size_t>(thread)], static_cast<const float*>(in),
              static_cast<const float*>(w), static_cast<const float*>(start),
              static_cast<float*>(out), chunk);
  });
}

std::size_t prepared_bytes(const Problem& problem, Direction direction) {
  const SparseSums z = sparse_sums(problem, direction);
  return sizeof(float) *
         static_cast<std::size_t>(z.view.table->taps * z.depth * LaneTiles(z.lanes).padded());
}

// Prepares [taps, depth, width] for each tile of lanes; lanes after the last one are 0.
void prepare_weights(const PrepareArgs<Problem>& args) {
  const SparseSums z = sparse_sums(args.problem, args.direction);
  const Index taps = z.view.table->taps;
  const LaneTiles tiles(z.lanes);
  const auto* const w = static_cast<const float*>(args.w);
  parallel_for(taps, 1, [&](Index tap, Index) {
    for (Index vector = 0; vector < tiles.vectors; vector += tiles.most) {
      const Index lane = vector * tiles.lanes, width = tiles.width(vector);
      float* to = static_cast<float*>(args.prepared) + (lane * taps + tap * width) * z.depth;
      for (Index d = 0; d < z.depth; ++d) {
        for (Index l = lane; l < lane + width; ++l) {
          *to++ = l < z.lanes ? w[z.weight_at(tap, d, l)] : 0.0f;
        }
      }
    }
  });
}

// ---- backward_weight ----------------------------------------------------------------------------

// Returns into how many parts the chunks are divided; each part has a separate copy of dw. There
// are at most 16 parts, and two or more parts have at most 64 MiB of copies. For each part a copy
// is cleared and later added. To make this worthwhile, a part must have enough pairs of each tap on
// average: at least 32, or 256 if a copy exceeds L2, or 1024 if it exceeds a core's share of L3.
Index weight_parts(const Problem& z) {
  const Index one = z.taps() * z.c * LaneTiles(z.k).padded() * Index{sizeof(float)};
  const Index fit = std::max<Index>(1, (Index{64} << 20) / one);
  const Index least = one > Index{4} << 20 ? 1024 : one > Index{512} << 10 ? 256 : 32;
  const Index filled = std::max<Index>(1, z.map->pairs() / (z.taps() * least));
  return std::min({Index{16}, fit, filled, ceil_div(z.out_count(), kChunk)});
}

struct WeightMemory {
  WeightMemory(const Problem& z, void* memory) {
    Scratch64 scratch(memory);
    sums = scratch.take<float>(weight_parts(z) * z.taps() * z.c * LaneTiles(z.k).padded());
    for (int t = 0; t < num_threads(); ++t) {
      threads.emplace_back(*z.map->by_output().table, scratch);
    }
    bytes = scratch.bytes();
  }
  float* sums;  // [parts, taps, C, padded K]
  std::vector<ChunkPairs> threads;
  std::size_t bytes = 0;
};

void backward_weight(const SparseConvBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  const SparseTable& table = *z.map->by_output().table;
  const WeightMemory memory(z, args.workspace);
  const Index padded = LaneTiles(z.k).padded(), tap_sums = z.c * padded;
  const Index parts = weight_parts(z), chunks = ceil_div(table.sites, kChunk);
  parallel_chunks(parts, [&](Index part, int thread) {
    const ChunkPairs& own = memory.threads[static_cast<std::size_t>(thread)];
    float* const sums = memory.sums + part * table.taps * tap_sums;
    std::fill_n(sums, table.taps * tap_sums, 0.0f);
    for (Index chunk = part * chunks / parts; chunk < (part + 1) * chunks / parts; ++chunk) {
      const Index begin = chunk * kChunk, count = std::min(kChunk, table.sites - begin);
      own.for_each_tap(table, begin, count, [&](Index tap, const ChunkPairs::Pairs& pairs) {
        sparse_kernels.get().weights({.x = static_cast<const float*>(args.x),
                                      .dy = static_cast<const float*>(args.dy),
                                      .c = z.c,
                                      .k = z.k,
                                      .there = pairs.there,
                                      .here = pairs.here,
                                      .pairs = pairs.count,
                                      .to = sums + tap * tap_sums,
                                      .to_step = padded});
      });
    }
  });
  // The rows of all parts are added to the rows of the first part, then transposed.
  parallel_for(z.c, 1, [&](Index c, Index) {
    for (Index tap = 0; tap < table.taps; ++tap) {
      float* const sum = memory.sums + tap * tap_sums + c * padded;
      for (Index part = 1; part < parts; ++part) {
        const float* const more = sum + part * table.taps * tap_sums;
        for (Index k = 0; k < z.k; ++k) sum[k] += more[k];
      }
    }
    for (Index k = 0; k < z.k; ++k) {
      float* const to = static_cast<float*>(args.dw) + (k * z.c + c) * table.taps;
      const float* const sum = memory.sums + c * padded + k;
      for (Index tap = 0; tap < table.taps; ++tap) {
        to[tap] = args.accumulate ? to[tap] + sum[tap * tap_sums] : sum[tap * tap_sums];
      }
    }
  });
}

// Besides the products, pairs are listed for each tap and site, and the accumulators of a tile are
// added to rows.
Cost cost(const Problem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  const Index lanes = data ? z.c : z.k;
  const double pairs = number(z.map->pairs());
  const double vectors = pairs * number(LaneTiles(lanes).padded());
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * vectors * number(data ? z.k : z.c),
          .copied = vectors,
          .listed = number((data ? z.in_count() : z.out_count()) * z.taps()),
          .cached = pairs * number(data ? z.k : z.c) * sizeof(float),
          .prepared = number(z.w_shape().numel())};
}

const SparseConvAlgorithm kAlgorithm{
    .name = "implicit_gemm",
    .device = DeviceType::cpu,
    .idea =
        "a chunk of outputs stays in the cache; register tiles read neighbours' rows without a "
        "copy",
    .paper = "Graham et al. 2018, arXiv 1711.10275; Dukhan 2019, arXiv 1907.02129",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32) return {};
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    },
    .cost = cost,
    .workspace_bytes = [](const Problem& z, Direction direction) -> std::size_t {
      return direction == Direction::backward_weight
                 ? WeightMemory(z, nullptr).bytes
                 : SumsMemory(sparse_sums(z, direction), nullptr).bytes;
    },
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .error_growth = 9,
    .exact_on_integers = true,
    .forward =
        [](const SparseConvForwardArgs& a) {
          sum_neighbours(sparse_sums(a.problem, Direction::forward), a.x, a.prepared, a.b, a.y,
                         a.workspace);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          sum_neighbours(sparse_sums(a.problem, Direction::backward_data), a.dy, a.prepared,
                         nullptr, a.dx, a.workspace);
        },
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)
