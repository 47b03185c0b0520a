// SPDX-License-Identifier: Apache-2.0
// sparse_halo_cuda.cu: submanifold convolution tile by tile. A tile is 256 sites that are close
// together. The rows of all their neighbours are loaded into shared memory once, where all taps
// read them.
//
// Formula    y[i,k] = b[k] + sum over taps t, c of w[k,c,t] x[j(i,t),c]        (problem.h)
// Textbook   implicit_gemm gathers one row of x for each pair of neighbours: on a surface 13 rows
//            of C elements for each site
// Method     forward, dx   a block computes a tile and up to 64 lanes. It loads the rows of the
//                          halo into shared memory, 1.2 to 2.3 rows for each site. It loads the
//                          weights of one tap after the other into a ring of three stages, and
//                          multiplies 64 sites at a time, whose rows ldmatrix reads in place
//                          (gathered_tile.cuh)
// Shapes     x [n,C], w [K,C,(T,)R,S], y [n,K]; f32 (three products of scaled fp16), TF32, f16,
//            bf16; sums f32
// Supports   submanifold, at most 32 taps and 5 along w, rows of at most 64 channels, whose halo
//            fits into shared memory (in f32 sm_90 has enough); sm_80 and newer; no dw
// Cost       L2 is read once for each tile: the rows of the halo and the weights. A tile multiplies
//            64 sites with each tap that one of the sites has. Neither memory traffic nor products
//            limit the time, but the latency of a step (see halo_cost())
// Numerics   as implicit_gemm: bound 32 eps of the sum over magnitudes. Same bits on each run
// Choices    sites are in the order of the Z curve, not sorted by their taps. So tiles visit more
//            taps, but read less than half of the bytes. wgmma takes the gathered operand from
//            registers, because its descriptors cannot address arbitrary rows of shared memory
// Source     see the paper in the registration
// Read next  halo_table.h, then halo_product.cuh
#include <algorithm>
#include <cmath>
#include <span>

#include "layers/sparse_conv/algorithm.h"
#include "layers/sparse_conv/halo/cuda/halo_instances.cuh"
#include "layers/sparse_conv/shared/cuda/operands.cuh"

namespace convscope {
namespace sparse_cuda {
namespace {

// The sizes, the kernel and the shared memory of one call.
struct HaloPlan {
  SumsSizes sizes;
  const HaloInstance* by = nullptr;  // null: there are too many channels
  int shared_bytes = 0;
  WeightTiles tiles;

