// SPDX-License-Identifier: Apache-2.0
// grouped_gemm_plan.h: the tiling of grouped_gemm: the groups that share a product, the part of the
// image that a block keeps in shared memory, and the counts of its work. The file needs no CUDA, so
// tests check it on the CPU.
//
// Octet     8 neighbouring channels: 16 bytes in fp16/bf16, 32 in f32. Tensor cores take operands
//           and accumulators by octets.
// Bundle    neighbouring groups that together fill whole octets of input and of output: one group
//           of 8 channels, two groups of 4, four groups of 6. A bundle's weight is 0 where its
//           input and output channels belong to different groups.
// Slice     the bundles that one block of threads computes, about 128 bytes of a pixel.
// Tile      the output positions of one block: some rows of an image, or whole images.
// Patch     the pixels that a tile reads, in shared memory. Positions are `step_w` pixels apart.
//           The columns 0, step_w, 2 step_w, .. of a row are stored first, then 1, step_w + 1, ..
//           So neighbouring outputs read neighbouring pixels of the patch.
// Slot      one octet of one tap: 8 terms of the reduction. An MMA takes two slots (fp16, bf16) or
//           one slot (f32).
// Read next  grouped_gemm_gather.cuh, grouped_gemm_weight.cuh
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "layers/conv2d/problem.h"
#include "layers/conv2d/shared/cuda/gather_lines.h"
#include "layers/dispatch/cost/choose.h"

namespace convscope::grouped_gemm {

inline constexpr int kOctet = 8;
inline constexpr int kMaxOctets = 8;  // octets of a bundle, on either side
inline constexpr int kMaxTaps = 49;   // taps of a kernel
inline constexpr int kMaxStride = 4;  // stride of backward_data; each remainder is a phase
inline constexpr int kMaxPhases = kMaxStride * kMaxStride;
inline constexpr int kMaxPositions = 1024;
inline constexpr int kRows = 32;  // positions that a warp computes at once
inline constexpr int kWarps = 8;  // warps of a block in forward and backward_data
// pairs of slots that a warp multiplies in backward_weight; the 9 taps of an octet are 5 pairs
inline constexpr int kChunkSteps = 5;
inline constexpr int kMaxWarps = 16;  // of backward_weight

struct Machine {
  int multiprocessors = 132;
  int shared_bytes = 227 * 1024;  // shared memory that one block may use: all of an SM's

  // Returns how many blocks an SM holds. The hardware reserves 1024 bytes of shared memory for each
  // block.
  double blocks_of(int bytes) const { return (shared_bytes + 1024.0) / (bytes + 1024.0); }
};

// Parameters of a kernel.
struct GroupedGemmParams {
  int images, in_h, in_w, out_h, out_w;
  int in_octets, out_octets;           // octets of a stored pixel
  int out_channels;                    // output channels without padding channels
  int bundles, bundle_in, bundle_out;  // bundles, and the octets of one bundle
  int slice_bundles, slices;
  FastDivisor by_slices, by_bundle_out, by_steps;
  FastDivisor by_columns, by_row_blocks;  // forward: see the kernel's units of a warp
  // The tile, and how it cuts the image.
  int tile_images, tile_h, tile_w, positions;
  FastDivisor by_tile_h, by_tile_w, by_tiles_h, by_tiles_w;
  // The patch.
  int step_h, step_w;  // pixels between two positions
  int low_h, low_w;    // first row and column read by position 0
  int patch_h, patch_w, columns;
  FastDivisor by_patch_h, by_step_w;
  int pitch;  // bytes of a pixel
  // The reduction: taps of all phases, one phase after the other.
  int phases_h, phases_w, out_step_h, out_step_w;
  short tap_begin[kMaxPhases + 1];
  short step_begin[kMaxPhases + 1];  // first product of each phase, for one octet of y
  short tap_kernel[kMaxTaps];        // r S + s
  int tap_at[kMaxTaps];              // offset from the position's pixel, in pixels of the patch

