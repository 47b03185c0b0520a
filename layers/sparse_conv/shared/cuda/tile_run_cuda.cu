// SPDX-License-Identifier: Apache-2.0
// tile_run_cuda.cu: packs the operands, chooses tiles and starts the products.
// Read next  tile_run.h; operands.cuh; tile_products.cuh
#include <algorithm>
#include <cmath>
#include <vector>

#include "layers/dispatch/cost/choose.h"
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

int narrow(std::int64_t value) { return static_cast<int>(value); }

const char* algorithm_of(bool split) { return split ? "split_mask" : "implicit_gemm"; }

std::vector<TapPart> parts_of(bool split) {
  if (split) return {TapPart::first_half, TapPart::second_half};
  return {TapPart::all};
}

// `executed` counts products of sites and taps, with those of padding; `useful` counts the
// neighbours that tiles load.
struct SumsWork {
  std::int64_t sites = 0, lanes = 0, depth = 0;
  double executed = 0, useful = 0;
};

// An f32 problem counts relative to the peak of TF32, which is half of that of fp16.
double products_of(const Problem& z) {
  return z.dtype != DType::f32 ? 1 : planes_of(z) == 2 ? 1.5 : 0.5;
}
// The kernel: the type of the products, and whether a tile has more than 32 lanes.
const char* schedule_of(const Problem& z, int columns) {
  constexpr const char* kNames[3][2] = {
      {"half narrow", "half wide"}, {"tf32 narrow", "tf32 wide"}, {"f32 narrow", "f32 wide"}};
  return kNames[z.dtype != DType::f32 ? 0 : planes_of(z)][columns > 32 ? 1 : 0];
}

Cost counts_of(const Problem& z, const SumsInstance& by, const SumsWork& work) {
  const double planes = planes_of(z), pieces = half_tiles::pieces_of(narrow(work.depth));
  const double row_bytes = 2 * planes * pieces * half_tiles::kPieceElements;
  const double slots = number(round_up(work.sites, std::int64_t{kSlotsStep}));
  const double lane_tiles = number(ceil_div(work.lanes, std::int64_t{by.columns}));
  const double steps = std::ceil(work.executed / std::max(slots, 1.0) * pieces / kStepPieces);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = products_of(z) * 2 * work.executed * pieces * half_tiles::kPieceElements *
                    lane_tiles * by.columns,
          .cached = lane_tiles * row_bytes * (work.useful + work.executed / by.rows * by.columns),
          .schedule = schedule_of(z, by.columns),
          .blocks = std::max(slots / by.rows * lane_tiles, 1.0),
          .resident = static_cast<double>(by.blocks),
          .chain = steps,
          .copies = steps * std::ceil(planes * kStepPieces * (by.rows + by.columns) / by.threads),
          .listed_warps = lane_tiles * work.useful / 32,
          .tensor_cores = true};
}

// Considers the narrowest tiles that hold all lanes and whose table of entries fits into shared
// memory. Returns null if no tile's table fits. The choice does not wait for the counts of the map,
// so it counts each site with all neighbours.
const SumsInstance* instance_for(const Problem& z, Direction direction, bool split, TapPart part) {
  const CudaDeviceFacts& facts = cuda_device_facts();
  const PartTaps taps = taps_of(z.map->kernel(), part);
  const SumsSizes sizes(z, direction);
  const std::int64_t lanes = sizes.lanes;
  const int columns = lanes <= 16 ? 16 : lanes <= 32 ? 32 : lanes <= 64 ? 64 : 128;
  const double entries = number(sizes.sites * taps.count());
  const SumsWork work{.sites = sizes.sites,
                      .lanes = lanes,
                      .depth = sizes.depth,
                      .executed = entries,
                      .useful = entries};
  Cheapest<const SumsInstance*> best({"sparse_conv", algorithm_of(split), direction},
                                     DeviceType::cuda, z.dtype);
  for (const SumsInstance& by : sums_of(z)) {
    if (by.columns != columns || by.shared_bytes(taps.rows, static_cast<int>(z.taps())) >
                                     static_cast<std::size_t>(facts.shared_bytes_per_block)) {
      continue;
    }
    best.offer(&by, counts_of(z, by, work));
  }
  return best.found();
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
    const SumsInstance& by = *instance_for(z, call.direction, split, part);
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
  for (const TapPart part : parts_of(split)) {
    if (instance_for(z, direction, split, part) != nullptr) continue;
    return Support::no(cat("expects a kernel whose table of taps fits into ",
                           cuda_device_facts().shared_bytes_per_block,
                           " bytes of shared memory, got ", z.map->kernel().text(z.map->rank())));
  }
  return {};
}

