// SPDX-License-Identifier: Apache-2.0
// sparse_native_cuda.cu: sparse convolution tap by tap. The pairs of a tap are a list. A kernel
// gathers their rows, multiplies the rows by the tap's weights and adds the products to y.
//
// Formula    y[i,k] = b[k] + sum over taps t, c of w[k,c,t] x[j(i,t),c]        (problem.h)
// Textbook   for each tap: gathered = x[list]; product = gathered w_t; y[list] += product
// Method     forward, dx   one kernel for each tap gathers, multiplies and scatters. So neither
//                          gathered rows nor products are stored in memory. But y (or dx) is read
//                          and written once for each tap
//            dw            one kernel for all taps; the K dimension is the list, cut into parts
// Shapes     x [n,C], w [K,C,(T,)R,S], y [m,K]; f32, TF32, f16, bf16; sums f32
// Cost       useful products only, rounded up to whole tiles of a list; 8 bytes for each tap and
//            site for the lists, and 8 K bytes of sums for each pair
// Numerics   as implicit_gemm, and one more rounding in f32 for each tap. Same bits on each run
// Choices    a list has each output once, and taps follow one another, so no two threads add to an
//            element at the same time. One kernel for all taps would need atomics
// Source     B. Graham et al. 2018, arXiv 1711.10275; Y. Yan et al. 2018, SECOND, Sensors 18(10)
// Read next  sparse_pairs.cuh
#include <algorithm>
#include <cmath>

#include "layers/sparse_conv/algorithm.h"
#include "layers/sparse_conv/native/cuda/sparse_pairs.cuh"
#include "layers/sparse_conv/shared/cuda/operands.cuh"
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"
#include "layers/sparse_conv/shared/cuda/tile_run.h"

namespace convscope::sparse_cuda {
namespace {

using half_tiles::Variant;

struct Lists {
  Tensor there, here, counts;  // i32
  std::int64_t sites = 0;

  PairLists view() const {
    return {.there = there.data<std::int32_t>(),
            .here = here.data<std::int32_t>(),
            .counts = counts.data<std::int32_t>(),
            .sites = static_cast<int>(sites)};
  }
};

std::shared_ptr<const Lists> pair_lists(const Problem& z, const SparseLook& look) {
  const Device device = current_device();
  const std::string name =
      cat(device.str(), look.by_input ? " pairs by input" : " pairs by output");
  return z.map->form<Lists>(name, [&] {
    const auto table = tile_table(*z.map, look);
    auto out = std::make_shared<Lists>();
    out->sites = table->sites;
    const std::int64_t taps = table->taps;
    const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(table->slots, kThreads));
    out->there = Tensor::empty({taps, out->sites}, DType::i32, device);
    out->here = Tensor::empty({taps, out->sites}, DType::i32, device);
    out->counts = Tensor::zeros({taps}, DType::i32, device);
    const Tensor counts = Tensor::empty({taps, blocks}, DType::i32, device);
    PairLists lists = out->view();
    lists.blocks = counts.data<std::int32_t>();
    lists.block_count = static_cast<int>(blocks);
    if (table->sites > 0) {
      const TableView view(*table, false);
      const LaunchShape shape{
          .grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(taps)),
          .block = dim3(kThreads)};
      launch(list_pairs_kernel<false>, shape, view, lists);
      launch(begin_pairs_kernel,
             {.grid = dim3(static_cast<unsigned>(taps)), .block = dim3(kThreads)}, lists);
      launch(list_pairs_kernel<true>, shape, view, lists);
    }
    return std::shared_ptr<const Lists>(out);
  });
}

// Returns how many steps of 64 pairs a split of a list has: so many that the longest list, that of
// the centre tap, has about 24 splits. Then all lists together have several blocks for each SM.
int steps_of_split(const Problem& z) {
  return static_cast<int>(
      std::clamp<std::int64_t>(ceil_div(z.out_count(), std::int64_t{kTileDepth} * 24), 8, 64));
}
int splits_of(const Problem& z) {
  const std::int64_t steps = ceil_div(z.out_count(), std::int64_t{kTileDepth});
  return static_cast<int>(
      std::max<std::int64_t>(1, ceil_div(steps, std::int64_t{steps_of_split(z)})));
}
int row_tiles_of(const Workspace& at) { return ceil_div(at.first.pieces, 8); }

Workspace weights_memory(const Problem& z, void* base) {
  Workspace out(z, base, z.in_count(), z.c, z.out_count(), z.k, false);
  out.parts = out.memory.take<float>(splits_of(z) * z.taps() * row_tiles_of(out) * 64 * z.k);
  return out;
}