  constexpr int phases() const { return phases_h * phases_w; }
  constexpr int steps() const { return step_begin[phases()]; }
  constexpr int slice_in() const { return slice_bundles * bundle_in; }
  constexpr int slice_out() const { return slice_bundles * bundle_out; }
  constexpr int patch_pixels() const { return tile_images * patch_h * columns * step_w; }
  constexpr int patch_bytes() const { return patch_pixels() * pitch; }
  constexpr int padded_positions() const { return round_up(positions, kRows); }
  constexpr int tiles() const {
    return ceil_div(images, tile_images) * by_tiles_h.d * by_tiles_w.d;
  }
};

// Returns the bytes that a pixel takes in shared memory: `bytes` rounded up to an odd number of
// 16-byte units, which puts the same unit of eight neighbouring pixels into eight different banks.
constexpr int odd_pieces(int bytes) { return (bytes / 16 | 1) * 16; }
// Returns the bytes of a pixel in shared memory for lanes that read single words (backward_weight
// of tf32): an odd multiple of eight words. Lane l reads channel l/4 of pixel l%4, and with this
// pitch all lanes use different banks.
constexpr int odd_eight_words(int bytes) { return (bytes / 32 | 1) * 32; }

// Returns how many groups form a bundle.
inline int bundled(const Conv2dProblem& z) {
  const auto common = std::gcd(std::gcd(z.c_per_group(), z.k_per_group()), std::int64_t{kOctet});
  return kOctet / static_cast<int>(common);
}
inline int octet_bytes(const Conv2dProblem& z) { return kOctet * (z.dtype == DType::f32 ? 4 : 2); }
inline int slots_of_step(const Conv2dProblem& z) { return z.dtype == DType::f32 ? 1 : 2; }
// Returns how many octets of y a warp computes from the same registers of x. The octets belong to
// one bundle.
constexpr int octets_at_once(int bundle_out) {
  for (int i = 4; i > 1; --i) {
    if (bundle_out % i == 0) return i;
  }
  return 1;
}

// Returns all sizes except those of slice and tile.
inline GroupedGemmParams sizes_of(const Conv2dProblem& z, Direction direction) {
  using gather::Line;
  const auto narrow = [](std::int64_t size) { return static_cast<int>(size); };
  const int h = narrow(z.h), w = narrow(z.w), p = narrow(z.p()), q = narrow(z.q());
  const int r = narrow(z.r), s = narrow(z.s);
  const int c_octets = narrow(ceil_div(z.c, std::int64_t{kOctet}));
  const int k_octets = narrow(ceil_div(z.k, std::int64_t{kOctet}));
  const int together = bundled(z);
  const int c_bundle = narrow(z.c_per_group()) * together / kOctet;
  const int k_bundle = narrow(z.k_per_group()) * together / kOctet;
  const bool back = direction == Direction::backward_data;
  GroupedGemmParams out{};
  out.images = narrow(z.n);
  out.in_h = back ? p : h, out.in_w = back ? q : w;
  out.out_h = back ? h : p, out.out_w = back ? w : q;
  out.in_octets = back ? k_octets : c_octets;
  out.out_octets = back ? c_octets : k_octets;
  out.out_channels = narrow(back ? z.c : z.k);
  out.bundles = narrow(ceil_div(z.groups, std::int64_t{together}));
  out.bundle_in = back ? k_bundle : c_bundle;
  out.bundle_out = back ? c_bundle : k_bundle;
  out.phases_h = back ? std::min(narrow(z.stride_h), h) : 1;
  out.phases_w = back ? std::min(narrow(z.stride_w), w) : 1;
  out.out_step_h = back ? narrow(z.stride_h) : 1;
  out.out_step_w = back ? narrow(z.stride_w) : 1;
  out.step_h = back ? 1 : narrow(z.stride_h);
  out.step_w = back ? 1 : narrow(z.stride_w);
  const auto line_h = [&](int phase) {
    return back ? gather::backward_line(phase, h, p, r, narrow(z.stride_h), narrow(z.pad_top),
                                        narrow(z.dilation_h))
                : gather::forward_line(h, p, r, narrow(z.stride_h), narrow(z.pad_top),
                                       narrow(z.dilation_h));
  };
  const auto line_w = [&](int phase) {
    return back ? gather::backward_line(phase, w, q, s, narrow(z.stride_w), narrow(z.pad_left),
                                        narrow(z.dilation_w))
                : gather::forward_line(w, q, s, narrow(z.stride_w), narrow(z.pad_left),
                                       narrow(z.dilation_w));
  };
  struct Span {
    int low = 0, high = 0;
    bool met = false;
    void add(const Line& line) {
      for (int t = 0; t < line.taps; ++t) {
        const int at = line.in_first + t * line.tap_step;
        low = met ? std::min(low, at) : at;
        high = met ? std::max(high, at) : at;
        met = true;
      }
    }
  } rows, columns;
  for (int i = 0; i < out.phases_h; ++i) rows.add(line_h(i));
  for (int i = 0; i < out.phases_w; ++i) columns.add(line_w(i));
  out.low_h = rows.low, out.low_w = columns.low;
  out.patch_h = rows.high - rows.low + 1;  // rows for one position; set_tile() enlarges it
  out.patch_w = columns.high - columns.low + 1;
  int taps = 0, steps = 0;
  for (int i = 0; i < out.phases(); ++i) {
    const Line a = line_h(i / out.phases_w), b = line_w(i % out.phases_w);
    out.tap_begin[i] = static_cast<short>(taps);
    out.step_begin[i] = static_cast<short>(steps);
    for (int t = 0; t < a.taps; ++t) {
      for (int u = 0; u < b.taps; ++u) {
        out.tap_kernel[taps] = static_cast<short>(a.kernel(t) * s + b.kernel(u));
        // Packs row and column, which set_tile() converts to an offset.
        out.tap_at[taps++] = (a.in_first + t * a.tap_step - rows.low) << 16 |
                             (b.in_first + u * b.tap_step - columns.low);
      }
    }
    steps += ceil_div((taps - out.tap_begin[i]) * out.bundle_in, slots_of_step(z));
  }
  out.tap_begin[out.phases()] = static_cast<short>(taps);
  out.step_begin[out.phases()] = static_cast<short>(steps);
  return out;
}

struct Tile {
  int images = 1, h = 1, w = 1, slice_bundles = 1;
};

inline GroupedGemmParams with_tile(GroupedGemmParams z, const Tile& tile, int pitch) {
  z.slice_bundles = tile.slice_bundles;
  z.slices = ceil_div(z.bundles, tile.slice_bundles);
  z.by_slices = FastDivisor(z.slices);
  z.by_bundle_out = FastDivisor(z.bundle_out), z.by_steps = FastDivisor(z.steps());
  z.tile_images = tile.images, z.tile_h = tile.h, z.tile_w = tile.w;
  z.positions = tile.images * tile.h * tile.w;
  z.by_tile_h = FastDivisor(tile.h), z.by_tile_w = FastDivisor(tile.w);
  z.by_tiles_h = FastDivisor(ceil_div(ceil_div(z.out_h, z.out_step_h), tile.h));
  z.by_tiles_w = FastDivisor(ceil_div(ceil_div(z.out_w, z.out_step_w), tile.w));
  z.patch_h += (tile.h - 1) * z.step_h;
  z.patch_w += (tile.w - 1) * z.step_w;
  z.columns = ceil_div(z.patch_w, z.step_w);
  z.by_patch_h = FastDivisor(z.patch_h);
  z.by_step_w = FastDivisor(z.step_w);
  z.by_row_blocks = FastDivisor(z.padded_positions() / kRows);
  z.pitch = pitch;
  for (int t = 0; t < z.tap_begin[z.phases()]; ++t) {
    const int row = z.tap_at[t] >> 16, column = z.tap_at[t] & 0xffff;
    z.tap_at[t] = row * z.columns * z.step_w + column % z.step_w * z.columns + column / z.step_w;
  }
  return z;
}

// Calls visit(tile) for each candidate: whole images, or an image split into equal rows and
// columns.
template <class Visit>
void visit_tiles(const GroupedGemmParams& z, int octet_bytes, const Visit& visit) {
  const int high = ceil_div(z.out_h, z.out_step_h), wide = ceil_div(z.out_w, z.out_step_w);
  const int octets = std::max(z.bundle_in, z.bundle_out);
  for (int bundles = 1; bundles <= z.bundles; ++bundles) {
    if (bundles > 1 && bundles * octets * octet_bytes > 192) break;
    for (int cuts_w = ceil_div(wide, kMaxPositions);; cuts_w += 1 + cuts_w / 8) {
      const int tile_w = ceil_div(wide, cuts_w);
      if (cuts_w > 1 && tile_w < 7) break;
      for (int cuts_h = ceil_div(high, kMaxPositions / tile_w);; cuts_h += 1 + cuts_h / 8) {
        const int tile_h = ceil_div(high, cuts_h);
        const int most = cuts_w * cuts_h == 1 ? std::min(z.images, 8) : 1;
        for (int images = 1; images <= most; images *= 2) {
          if (images * tile_h * tile_w > kMaxPositions) break;
          visit(Tile{images, tile_h, tile_w, bundles});
        }
        if (tile_h == 1) break;
      }
      if (tile_w == 1) break;
    }
  }
}

// ---- forward and backward_data -----------------------------------------------------------------

struct GatherPlan {
  GroupedGemmParams sizes = {};
  int at_once = 1, bundles_at_once = 1;  // template parameters of the kernel
  int shared_bytes = 0;
  Cost cost = {};  // with prepared weights

