// SPDX-License-Identifier: Apache-2.0
// direct_nchw16c_weights.cpp: backward_weight in NCHW16c: tiles of input channels x output channels
// stay in registers over rows of pixels; x and dy are read in place.
//
// Method     direct_nchw16c_weight_plan.h describes the tiling. Each tap (r, s) skips the rows and
//            columns for which the tap is outside the image. The first unit of a chunk assigns its
//            sums, the following units add to them. Then the slices are added up, and the sums are
//            written to dw. Where x is [N,C,H,W] with few channels, the tile's rows also include
//            the kernel rows r that are inside the image for a row of dy.
// Bits       Chunks depend on the problem and the caches only, so dw has the same bits with any
//            number of threads.
// Read next  ../../shared/nchw16c_weight_tiles_simd.cpp, the tiles; direct_nchw16c_weight_plan.h
#include "layers/conv2d/direct_nchw16c/cpu/direct_nchw16c_weights.h"

#include <array>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/direct_nchw16c/cpu/direct_nchw16c_weight_plan.h"
#include "layers/conv2d/direct_nchw16c/cpu/stem.h"

namespace convscope::direct_nchw16c {
namespace {

using Index = std::int64_t;

class WeightGradient {
 public:
  WeightGradient(const Nchw16cWeightTiling& plan, const Conv2dBackwardWeightArgs& args)
      : plan_(plan),
        z_(plan.z),
        kernels_(nchw16c_kernels.get()),
        x_{.data = static_cast<const float*>(args.x),
           .image = round_up(z_.c, kChannelBlock) * plan.h * plan.w,
           .row = z_.stride_h * plan.w * kChannelBlock,
           .step = z_.stride_w * kChannelBlock,
           .block = plan.h * plan.w * kChannelBlock},
        dy_{.data = static_cast<const float*>(args.dy),
            .image = round_up(z_.k, kChannelBlock) * plan.p * plan.q,
            .row = plan.q * kChannelBlock,
            .step = kChannelBlock,
            .block = plan.p * plan.q * kChannelBlock},
        sums_(static_cast<float*>(args.workspace)),
        dw_(static_cast<float*>(args.dw)),
        accumulate_(args.accumulate) {}

  void run() const {
    const bool sliced = plan_.slices > 1;
    parallel_chunks(plan_.parts() * plan_.slices, [&](Index chunk, int thread) {
      const Part part = part_of(chunk % plan_.parts());
      float* const sums = sums_ + (sliced ? chunk : thread) * plan_.part_floats();
      sum_slice(chunk / plan_.parts(), part, sums);
      if (!sliced) write(part, sums);
    });
    if (!sliced) return;
    parallel_chunks(plan_.parts(), [&](Index index, int) {
      const Part part = part_of(index);
      float* const sums = sums_ + index * plan_.part_floats();
      for (Index slice = 1; slice < plan_.slices; ++slice) {
        const float* const more = sums + slice * plan_.parts() * plan_.part_floats();
        for (Index i = 0; i < plan_.part_floats(); ++i) sums[i] += more[i];
      }
      write(part, sums);
    });
  }

 private:
  // A tensor in NCHW16c. Steps are in floats. `step` is the distance between the pixels that belong
  // to neighbouring pixels of dy.
  struct Operand {
    const float* data;
    Index image, row, step, block;
    // Returns channel 0 of a group's n-th image; groups are whole blocks.
    const float* at(Index n, Index channel) const {
      return data + n * image + channel / kChannelBlock * block + channel % kChannelBlock;
    }
  };
  // A part of a group's dw: blocks of lanes [lane, lane_end) and blocks of rows [row, row_end).
  // Rows are channels; the part has `channels` of them, from channel `first` on.
  struct Part {
    Index g, lane, lane_end, row, row_end, first, channels;
  };
  struct Unit {
    Index n, n_end, p, p_end;
  };
  // Spreads the prefetch of the next unit's pixels over several tiles of this unit. If one tile
  // prefetched all of these pixels, it would wait for memory.
  class Ahead {
   public:
    Ahead(const float* from, Index pixels, Index tiles)
        : next_(from),
          pixels_(pixels),
          step_(ceil_div(kChannelBlock, std::max<Index>(tiles, 1))),
          tiles_(pixels == 0 ? 0 : kChannelBlock / step_) {}
    void give(Nchw16cWeightTile& tile) {
      tile.next = tiles_ > 0 ? next_ : tile.beside;
      tile.next_step = tiles_ > 0 ? step_ : 0;
      if (tiles_ > 0) --tiles_;
      next_ += pixels_ * step_;
    }

   private:
    const float* next_;
    Index pixels_, step_, tiles_;
  };

