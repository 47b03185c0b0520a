// SPDX-License-Identifier: Apache-2.0
// tile_run_cuda.cu: packs the operands, chooses tiles and starts the products.
// Read next  tile_run.h; operands.cuh; tile_products.cuh
#include <algorithm>
#include <vector>

#include "framework/machine/peaks.h"
#include "layers/sparse_conv/shared/cuda/operands.cuh"
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"
#include "layers/sparse_conv/shared/cuda/tile_run.h"

namespace convscope::sparse_cuda {
namespace {

std::span<const SumsInstance> sums_of(const Problem& z) {
  if (z.dtype == DType::bf16) return bf16_sums();
  return z.dtype == DType::f32 && !is_tf32(z) ? f32_sums() : f16_sums();
}
std::span<const WeightsInstance> weights_of(const Problem& z) {
  if (z.dtype == DType::bf16) return bf16_weights();
  return z.dtype == DType::f32 && !is_tf32(z) ? f32_weights() : f16_weights();
}

std::vector<TapPart> parts_of(bool split) {
  if (split) return {TapPart::first_half, TapPart::second_half};
  return {TapPart::all};
}

// Considers the narrowest tiles that hold all lanes and whose table of entries fits into shared
// memory. Returns the tile for which all waves of blocks together load the fewest bytes from L2; a
// wave that is not full counts as full. (High tiles load fewer bytes, because they read w for more
// sites at once.) Returns null if no tile's table fits.
const SumsInstance* instance_for(const Problem& z, TapPart part, std::int64_t sites,
                                 std::int64_t lanes) {
  const CudaDeviceFacts& facts = cuda_device_facts();
  const PartTaps taps = taps_of(z.map->kernel(), part);
  const int columns = lanes <= 16 ? 16 : lanes <= 32 ? 32 : lanes <= 64 ? 64 : 128;
  const SumsInstance* best = nullptr;
  double least = 0;
  for (const SumsInstance& by : sums_of(z)) {
    if (by.columns != columns || by.shared_bytes(taps.rows, static_cast<int>(z.taps())) >
                                     static_cast<std::size_t>(facts.shared_bytes_per_block)) {
      continue;
    }
    const std::int64_t tiles =
        ceil_div(round_up(sites, std::int64_t{kSlotsStep}), by.rows) * ceil_div(lanes, by.columns);
    const std::int64_t at_once = std::int64_t{facts.multiprocessors} * by.blocks;
    constexpr double kPresent = 0.6;  // of the rows of a step
    const double bytes = static_cast<double>(ceil_div(tiles, at_once) * by.blocks) *
                         (kPresent * by.rows + by.columns);
    if (best == nullptr || bytes < least) {
      best = &by;
      least = bytes;
    }
  }
  return best;
}

// Returns the highest tile that the rows (tap, channel) fill, because high tiles read dy less
// often. With few channels a tile covers many taps; lower tiles then skip more of the sites.
const WeightsInstance& weights_instance_for(const Problem& z, std::int64_t taps, int pieces) {
  const int columns = z.k > 64 ? 128 : 64;
  const std::int64_t rows = taps * pieces * half_tiles::kPieceElements;
  const int highest = rows <= 64 ? 64 : z.c >= 64 ? 256 : 128;
  const WeightsInstance* best = nullptr;
  for (const WeightsInstance& by : weights_of(z)) {
    if (by.columns != columns || by.rows > highest) continue;
    if (best == nullptr || by.rows > best->rows) best = &by;
  }
  return *best;
}

// Returns the largest number of rows of `entries` (tile_table.h) that a tile of dw reads. The taps
// of a tile are adjacent, and one row of `entries` holds table.run taps.
int ring_rows_of(const TileTable& table, const WeightsInstance& by, int pieces) {
  const int taps = ceil_div(by.rows / half_tiles::kPieceElements - 1, pieces) + 1;
  return std::min(ceil_div(taps - 1, table.run) + 1, table.part.rows);
}

// `count` is the number of splits into which the slots are divided, `units` the units of a split.
struct Splits {
  int units = 1, count = 1, row_tiles = 1, lane_tiles = 1;