  HaloPlan(const Problem& z, Direction direction) : sizes(z, direction) {
    const std::span<const HaloInstance> instances = z.dtype == DType::bf16 ? bf16_halo()
                                                    : planes_of(z) == 2    ? f32_halo()
                                                                           : f16_halo();
    const int columns = sizes.lanes <= 32 ? 32 : 64;
    for (const HaloInstance& one : instances) {
      if (by == nullptr && one.columns == columns && one.depth >= sizes.depth) by = &one;
    }
    const PartTaps taps = taps_of(z.map->kernel(), TapPart::all);
    if (by == nullptr) return;
    shared_bytes = by->shared_bytes(taps.rows);
    tiles = {.columns = by->columns,
             .step_taps = kTileDepth / by->depth,
             .depth = static_cast<int>(sizes.depth),
             .mirrored = sizes.look.mirrored};
  }
  Workspace memory(const Problem& z, void* base) const {
    return {z, base, sizes.there, sizes.depth, tiles.rows(z.taps(), sizes.lanes), kTileDepth, true};
  }
};

Support halo_support(const Problem& z, Direction direction) {
  if (z.dtype == DType::f64) {
    return Support::no("expects elements of type f32, f16 or bf16, got f64");
  }
  if (direction == Direction::backward_weight) {
    return Support::no("computes forward and backward_data only");
  }
  if (const std::string why = halo_refusal(*z.map); !why.empty()) return Support::no(why);
  if (z.w_shape().numel() >= std::int64_t{1} << 28) {
    return Support::no(cat("expects fewer than 2^28 weights, got ", z.w_shape().numel()));
  }
  const HaloPlan plan(z, direction);
  if (plan.by == nullptr) {
    return Support::no(cat("expects rows of at most 64 channels, got ", plan.sizes.depth));
  }
  const int most = cuda_device_facts().shared_bytes_per_block;
  if (plan.shared_bytes > most) {
    return Support::no(cat("expects ", plan.shared_bytes, " bytes of shared memory for rows of ",
                           plan.sizes.depth, " channels, got ", most));
  }
  return {};
}

void run_halo(const Problem& z, Direction direction, const void* in, const void* w, const void* b,
              void* out, void* workspace) {
  const HaloPlan plan(z, direction);
  const Workspace at = plan.memory(z, workspace);
  pack_operands(z, at, in, w, true, direction == Direction::backward_data, plan.sizes.lanes,
               plan.tiles);
  const auto table = halo_table(*z.map);
  HaloArgs args{.records = data_of<const unsigned>(table->records),
                .heads = data_of<const int>(table->heads),
                .masks = data_of<const unsigned>(table->masks),
                .taps = table->taps,
                .run = table->run,
                .rows = table->rows,
                .in = at.first.at(in),
                .in_plane = at.first.plane(),
                .w = at.second.memory,
                .w_plane = at.second.plane(),
                .pieces = at.first.pieces,
                .target = {.lanes = static_cast<int>(plan.sizes.lanes),
                           .unscale = z.dtype == DType::f32 ? at.unscale : nullptr,
                           .bias = b,
                           .out = out,
                           .wide = z.dtype == DType::f32}};
  for (std::size_t d = 0; d < 3; ++d) {
    args.size[d] = static_cast<int>(z.map->kernel().size[d]);
    args.dilation[d] = static_cast<int>(z.map->kernel().dilation[d]);
  }
  launch(plan.by->kernel,
         {.grid = dim3(
              static_cast<unsigned>(table->tiles),
              static_cast<unsigned>(ceil_div(plan.sizes.lanes, std::int64_t{plan.by->columns}))),
          .block = dim3(static_cast<unsigned>(plan.by->threads)),
          .shared_bytes = static_cast<std::size_t>(plan.shared_bytes),
          .overlaps_previous = true},
         args);
}

// A step looks up two table entries, loads rows into registers and multiplies them.
Cost halo_cost(const Problem& z, Direction direction) {
  constexpr const char* kNames[3][2] = {
      {"half narrow", "half wide"}, {"tf32 narrow", "tf32 wide"}, {"f32 narrow", "f32 wide"}};
  const bool f32 = z.dtype == DType::f32;
  const HaloPlan plan(z, direction);
  const HaloInstance& by = *plan.by;
  const auto facts = halo_facts(*z.map);
  const double planes = planes_of(z);
  const double lane_tiles = number(ceil_div(plan.sizes.lanes, std::int64_t{by.columns}));
  const double blocks = std::max(number(facts->tiles) * lane_tiles, 1.0);
  const double steps = facts->taps / plan.tiles.step_taps * lane_tiles;  // of all blocks
  const double rows = facts->rows * lane_tiles;
  const double row_bytes = 2 * planes * by.depth;
  const double packed = number(plan.sizes.there * plan.sizes.depth + z.w_shape().numel());
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = (f32 ? planes == 2 ? 1.5 : 0.5 : 1.0) * 2 * facts->executed * by.depth *
                    lane_tiles * by.columns,
          .cached = row_bytes * rows + steps * 2 * planes * kTileDepth * by.columns,
          .schedule = kNames[f32 ? planes_of(z) : 0][by.columns == 64 ? 1 : 0],
          .blocks = blocks,
          // One block fits with three products, two with one.
          .resident = planes == 2 ? 1.0 : 2.0,
          .chain = std::ceil(steps / blocks),
          .copies = std::ceil(rows / blocks * row_bytes / 16 / by.threads),
          .pass_bytes = packed * (f32 ? 8 + 2 * planes : 4),
          .launches = f32 ? 3.0 : 2.0,
          .tensor_cores = true};
}

}  // namespace
}  // namespace sparse_cuda

namespace {

const SparseConvAlgorithm kAlgorithm{
    .name = "halo",
    .device = DeviceType::cuda,
    .idea =
        "256 adjacent sites, and each of their neighbours once, in shared memory; "
        "taps read their rows there",
    .paper =
        "Graham et al. 2018, arXiv 1711.10275 (the convolution); Morton 1966 (the order of sites)",
    .supports = sparse_cuda::halo_support,
    .cost = sparse_cuda::halo_cost,
    .workspace_bytes =
        [](const SparseConvProblem& z, Direction direction) {
          return sparse_cuda::HaloPlan(z, direction).memory(z, nullptr).memory.bytes;
        },
    .error_growth = 32,
    .exact_on_integers = true,
    .forward =
        [](const SparseConvForwardArgs& a) {
          sparse_cuda::run_halo(a.problem, Direction::forward, a.x, a.w, a.b, a.y, a.workspace);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          sparse_cuda::run_halo(a.problem, Direction::backward_data, a.dy, a.w, nullptr, a.dx,
                                a.workspace);
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)