  Part part_of(Index index) const {
    Part part{};
    const Index lane_parts = plan_.lane_parts(), row_parts = plan_.row_parts();
    part.g = index / (lane_parts * row_parts);
    part.lane = index / row_parts % lane_parts * plan_.lane_step;
    part.lane_end = std::min(part.lane + plan_.lane_step, plan_.lane_blocks);
    part.row = index % row_parts * plan_.row_step;
    part.row_end = std::min(part.row + plan_.row_step, plan_.row_blocks);
    part.first = part.row * kChannelBlock;
    part.channels = std::min(part.row_end * kChannelBlock, plan_.row_channels) - part.first;
    return part;
  }
  Index lane_count(Index block) const {
    return std::min(plan_.width, plan_.lane_channels - block * plan_.width);
  }
  float* sums_of(const Part& part, Index lane, float* sums) const {
    return sums + (lane - part.lane) * plan_.block_floats();
  }

  Unit unit_of(Index u) const {
    Unit unit{};
    unit.n = u / plan_.strips * plan_.images;
    unit.n_end = std::min(unit.n + plan_.images, z_.n);
    unit.p = u % plan_.strips * plan_.rows;
    unit.p_end = std::min(unit.p + plan_.rows, plan_.p);
    return unit;
  }
  // Returns what to prefetch during a unit and block of lanes: the next block of lanes, or the next
  // unit. Pixels of a strided x are not contiguous and are not prefetched.
  Ahead after(Index u, const Part& part, Index lane) const {
    const Operand& beside = plan_.lanes_are_inputs ? x_ : dy_;
    const bool last = lane + 1 == part.lane_end;
    if ((last && u + 1 == plan_.units) || (plan_.lanes_are_inputs && !plan_.flat)) {
      return Ahead(beside.data, 0, 0);
    }
    const Unit unit = unit_of(last ? u + 1 : u);
    const Index channel =
        part.g * plan_.lane_channels + (last ? part.lane : lane + 1) * plan_.width;
    return Ahead(beside.at(unit.n, channel) + unit.p * beside.row,
                 (unit.p_end - unit.p) * plan_.q * (unit.n_end - unit.n),
                 (part.row_end - part.row) * plan_.taps);
  }

  void sum_slice(Index slice, const Part& part, float* sums) const {
    const bool loads = accumulate_ && slice == 0;
    if (loads || plan_.planes || plan_.units == 0) {
      std::fill_n(sums, plan_.part_floats(), 0.0f);
      if (loads) load(part, sums);
    }
    const Index first = slice * plan_.units / plan_.slices;
    for (Index u = first; u < (slice + 1) * plan_.units / plan_.slices; ++u) {
      const Unit unit = unit_of(u);
      if (plan_.planes) {
        sum_rows_of_planes(unit, part, sums);
        continue;
      }
      for (Index lane = part.lane; lane < part.lane_end; ++lane) {
        float* const to = sums_of(part, lane, sums);
        Ahead ahead = after(u, part, lane);
        for (Index row = part.row; row < part.row_end; ++row) {
          sum_unit(unit, part, lane, row, u == first && !loads, ahead,
                   to + (row - part.row) * kChannelBlock * plan_.taps * plan_.width);
        }
      }
    }
  }