  bool exists() const { return shared_bytes > 0; }
};

inline int weight_bytes(const GroupedGemmParams& z) { return z.slice_out() * z.steps() * 256; }
inline int slot_count(const GroupedGemmParams& z, int slots) { return z.steps() * slots; }

// Returns the bytes that memory transfers when `bytes` of a pixel are read. Memory transfers whole
// sectors of 32 bytes, and a pixel may begin inside a sector.
constexpr double sectors(int bytes) { return bytes % 32 == 0 ? bytes : round_up(bytes, 32) + 16; }
// Returns how many copies of a warp move `lines` rows of `pixels` pixels, each with `pieces` units
// of 16 bytes. Pixels that are `step` apart are copied together.
inline double warp_copies(int lines, int pixels, int step, int pieces) {
  return number(lines) * step * ceil_div(ceil_div(pixels, step), 32 / pieces);
}
// Returns the bytes of all tensors, in whole sectors.
inline double sector_bytes(const Conv2dProblem& z, int in_row, int out_row) {
  return z.nominal_bytes() * std::max(sectors(in_row) / in_row, sectors(out_row) / out_row);
}

// Returns the kernel: its type, octets of y and bundles at once.
inline const char* schedule_of(const GatherPlan& plan, bool f32) {
  constexpr const char* kNames[2][4][3] = {
      {{"", "half 1x2", "half 1x4"}, {"half 2x1", "half 2x2", ""}, {"half 3x1"}, {"half 4x1"}},
      {{"", "tf32 1x2", "tf32 1x4"}, {"tf32 2x1", "tf32 2x2", ""}, {"tf32 3x1"}, {"tf32 4x1"}}};
  return kNames[f32 ? 1 : 0][plan.at_once - 1][plan.bundles_at_once / 2];
}

// Calls visit(plan) for every candidate.
template <class Visit>
void visit_gather_plans(const Conv2dProblem& z, Direction direction, const Machine& machine,
                        const Visit& visit) {
  const GroupedGemmParams whole = sizes_of(z, direction);
  const int bytes = octet_bytes(z);
  const int slots = slots_of_step(z);
  const bool f32 = z.dtype == DType::f32;
  visit_tiles(whole, bytes, [&](const Tile& tile) {
    const int row = tile.slice_bundles * whole.bundle_in * bytes;
    const int out_row = tile.slice_bundles * whole.bundle_out * bytes;
    const GroupedGemmParams s = with_tile(whole, tile, odd_pieces(row));
    GatherPlan plan{.sizes = s};
    plan.at_once = octets_at_once(s.bundle_out);
    const std::int64_t shared =
        std::int64_t{weight_bytes(s)} + std::int64_t{s.patch_pixels()} * s.pitch +
        4 * (slot_count(s, slots) + (1 + s.phases()) * s.padded_positions());
    if (shared > machine.shared_bytes) return;
    plan.shared_bytes = static_cast<int>(shared);
    const int row_blocks = s.padded_positions() / kRows;
    const int lines = s.tile_images * s.patch_h;
    const double blocks = number(s.tiles()) * s.slices;
    const double loads = weight_bytes(s) + lines * s.patch_w * sectors(row);
    const double copies = warp_copies(lines, s.patch_w, s.step_w, row / 16);
    for (const int bundles : {1, 2, 4}) {
      const int all = plan.at_once * bundles;
      if (all > 4 || (plan.at_once == 1 && bundles == 1)) continue;
      const int columns = ceil_div(s.slice_out(), all);
      const double units = number(row_blocks) * columns;  // in each phase
      const double rounds = std::ceil(units * s.phases() / kWarps);
      plan.bundles_at_once = bundles;
      plan.sizes.by_columns = FastDivisor(columns);
      plan.cost = {
          .flops = z.nominal_flops(),
          .bytes = sector_bytes(z, row, out_row),
          .issued = blocks * units * s.steps() * 2 * kRows * all * kOctet * slots * kOctet,
          .cached = blocks * loads,
          .schedule = schedule_of(plan, f32),
          .blocks = blocks,
          .resident = std::floor(std::clamp(machine.blocks_of(plan.shared_bytes), 1.0, 3.0)),
          .chain = rounds * ceil_div(s.steps(), s.phases()),
          .copies = std::ceil(copies / kWarps) + std::ceil(weight_bytes(s) / (16.0 * kWarps * 32)),
          .waits = rounds,
          .listed_warps = blocks * (copies + units * s.phases()),
          .stored = blocks * s.positions * s.phases() * s.slice_out() * kOctet,
          .tensor_cores = true};
      visit(plan);
    }
  });
}

inline GatherPlan plan_gather(const Conv2dProblem& z, Direction direction, const Machine& machine) {
  Cheapest<GatherPlan> best({"conv2d", "grouped_gemm", direction}, DeviceType::cuda, z.dtype);
  visit_gather_plans(z, direction, machine,
                     [&](const GatherPlan& plan) { best.offer(plan, plan.cost); });
  return best.found();
}

// ---- backward_weight ---------------------------------------------------------------------------

struct GroupedWeightTiling {
  GroupedGemmParams sizes = {};  // sizes of the forward pass
  int dy_pitch = 0;              // bytes between two pixels of dy
  int dy_pieces = 0;             // 16-byte units of a pixel of dy
  int at_once = 1;               // octets of dy that a warp takes at once
  int pairs = 0, chunks = 0;     // pairs of slots, and the number of warps that share them
  // jobs: warps with different octets of dy or chunks of pairs; shares: warps that divide the
  // positions of one job
  int jobs = 0, shares = 1;
  int parts = 1;
  int stage_bytes = 0, shared_bytes = 0;
  Cost cost = {};