// Calls body(kernel, rows, columns, threads, shared bytes) for the tile of a type.
template <template <class> class Kernel, class Body>
void with_tile(const Problem& z, bool wide, const Body& body) {
  const auto by = [&]<class V>(V) {
    body(Kernel<V>::kernel, V::kTileRows, V::kTileColumns, V::kThreads, V::kSharedBytes);
  };
  if (z.dtype == DType::bf16) {
    return wide ? by(Variant<BFloat16, float, 1, 1, 1, 128, 3, 2>{})
                : by(Variant<BFloat16, float, 1, 1, 1, 64, 4, 3>{});
  }
  if (planes_of(z) == 2) {
    return wide ? by(Variant<Float16, float, 3, 1, 1, 128, 2, 2>{})
                : by(Variant<Float16, float, 3, 1, 1, 64, 3, 2>{});
  }
  return wide ? by(Variant<Float16, float, 1, 1, 1, 128, 3, 2>{})
              : by(Variant<Float16, float, 1, 1, 1, 64, 4, 3>{});
}
template <class V>
struct SumsKernel {
  static constexpr auto kernel = tap_sums_kernel<V>;
};
template <class V>
struct WeightsKernel {
  static constexpr auto kernel = tap_weights_kernel<V>;
};

void sums(const SumsCall& call) {
  const Problem& z = call.problem;
  const SumsSizes plan(z, call.direction);
  const Workspace at = plan.memory(z, call.workspace, /*with_sums=*/true);
  const std::int64_t count = plan.sites * plan.lanes;
  CONVSCOPE_CUDA(
      cudaMemsetAsync(at.parts, 0, static_cast<std::size_t>(count) * sizeof(float), cuda_stream()));
  pack_operands(z, at, call.in, call.w, true, call.direction == Direction::backward_data,
               plan.lanes);
  const auto lists = pair_lists(z, plan.look);
  const PairLists view = lists->view();
  with_tile<SumsKernel>(
      z, plan.lanes > 64, [&](auto* kernel, int rows, int columns, int threads, int shared) {
        for (int tap = 0; tap < static_cast<int>(z.taps()); ++tap) {
          const std::int64_t list = tap * plan.sites;
          const int weight_tap = plan.look.mirrored ? static_cast<int>(z.taps()) - 1 - tap : tap;
          const TapSums args{.there = view.there + list,
                             .here = view.here + list,
                             .count = view.counts + tap,
                             .in = at.first.at(call.in),
                             .in_plane = at.first.plane(),
                             .w = at.second.memory + weight_tap * plan.lanes * at.second.pieces,
                             .w_plane = at.second.plane(),
                             .pieces = at.first.pieces,
                             .lanes = static_cast<int>(plan.lanes),
                             .sums = at.parts};
          launch(kernel,
                 {.grid = dim3(static_cast<unsigned>(ceil_div(plan.sites, std::int64_t{rows})),
                               static_cast<unsigned>(ceil_div(plan.lanes, std::int64_t{columns}))),
                  .block = dim3(static_cast<unsigned>(threads)),
                  .shared_bytes = static_cast<std::size_t>(shared),
                  .overlaps_previous = true},
                 args);
        }
      });
  const FinishSums finish{.sums = at.parts,
                          .unscale = z.dtype == DType::f32 ? at.unscale : nullptr,
                          .bias = call.b,
                          .out = call.out,
                          .count = count,
                          .lanes = static_cast<int>(plan.lanes)};
  with_float_type(z.dtype, [&](auto zero) {
    launch(finish_sums_kernel<decltype(zero)>, overlapping(grid_for(count)), finish);
  });
}

void weights(const SparseConvBackwardWeightArgs& call) {
  const Problem& z = call.problem;
  const Workspace at = weights_memory(z, call.workspace);
  pack_operands(z, at, call.x, call.dy, false, false, z.k);
  const auto lists = pair_lists(z, z.map->look_by_output());
  const int row_tiles = row_tiles_of(at), splits = splits_of(z);
  const auto taps = static_cast<int>(z.taps());
  const TapWeights args{.lists = lists->view(),
                        .x = at.first.at(call.x),
                        .x_plane = at.first.plane(),
                        .pieces = at.first.pieces,
                        .dy = at.second.at(call.dy),
                        .dy_plane = at.second.plane(),
                        .dy_pieces = at.second.pieces,
                        .lanes = static_cast<int>(z.k),
                        .steps_of_split = steps_of_split(z),
                        .row_tiles = row_tiles,
                        .parts = at.parts,
                        .rows = taps * row_tiles * 64};
  with_tile<WeightsKernel>(
      z, z.k > 64, [&](auto* kernel, int, int columns, int threads, int shared) {
        launch(kernel,
               {.grid = dim3(static_cast<unsigned>(taps * row_tiles),
                             static_cast<unsigned>(ceil_div(z.k, std::int64_t{columns})),
                             static_cast<unsigned>(splits)),
                .block = dim3(static_cast<unsigned>(threads)),
                .shared_bytes = static_cast<std::size_t>(shared),
                .overlaps_previous = true},
               args);
      });
  const AddParts add{.parts = at.parts,
                     .unscale = z.dtype == DType::f32 ? at.unscale : nullptr,
                     .dw = call.dw,
                     .splits = splits,
                     .rows = args.rows,
                     .lanes = static_cast<int>(z.k),
                     .channels = static_cast<int>(z.c),
                     .taps = taps,
                     .pieces = row_tiles * 8,
                     .first_tap = 0,
                     .end_tap = taps,
                     .accumulate = call.accumulate,
                     .counts = args.lists.counts,
                     .pairs_of_split = args.steps_of_split * kTileDepth};
  with_float_type(z.dtype, [&](auto zero) {
    launch(add_parts_kernel<decltype(zero)>, overlapping(grid_for(z.k * z.c * taps)), add);
  });
}