  Splits(const WeightsInstance& by, std::int64_t all_units, std::int64_t taps, int pieces,
         std::int64_t lanes) {
    row_tiles = static_cast<int>(ceil_div(taps * pieces * 8, std::int64_t{by.rows}));
    lane_tiles = static_cast<int>(ceil_div(lanes, std::int64_t{by.columns}));
    const int at_once = cuda_device_facts().multiprocessors * by.blocks;
    const std::int64_t wanted = std::max(1, 2 * at_once / (row_tiles * lane_tiles));
    // A split has at least 6 steps, so that its start and the addition of its results take little
    // time.
    const std::int64_t most = std::max<std::int64_t>(1, all_units / 6);
    std::int64_t splits = std::min({wanted, most, std::int64_t{256}});
    splits = std::max(splits, ceil_div(all_units, std::int64_t{kMaxUnits}));
    units = static_cast<int>(std::max<std::int64_t>(1, ceil_div(all_units, splits)));
    count = static_cast<int>(std::max<std::int64_t>(1, ceil_div(all_units, std::int64_t{units})));
  }
  std::int64_t rows(const WeightsInstance& by) const { return std::int64_t{row_tiles} * by.rows; }
};

Workspace weights_memory(const Problem& z, void* base, bool split) {
  Workspace out(z, base, z.in_count(), z.c, z.out_count(), z.k, false);
  std::int64_t most = 0;
  for (const TapPart part : parts_of(split)) {
    const int taps = taps_of(z.map->kernel(), part).count();
    const WeightsInstance& by = weights_instance_for(z, taps, out.first.pieces);
    const std::int64_t slots = round_up(z.out_count(), std::int64_t{kSlotsStep});
    const Splits splits(by, slots / kUnit, taps, out.first.pieces, z.k);
    most = std::max(most, splits.count * splits.rows(by) * z.k);
  }
  out.parts = out.memory.take<float>(most);
  return out;
}

}  // namespace

void run_sums(const SumsCall& call, bool split) {
  const Problem& z = call.problem;
  const SumsSizes plan(z, call.direction);
  const Workspace at = plan.memory(z, call.workspace, /*with_sums=*/split);
  pack_operands(z, at, call.in, call.w, true, call.direction == Direction::backward_data,
               plan.lanes);
  for (const TapPart part : parts_of(split)) {
    const auto table = tile_table(*z.map, plan.look, part);
    const SumsInstance& by = *instance_for(z, part, plan.sites, plan.lanes);
    const bool last = part != TapPart::first_half;
    const SumsArgs args{.table = TableView(*table, plan.look.mirrored),
                        .in = at.first.at(call.in),
                        .in_plane = at.first.plane(),
                        .w = at.second.memory,
                        .w_plane = at.second.plane(),
                        .pieces = at.first.pieces,
                        .by_pieces = FastDivisor(at.first.pieces),
                        .target = {.lanes = static_cast<int>(plan.lanes),
                                   .unscale = z.dtype == DType::f32 ? at.unscale : nullptr,
                                   .bias = last ? call.b : nullptr,
                                   .start = split && last ? at.parts : nullptr,
                                   .parts = last ? nullptr : at.parts,
                                   .out = call.out,
                                   .wide = z.dtype == DType::f32}};
    launch(by.kernel,
           {.grid = dim3(static_cast<unsigned>(table->slots / by.rows),
                         static_cast<unsigned>(ceil_div(plan.lanes, std::int64_t{by.columns}))),
            .block = dim3(static_cast<unsigned>(by.threads)),
            .shared_bytes = by.shared_bytes(table->part.rows, table->taps),
            .overlaps_previous = true},
           args);
  }
}

void run_weights(const SparseConvBackwardWeightArgs& call, bool split) {
  const Problem& z = call.problem;
  const Workspace at = weights_memory(z, call.workspace, split);
  const SparseLook look = z.map->look_by_output();
  pack_operands(z, at, call.x, call.dy, false, false, z.k);
  for (const TapPart part : parts_of(split)) {
    const auto table = tile_table(*z.map, look, part);
    const int taps = table->part.count();
    const WeightsInstance& by = weights_instance_for(z, taps, at.first.pieces);
    const Splits splits(by, table->units(), taps, at.first.pieces, z.k);
    const WeightsArgs args{.table = TableView(*table, look.mirrored),
                           .x = at.first.at(call.x),
                           .x_plane = at.first.plane(),
                           .pieces = at.first.pieces,
                           .dy = at.second.at(call.dy),
                           .dy_plane = at.second.plane(),
                           .dy_pieces = at.second.pieces,
                           .lanes = static_cast<int>(z.k),
                           .units_of_split = splits.units,
                           .ring_rows = ring_rows_of(*table, by, at.first.pieces),
                           .parts = at.parts,
                           .rows = static_cast<int>(splits.rows(by))};
    launch(by.kernel,
           {.grid =
                dim3(static_cast<unsigned>(splits.row_tiles),
                     static_cast<unsigned>(splits.lane_tiles), static_cast<unsigned>(splits.count)),
            .block = dim3(static_cast<unsigned>(by.threads)),
            .shared_bytes = by.shared_bytes(args.ring_rows),
            .overlaps_previous = true},
           args);
    const AddParts add{.parts = at.parts,
                       .unscale = z.dtype == DType::f32 ? at.unscale : nullptr,
                       .dw = call.dw,
                       .splits = splits.count,
                       .rows = static_cast<int>(splits.rows(by)),
                       .lanes = static_cast<int>(z.k),
                       .channels = static_cast<int>(z.c),
                       .taps = static_cast<int>(z.taps()),
                       .pieces = at.first.pieces,
                       .first_tap = table->part.first,
                       .end_tap = table->part.end,
                       .accumulate = call.accumulate};
    const LaunchShape shape = overlapping(grid_for(z.k * z.c * taps));
    with_float_type(z.dtype,
                    [&](auto zero) { launch(add_parts_kernel<decltype(zero)>, shape, add); });
  }
}

std::size_t tile_workspace_bytes(const Problem& z, Direction direction, bool split) {
  return direction == Direction::backward_weight
             ? weights_memory(z, nullptr, split).memory.bytes
             : SumsSizes(z, direction).memory(z, nullptr, split).memory.bytes;
}

Support tile_support(const Problem& z, Direction direction, bool split) {
  if (z.dtype == DType::f64) {
    return Support::no("expects elements of type f32, f16 or bf16, got f64");
  }
  if (z.w_shape().numel() >= std::int64_t{1} << 28) {
    return Support::no(cat("expects fewer than 2^28 weights, got ", z.w_shape().numel()));
  }
  if (direction == Direction::backward_weight) return {};
  const SumsSizes sizes(z, direction);
  for (const TapPart part : parts_of(split)) {
    if (instance_for(z, part, sizes.sites, sizes.lanes) != nullptr) continue;
    return Support::no(cat("expects a kernel whose table of taps fits into ",
                           cuda_device_facts().shared_bytes_per_block,
                           " bytes of shared memory, got ", z.map->kernel().text(z.map->rank())));
  }
  return {};
}

// Gathering rows from L2 limits the time. An H100 reads about 3.4 TB/s, if each row is counted as
// 64 bytes longer than it is. The bytes of weights count half, because concurrent blocks load the
// same weights. Most of the time of the tensor cores overlaps with loads.
Cost tile_cost(const Problem& z, Direction direction, bool split) {
  const bool f32 = z.dtype == DType::f32, weights = direction == Direction::backward_weight;
  const SumsSizes sizes(z, weights ? Direction::forward : direction);
  const double planes = planes_of(z);
  const auto depth = static_cast<double>(round_up(sizes.depth, std::int64_t{8}));
  const auto lanes = static_cast<double>(sizes.lanes), sites = static_cast<double>(sizes.sites);
  double products = 0, cache_bytes = 0;  // products of sites and taps
  double parts_bytes = 0;
  for (const TapPart part : parts_of(split)) {
    const auto masks = tile_masks(*z.map, sizes.look, part);
    cache_bytes += masks->useful * (2 * planes * depth + 64);
    if (weights) {
      const int pieces = half_tiles::pieces_of(static_cast<int>(z.c));
      const WeightsInstance& by = weights_instance_for(z, masks->part.count(), pieces);
      const int tile_pieces = by.rows / half_tiles::kPieceElements;
      const double executed = masks->executed_by_weights(tile_pieces, pieces);
      products += executed;
      cache_bytes += executed * pieces / tile_pieces * 2 * planes * lanes;
      const std::int64_t units = round_up(sizes.sites, std::int64_t{kSlotsStep}) / kUnit;
      const Splits splits(by, units, masks->part.count(), pieces, z.k);
      parts_bytes += static_cast<double>(splits.count * splits.rows(by)) * lanes * 4;
    } else {
      const SumsInstance& by = *instance_for(z, part, sizes.sites, sizes.lanes);
      const double executed = masks->executed_by_sums(by.rows / kUnit);
      products += executed;
      cache_bytes += executed / by.rows * planes * depth * lanes;
      cache_bytes *= static_cast<double>(ceil_div(sizes.lanes, std::int64_t{by.columns}));
    }
  }
  const double peak_cache = weights ? 3.2e12 : 3.4e12;
  const double flops = 2 * products * depth * lanes;
  const double cache_us = cache_bytes / peak_cache * 1e6;
  const double unit_us = flops * (planes == 2 ? 3 : 1) / 600e12 * 1e6;
  const double hidden = weights && planes == 2 ? 0.2 : 0.6;  // of the shorter one
  double us = std::max(cache_us, unit_us) + (1 - hidden) * std::min(cache_us, unit_us);
  // dw: rows stay in L1, but lists of units take time, and partial results are written and added
  // up.
  if (weights) us = 0.75 * us + 15 + parts_bytes * 1.2e-6;
  // For f32 problems peak_share is relative to the peak of TF32. fp16 runs at twice this rate, so
  // the three fp16 products of f32 count as 1.5, the single one of TF32 as 0.5.
  const double counted = flops * (!f32 ? 1 : planes == 2 ? 1.5 : 0.5);
  const double peak = f32 ? kUnmeasuredGpu.tf32_flops : kUnmeasuredGpu.half_flops;
  const double packed =
      !f32 ? 0
           : static_cast<double>(sizes.there * sizes.depth + (weights ? z.out_count() * z.k : 0));
  return {.flops = counted,
          .bytes = z.nominal_bytes(),
          .peak_share = std::clamp(counted / (peak * std::max(us, 1.0) * 1e-6), 1e-4, 1.0),
          .pass_bytes = packed * (8 + 2 * planes) + (split && !weights ? 12 * sites * lanes : 0),
          .launches = (f32 ? 3.0 : 2.0) + (weights ? 1 : 0) + (split ? 2 : 0),
          .tensor_cores = true,
          .executed_flops = flops};
}

}  // namespace convscope::sparse_cuda