namespace {

// Bytes that kernels before the products read and write: the largest magnitudes of f32 operands,
// and the packing.
double packed_bytes(const Problem& z, const Workspace& at) {
  const double element = static_cast<double>(size_of(z.dtype));
  const double reads = z.dtype == DType::f32 ? 2 : 1, planes = planes_of(z);
  double bytes = 0;
  for (const Factor& one : {at.first, at.second}) {
    if (one.packed) bytes += number(one.rows * one.width) * (reads * element + 2 * planes);
  }
  return bytes;
}
// Kernels of a call: of the largest magnitudes, of the packing, and of the products.
double launches_of(const Problem& z, const Workspace& at) {
  return z.dtype == DType::f32 ? 3 : at.first.packed || at.second.packed ? 2 : 1;
}

Cost sums_cost(const Problem& z, Direction direction, bool split) {
  const SumsSizes sizes(z, direction);
  Cost total;
  for (const TapPart part : parts_of(split)) {
    const auto masks = tile_masks(*z.map, sizes.look, part);
    const SumsInstance& by = *instance_for(z, direction, split, part);
    const Cost one = counts_of(z, by,
                               {.sites = sizes.sites,
                                .lanes = sizes.lanes,
                                .depth = sizes.depth,
                                .executed = masks->executed_by_sums(by.rows / kUnit),
                                .useful = masks->useful});
    if (total.blocks == 0) {
      total = one;
      continue;
    }
    // The two halves run one after the other.
    total.issued += one.issued;
    total.cached += one.cached;
    total.chain += one.chain;
    total.copies += one.copies;
    total.listed_warps += one.listed_warps;
  }
  const Workspace at = sizes.memory(z, nullptr, split);
  total.pass_bytes = packed_bytes(z, at);
  // The first half writes its sums as f32, the second one reads them.
  if (split) total.pass_bytes += 8 * number(sizes.sites * sizes.lanes);
  total.launches = launches_of(z, at) + (split ? 1 : 0);
  return total;
}

Cost weights_cost(const Problem& z, bool split) {
  const SumsSizes sizes(z, Direction::forward);
  const Workspace at = weights_memory(z, nullptr, split);
  const double planes = planes_of(z);
  const int pieces = at.first.pieces;
  const double depth = pieces * half_tiles::kPieceElements, lanes = number(z.k);
  Cost total{.flops = z.nominal_flops(),
             .bytes = z.nominal_bytes(),
             .pass_bytes = packed_bytes(z, at),
             .launches = launches_of(z, at) + 1 + (split ? 2 : 0),
             .tensor_cores = true};
  for (const TapPart part : parts_of(split)) {
    const auto masks = tile_masks(*z.map, sizes.look, part);
    const WeightsInstance& by = weights_instance_for(z, masks->part.count(), pieces);
    const int tile_pieces = by.rows / half_tiles::kPieceElements;
    const double executed = masks->executed_by_weights(tile_pieces, pieces);
    const std::int64_t units = round_up(sizes.sites, std::int64_t{kSlotsStep}) / kUnit;
    const Splits splits(by, units, masks->part.count(), pieces, z.k);
    const double visits = executed * pieces / tile_pieces;  // of slots by tiles of rows
    const double steps = std::ceil(visits / kUnit / (splits.row_tiles * splits.count));
    total.issued += products_of(z) * 2 * executed * depth * splits.lane_tiles * by.columns;
    total.cached += 2 * planes * splits.lane_tiles * (masks->useful * depth + visits * by.columns);
    total.schedule = schedule_of(z, by.columns);
    total.blocks = splits.row_tiles * splits.lane_tiles * splits.count;
    total.resident = by.blocks;
    total.chain += steps;
    total.copies +=
        steps * std::ceil(planes * kStepPieces * (by.rows + by.columns) / by.threads);
    total.waits += splits.units;  // a block lists the units that have one of its taps
    total.listed_warps += splits.lane_tiles * masks->useful / 32;
    total.pass_bytes += 8 * number(splits.count * splits.rows(by)) * lanes;  // parts
  }
  return total;
}

}  // namespace

Cost tile_cost(const Problem& z, Direction direction, bool split) {
  return direction == Direction::backward_weight ? weights_cost(z, split)
                                                 : sums_cost(z, direction, split);
}

}  // namespace convscope::sparse_cuda