  // Adds all taps of one block of lanes and one block of rows. With `start`, sums are assigned.
  void sum_unit(const Unit& unit, const Part& part, Index lane, Index row, bool start, Ahead& ahead,
                float* sums) const {
    const bool inputs = plan_.lanes_are_inputs;
    const Operand& in = inputs ? dy_ : x_;
    const Operand& beside = inputs ? x_ : dy_;
    const Index in_channel = part.g * plan_.row_channels + row * kChannelBlock;
    const Index lane_channel = part.g * plan_.lane_channels + lane * plan_.width;
    const Index c = inputs ? lane_channel : in_channel;
    const Index k = inputs ? in_channel : lane_channel;
    const float* const x = x_.at(unit.n, c);
    const float* const dy = dy_.at(unit.n, k);
    Nchw16cWeightTile tile;
    tile.channels =
        static_cast<int>(std::min(kChannelBlock, plan_.row_channels - row * kChannelBlock));
    tile.images = unit.n_end - unit.n;
    tile.in_image = in.image;
    tile.in_row = in.row;
    tile.in_step = in.step;
    tile.ahead = row + 1 < part.row_end ? in.block : 0;
    tile.beside_image = beside.image;
    tile.beside_row = beside.row;
    tile.beside_step = beside.step;
    tile.beside_block = beside.block;
    tile.sums_row = plan_.taps * plan_.width;
    tile.start = start;
    const int width = tile_width(lane);
    if (is_there(lane)) {
      sums = dw_ + dw_at(part, lane) + (row - part.row) * kChannelBlock * plan_.lane_channels;
      tile.sums_row = plan_.lane_channels;
    }
    for (Index r = 0; r < z_.r; ++r) {
      const Index up = z_.pad_top - r * z_.dilation_h;  // h = p stride - up
      const Index p = std::max(unit.p, up <= 0 ? 0 : ceil_div(up, z_.stride_h));
      const Index p_end = std::min(unit.p_end, floor_div(plan_.h - 1 + up, z_.stride_h) + 1);
      for (Index s = 0; s < z_.s; ++s) {
        const Index left = z_.pad_left - s * z_.dilation_w;
        const Index q = left <= 0 ? 0 : ceil_div(left, z_.stride_w);
        const Index q_end = std::min(plan_.q, floor_div(plan_.w - 1 + left, z_.stride_w) + 1);
        tile.sums = sums + (r * z_.s + s) * plan_.width;
        if (p >= p_end || q >= q_end) {
          for (Index i = 0; start && i < tile.channels; ++i) {
            std::fill_n(tile.sums + i * tile.sums_row, plan_.width, 0.0f);
          }
          continue;
        }
        tile.rows = plan_.flat ? 1 : p_end - p;
        tile.columns = plan_.flat ? p_end - p : q_end - q;
        const float* const x_at =
            x + ((p * z_.stride_h - up) * plan_.w + q * z_.stride_w - left) * kChannelBlock;
        const float* const dy_at = dy + p * dy_.row + q * kChannelBlock;
        tile.in = inputs ? dy_at : x_at;
        tile.beside = inputs ? x_at : dy_at;
        ahead.give(tile);
        kernels_.weight_tile(tile, width);
        tile.ahead = 0;  // one prefetch is enough
      }
    }
  }

  // Returns true where a tile can write dw directly. With one unit and no empty lanes, the sums of
  // the tile are the elements of dw.
  bool is_there(Index lane) const {
    return plan_.lanes_are_inputs && plan_.units == 1 && !accumulate_ &&
           lane_count(lane) == tile_width(lane);
  }

  // Loads dw as the start of the sums.
  void load(const Part& part, float* sums) const {
    for (Index lane = part.lane; lane < part.lane_end; ++lane) {
      float* const to = sums_of(part, lane, sums);
      const float* const from = dw_ + dw_at(part, lane);
      if (plan_.lanes_are_inputs) {
        for (Index k = 0; k < part.channels; ++k) {
          std::copy_n(from + k * plan_.lane_channels, lane_count(lane), to + k * plan_.width);
        }
      } else {
        gemm_kernels.get().transpose(from, dw_row(), lane_count(lane), part.channels * plan_.taps,
                                     to, plan_.width);
      }
    }
  }
  void write(const Part& part, const float* sums) const {
    if (plan_.lanes_are_inputs) {
      for (Index k = 0; k < part.channels; ++k) {
        for (Index lane = part.lane; lane < part.lane_end; ++lane) {
          if (is_there(lane)) continue;
          std::copy_n(sums + (lane - part.lane) * plan_.block_floats() + k * plan_.width,
                      lane_count(lane), dw_ + dw_at(part, lane) + k * plan_.lane_channels);
        }
      }
      return;
    }
    for (Index lane = part.lane; lane < part.lane_end; ++lane) {
      gemm_kernels.get().transpose(sums + (lane - part.lane) * plan_.block_floats(), plan_.width,
                                   part.channels * plan_.taps, lane_count(lane),
                                   dw_ + dw_at(part, lane), dw_row());
    }
  }
  Index dw_row() const { return z_.c_per_group() * plan_.taps; }  // the weights of one kernel
  // Returns the offset in dw of the sums of a block of lanes.
  Index dw_at(const Part& part, Index lane) const {
    const Index channel = lane * plan_.width;
    return plan_.lanes_are_inputs
               ? (part.g * plan_.row_channels + part.first) * plan_.lane_channels + channel
               : (part.g * plan_.lane_channels + channel) * dw_row() + part.first * plan_.taps;
  }

  // Sums over runs of rows of dy. All rows of a run have the same kernel rows r inside the image.
  void sum_rows_of_planes(const Unit& unit, const Part& part, float* sums) const {
    const auto first_row = [&](Index p) {  // the first r that is inside for p
      return std::clamp<Index>(ceil_div(z_.pad_top - p * z_.stride_h, z_.dilation_h), 0, z_.r);
    };
    const auto end_row = [&](Index p) {
      const Index room = z_.h - 1 + z_.pad_top - p * z_.stride_h;
      return room < 0 ? 0 : std::min(z_.r, room / z_.dilation_h + 1);
    };
    for (Index p = unit.p; p < unit.p_end;) {
      const Index r = first_row(p), r_end = end_row(p);
      Index p_end = p + 1;
      while (p_end < unit.p_end && first_row(p_end) == r && end_row(p_end) == r_end) ++p_end;
      sum_run(unit.n, part, {.p = p, .p_end = p_end, .r = r, .r_end = r_end}, sums);
      p = p_end;
    }
  }