// Forward and dx have one grid for each tap, and each pair reads and writes a row of accumulators.
// Tiles beyond the end of a list return at once.
Cost cost(const Problem& z, Direction direction) {
  constexpr const char* kNames[3][2] = {
      {"half narrow", "half wide"}, {"tf32 narrow", "tf32 wide"}, {"f32 narrow", "f32 wide"}};
  tile_table(*z.map, z.map->look_by_output());  // counts the pairs on the device
  const bool f32 = z.dtype == DType::f32, weights = direction == Direction::backward_weight;
  const SumsSizes sizes(z, weights ? Direction::forward : direction);
  const Workspace at = weights ? weights_memory(z, nullptr) : sizes.memory(z, nullptr, true);
  const double planes = planes_of(z), pairs = number(z.map->pairs()), taps = number(z.taps());
  const double pieces = at.first.pieces, depth = pieces * half_tiles::kPieceElements;
  Cost out{.flops = z.nominal_flops(),
           .bytes = z.nominal_bytes(),
           .schedule = kNames[f32 ? planes_of(z) : 0][sizes.lanes > 64 ? 1 : 0],
           .listed_warps = pairs / 32,
           .launches = f32 ? 2.0 : at.first.packed || at.second.packed ? 1.0 : 0.0,
           .tensor_cores = true};
  for (const Factor& one : {at.first, at.second}) {
    if (one.packed) out.pass_bytes += number(one.rows * one.width) * (f32 ? 8 + 2 * planes : 4);
  }
  with_tile<SumsKernel>(z, sizes.lanes > 64, [&](auto*, int rows, int columns, int threads, int) {
    const double lane_tiles = number(ceil_div(sizes.lanes, std::int64_t{columns}));
    const double factor = f32 ? planes == 2 ? 1.5 : 0.5 : 1.0;  // relative to the peak of TF32
    const double products = factor * 2 * pairs * lane_tiles * columns;
    const double step_copies = planes * kStepPieces / threads;
    if (weights) {
      const double row_tiles = row_tiles_of(at), splits = splits_of(z);
      out.issued = products * row_tiles * kTileDepth;
      out.cached = pairs * 2 * planes * row_tiles * lane_tiles * (kTileDepth + columns);
      out.blocks = taps * row_tiles * lane_tiles * splits;
      out.chain = std::min(number(steps_of_split(z)),
                           std::ceil(number(z.out_count()) / kTileDepth));
      out.copies = out.chain * std::ceil(step_copies * (rows + columns));
      out.pass_bytes += 8 * splits * taps * row_tiles * 64 * number(z.k);  // parts
      out.launches += 2;
      return;
    }
    const double tiles = std::max(pairs / rows, taps) * lane_tiles;  // that are not empty
    const double steps = std::ceil(pieces / kStepPieces);
    // The kernels of the taps run one after another.
    out.issued = products * depth;
    out.cached = pairs * 2 * planes * depth * lane_tiles + tiles * 2 * planes * depth * columns;
    out.blocks = std::max(std::ceil(tiles / taps), 1.0);
    out.chain = taps * steps;
    out.copies = out.chain * std::ceil(step_copies * (rows + columns));
    out.stored = pairs * number(sizes.lanes);
    const double sums = number(sizes.sites * sizes.lanes);
    out.pass_bytes += 8 * pairs * number(sizes.lanes) +  // accumulators, read and written
                      sums * (8 + static_cast<double>(size_of(z.dtype)));
    out.launches += taps + 2;  // and those that clear and finish the accumulators
  });
  return out;
}

const SparseConvAlgorithm kAlgorithm{
    .name = "native",
    .device = DeviceType::cuda,
    .idea = "tap by tap over lists of pairs: gather, multiply and add in one kernel for each tap",
    .paper = "Graham et al. 2018, arXiv 1711.10275; Yan et al. 2018: SECOND, Sensors 18(10) 3337",
    .supports = [](const Problem& z, Direction) -> Support {
      // Uses the check of dw, whose tables fit for every problem.
      return tile_support(z, Direction::backward_weight, false);
    },
    .cost = cost,
    .workspace_bytes = [](const Problem& z, Direction direction) -> std::size_t {
      return direction == Direction::backward_weight
                 ? weights_memory(z, nullptr).memory.bytes
                 : SumsSizes(z, direction).memory(z, nullptr, true).memory.bytes;
    },
    .error_growth = 40,
    .exact_on_integers = true,
    .forward =
        [](const SparseConvForwardArgs& a) {
          sums({a.problem, Direction::forward, a.x, a.w, a.b, a.y, a.workspace});
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          sums({a.problem, Direction::backward_data, a.dy, a.w, nullptr, a.dx, a.workspace});
        },
    .backward_weight = weights,
};

}  // namespace
}  // namespace convscope::sparse_cuda
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::sparse_cuda::kAlgorithm)