  bool exists() const { return shared_bytes > 0; }
  // Returns the number of float4 of accumulators: [bundle, octet of dy][pair][lane].
  std::int64_t quads() const { return std::int64_t{sizes.bundles} * sizes.bundle_out * pairs * 32; }
  int threads() const { return jobs * shares * 32; }
  std::size_t part_bytes() const { return static_cast<std::size_t>(quads() * parts) * 16; }
};

inline constexpr int kMaxParts = 512;

// Returns the kernel: its type and octets of dy at once.
inline const char* schedule_of(const GroupedWeightTiling& plan, bool f32) {
  constexpr const char* kNames[2][4] = {{"half 1", "half 2", "half 3", "half 4"},
                                        {"tf32 1", "tf32 2", "tf32 3", "tf32 4"}};
  return kNames[f32 ? 1 : 0][plan.at_once - 1];
}

template <class Visit>
void visit_weight_plans(const Conv2dProblem& z, const Machine& machine, const Visit& visit) {
  const GroupedGemmParams whole = sizes_of(z, Direction::forward);
  const int bytes = octet_bytes(z);
  const bool f32 = z.dtype == DType::f32;
  visit_tiles(whole, bytes, [&](const Tile& tile) {
    const int row = tile.slice_bundles * whole.bundle_in * bytes;
    const int dy_row = tile.slice_bundles * whole.bundle_out * bytes;
    GroupedWeightTiling plan;
    plan.sizes = with_tile(whole, tile, f32 ? odd_eight_words(row) : odd_pieces(row));
    const GroupedGemmParams& s = plan.sizes;
    plan.dy_pitch = f32 ? odd_eight_words(dy_row) : odd_pieces(dy_row);
    plan.dy_pieces = dy_row / 16;
    plan.at_once = octets_at_once(s.bundle_out);
    plan.pairs = ceil_div(s.tap_begin[1] * s.bundle_in, 2);
    plan.chunks = ceil_div(plan.pairs, kChunkSteps);
    plan.jobs = s.slice_out() / plan.at_once * plan.chunks;
    const std::int64_t stage = std::int64_t{s.patch_pixels()} * s.pitch +
                               std::int64_t{s.padded_positions()} * plan.dy_pitch;
    const int depth = s.padded_positions();
    if (plan.jobs > kMaxWarps || 2 * stage + 4 * depth > machine.shared_bytes) return;
    plan.stage_bytes = static_cast<int>(stage);
    const int lines = s.tile_images * s.patch_h;
    // The work of one tile.
    const double products =
        2.0 * depth * plan.jobs * kChunkSteps * 2 * kOctet * plan.at_once * kOctet;
    const double loads = lines * s.patch_w * sectors(row) + number(s.positions) * sectors(dy_row);
    const double copies = warp_copies(lines, s.patch_w, s.step_w, row / 16) +
                          warp_copies(s.tile_images * s.tile_h, s.tile_w, 1, dy_row / 16);
    const double all_tiles = number(s.tiles()) * s.slices;
    const double part = number(plan.quads()) * 16;
    // Neighbouring elements of a partial sum are not neighbours in dw: each takes a sector.
    const double scattered = 32 * number(z.w_shape().numel());
    for (const int shares : {1, 2, 4}) {
      const int warps = plan.jobs * shares;
      const int exchanged = (shares - 1) * plan.jobs * kChunkSteps * plan.at_once * 512;
      if (warps > kMaxWarps || exchanged > 2 * plan.stage_bytes) break;
      plan.shares = shares;
      plan.shared_bytes = 2 * plan.stage_bytes + 4 * depth;
      // Registers limit the resident blocks: each thread has 128.
      const double resident =
          std::max(1.0, std::floor(std::min(machine.blocks_of(plan.shared_bytes), 16.0 / warps)));
      for (int parts = 1; parts <= kMaxParts && parts <= s.tiles(); parts += 1 + parts / 8) {
        const double tiles = ceil_div(s.tiles(), parts);  // of a block
        plan.parts = parts;
        plan.cost = {.flops = z.nominal_flops(),
                     .bytes = sector_bytes(z, row, dy_row),
                     .issued = all_tiles * products,
                     .cached = all_tiles * loads,
                     .schedule = schedule_of(plan, f32),
                     .blocks = number(parts) * s.slices,
                     .resident = resident,
                     .chain = tiles * std::ceil(depth / 32.0 / shares),
                     .copies = tiles * std::ceil(copies / warps),
                     .waits = tiles + shares - 1,  // barriers, exchanges of sums
                     .listed_warps = all_tiles * copies,
                     .stored = part / 4 * parts,
                     .pass_bytes = 2 * part * parts + scattered,
                     .launches = 2,
                     .tensor_cores = true};
        visit(plan);
      }
    }
  });
}

inline GroupedWeightTiling plan_weight(const Conv2dProblem& z, const Machine& machine) {
  Cheapest<GroupedWeightTiling> best({"conv2d", "grouped_gemm", Direction::backward_weight},
                                     DeviceType::cuda, z.dtype);
  visit_weight_plans(z, machine,
                     [&](const GroupedWeightTiling& plan) { best.offer(plan, plan.cost); });
  return best.found();
}

}  // namespace convscope::grouped_gemm