  // A row of sums belongs to a channel, a kernel row r and a kernel column s. A run lists channels
  // and kernel rows once; the list serves all lanes and all s.
  struct Run {
    Index p, p_end, r, r_end;
  };
  static constexpr Index kListed = 64;
  void sum_run(Index n, const Part& part, const Run& run, float* sums) const {
    std::array<Nchw16cWeightRow, kListed> rows;
    const Index high = run.r_end - run.r, plane = z_.h * z_.w;
    const float* const x = x_.data + (n * z_.c + part.g * z_.c_per_group()) * plane;
    Index c = 0, r = run.r;
    for (Index rest = std::max<Index>(high, 0) * z_.c_per_group(); rest > 0; rest -= kListed) {
      const Index count = std::min(rest, kListed);
      for (Index i = 0; i < count; ++i) {
        const Index h = run.p * z_.stride_h - z_.pad_top + r * z_.dilation_h;
        rows[static_cast<std::size_t>(i)] = {.in = c * plane + h * z_.w,
                                             .sums = (c * z_.r + r) * z_.s * plan_.width};
        if (++r == run.r_end) {
          r = run.r;
          ++c;
        }
      }
      for (Index lane = part.lane; lane < part.lane_end; ++lane) {
        sum_listed(x, dy_.at(n, part.g * plan_.lane_channels + lane * plan_.width), run,
                   rows.data(), count, tile_width(lane), sums_of(part, lane, sums));
      }
    }
  }

  void sum_listed(const float* x, const float* dy, const Run& run, const Nchw16cWeightRow* rows,
                  Index count, int width, float* sums) const {
    Nchw16cWeightTile tile;
    tile.rows = run.p_end - run.p;
    tile.in_row = z_.stride_h * z_.w;
    tile.in_step = z_.stride_w;
    tile.beside_row = dy_.row;
    tile.beside_step = dy_.step;
    tile.beside_block = dy_.block;
    const Index tiles = ceil_div(count, kChannelBlock);
    Ahead ahead(dy + run.p_end * dy_.row, run.p_end < plan_.p ? plan_.q * tile.rows : 0,
                tiles * z_.s);
    for (Index s = 0; s < z_.s; ++s) {
      const Index left = z_.pad_left - s * z_.dilation_w;
      const Index q = left <= 0 ? 0 : ceil_div(left, z_.stride_w);
      const Index q_end = std::min(plan_.q, floor_div(z_.w - 1 + left, z_.stride_w) + 1);
      if (q >= q_end) continue;
      tile.columns = q_end - q;
      tile.in = x + q * z_.stride_w - left;
      tile.beside = dy + run.p * dy_.row + q * kChannelBlock;
      tile.sums = sums + s * plan_.width;
      tile.row = rows;
      for (Index t = 0; t < tiles; ++t, tile.row += tile.channels) {
        tile.channels = static_cast<int>(count / tiles + (t < count % tiles ? 1 : 0));
        ahead.give(tile);
        kernels_.weight_tile(tile, width);
      }
    }
  }

  // Returns the width of a tile. It is one vector if the last channels fit into one, because the
  // tensor may have no second vector there.
  int tile_width(Index lane) const {
    return static_cast<int>(lane_count(lane) <= plan_.lanes ? plan_.lanes : plan_.width);
  }

  const Nchw16cWeightTiling& plan_;
  const Conv2dProblem& z_;
  const Nchw16cKernels kernels_;
  const Operand x_, dy_;
  float* const sums_;
  float* const dw_;
  const bool accumulate_;
};

}  // namespace

std::size_t workspace_bytes(const Conv2dProblem& problem, Direction direction) {
  if (is_stem(problem, direction)) return stem_workspace_bytes(problem);
  if (direction != Direction::backward_weight) return 0;
  const Nchw16cWeightTiling plan(problem);
  const Index pieces = plan.slices > 1 ? plan.slices * plan.parts() : num_threads();
  return static_cast<std::size_t>(pieces * plan.part_floats()) * sizeof(float);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Nchw16cWeightTiling plan(args.problem);
  WeightGradient(plan, args).run();
}

}  // namespace convscope::direct_nchw16c
