// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_plan_test.cpp: tests the index arithmetic of implicit_gemm_tma: each output is
// in one tile, each product occurs once, and taps read only loaded pixels.
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "framework/check.h"
#include "framework/int_math.h"
#include "layers/dispatch/direction.h"

namespace convscope::implicit_gemm_tma {
namespace {

constexpr Machine kEmulated{.multiprocessors = 8};

std::vector<Conv2dProblem> problems() {
  std::vector<Conv2dProblem> out;
  for (const char* text :
       {"n=1,c=8,h=5,w=5,k=8,r=3,s=3,pad=1", "n=3,c=40,h=20,w=17,k=72,r=3,s=3,stride=2,pad=1",
        "n=2,c=64,h=10,w=10,k=64,r=3,s=3,pad=1,dilation=2", "n=2,c=96,h=8,w=8,k=256,stride=2",
        "n=1,c=70,h=17,w=19,k=130,r=3,s=3,stride=3,pad=1", "n=37,c=32,h=4,w=4,k=48,r=3,s=3,pad=1",
        "n=1,c=3,h=65,w=63,k=64,r=7,s=7,stride=2,pad=3", "n=1,c=64,h=3,w=200,k=64,r=3,s=3,pad=1",
        "n=2,c=20,h=12,w=15,k=33,r=5,s=5,stride=2x1,pad=2x0x1x3", "n=4,c=24,h=20,w=20,k=24,r=7,s=5",
        "n=1,c=512,h=7,w=7,k=512,r=3,s=3,pad=1", "n=32,c=64,h=56,w=56,k=64,r=3,s=3,pad=1",
        "n=32,c=256,h=14,w=14,k=256,r=3,s=3,pad=1", "n=1,c=64,h=224,w=224,k=64,r=3,s=3,pad=1",
        "n=1,c=8,h=30,w=30,k=8,r=15,s=15,pad=7", "n=2,c=3,h=32,w=32,k=64,r=4,s=4,stride=4",
        "n=32,c=64,h=56,w=56,k=128,r=3,s=3,stride=2,pad=1", "n=1,c=1024,h=14,w=14,k=256"}) {
    out.push_back(Conv2dProblem::parse(text));
  }
  return out;
}

std::vector<Machine> machines() { return {kEmulated, Machine{}}; }

// The products along one axis. For each output of y, or of a phase of dx, the set holds the taps
// that the output needs and the input pixel that each tap reads.
using Products = std::set<std::tuple<int, int, int>>;  // output, tap, pixel that is read

Products products_of(const Line& line) {
  Products out;
  for (int i = 0; i < line.outputs; ++i) {
    for (int t = 0; t < line.taps; ++t) {
      out.emplace(line.first + i * line.every, line.tap[t], i * line.step + line.offset[t]);
    }
  }
  return out;
}

TEST(ImplicitGemmTmaPlan, LinesMeetEachProductOfBackwardDataOnce) {
  for (const int size : {1, 4, 9, 13}) {
    for (const int taps : {1, 2, 3, 5}) {
      for (const int stride : {1, 2, 3, 4}) {
        for (const int pad : {0, 1, 2}) {
          for (const int dilation : {1, 2, 3}) {
            const int outputs = (size + 2 * pad - dilation * (taps - 1) - 1) / stride + 1;
            if (size + 2 * pad < dilation * (taps - 1) + 1) continue;
            Products met;
            std::size_t count = 0;
            for (int phase = 0; phase < stride; ++phase) {
              const Products of =
                  products_of(backward_line(phase, size, taps, stride, pad, dilation));
              count += of.size();
              met.insert(of.begin(), of.end());
            }
            EXPECT_EQ(met.size(), count) << "a product twice";
            for (int p = 0; p < outputs; ++p) {
              for (int r = 0; r < taps; ++r) {
                const int h = p * stride - pad + r * dilation;
                EXPECT_EQ(met.contains({h, r, p}), h >= 0 && h < size) << h << r << p;
              }
            }
            for (const auto& [h, r, p] : met) EXPECT_EQ(h, p * stride - pad + r * dilation);
          }
        }
      }
    }
  }
}

// Checks that every tap occurs once, and that the shift of a tap leads to the pixels that it reads.
void check_taps(const TapSets& taps, const Geometry& g, int pitch) {
  std::set<int> met;
  for (int i = 0; i < taps.phases; ++i) {
    const Line& high = g.high[i / g.phases_w];
    const Line& wide = g.wide[i % g.phases_w];
    std::map<int, std::pair<int, int>> offsets;  // of each tap of the phase
    for (int r = 0; r < high.taps; ++r) {
      for (int s = 0; s < wide.taps; ++s) {
        offsets[high.tap[r] * g.kernel_w + wide.tap[s]] = {high.offset[r], wide.offset[s]};
      }
    }
    std::size_t here = 0;
    for (int j = taps.phase[i].groups_begin; j < taps.phase[i].groups_end; ++j) {
      const Group& group = taps.group[j];
      for (int t = group.first; t < group.last; ++t, ++here) {
        const Tap& tap = taps.tap[t];
        EXPECT_EQ(tap.group, j);
        EXPECT_TRUE(met.insert(tap.index).second) << "tap " << int{tap.index} << " twice";
        ASSERT_TRUE(offsets.contains(tap.index));
        const auto [h, w] = offsets[tap.index];
        EXPECT_EQ(group.h + tap.shift / pitch * high.step, h);
        EXPECT_EQ(group.w + tap.shift % pitch * wide.step, w);
      }
    }
    EXPECT_EQ(here, offsets.size());
  }
}

// The last taps of a row read beyond the end of this row in shared memory. The pixels there must be
// the zeros of the padding.
TEST(ImplicitGemmTmaPlan, WholeLinesShareTheZerosBetweenThem) {
  int shared = 0;
  for (const int size : {1, 2, 5, 7, 14}) {
    for (const int taps : {2, 3, 5, 7}) {
      for (const int pad : {0, 1, 2, 3}) {
        for (const int dilation : {1, 2}) {
          const int outputs = size + 2 * pad - dilation * (taps - 1);
          if (outputs < 1) continue;
          const Line line = forward_line(outputs, taps, 1, pad, dilation);
          const int extent = extent_of(line, true);
          const int pitch = pitch_of(line, 1, size, extent, outputs);
          ASSERT_GE(pitch, outputs);
          ASSERT_LE(pitch, outputs + extent);
          shared += pitch < outputs + extent ? 1 : 0;
          for (int i = pitch; i < outputs + extent; ++i) {
            EXPECT_GE(i - pad, size) << "a pixel of this line";
            EXPECT_LT(i - pitch - pad, 0) << "a pixel of the next line";
          }
          EXPECT_EQ(pitch_of(line, 1, size, extent, outputs - 1), outputs - 1 + extent);
        }
      }
    }
  }
  EXPECT_GT(shared, 20);
  EXPECT_EQ(pitch_of(forward_line(7, 3, 1, 1, 1), 1, 7, 2, 7), 8);
}

TEST(ImplicitGemmTmaPlan, PixelsOfAOneByOneKernelAreOneLine) {
  const Conv2dProblem z = as_one_line(Conv2dProblem::parse("n=3,c=8,h=5,w=7,k=16"));
  EXPECT_EQ(z.n * z.h, 1);
  EXPECT_EQ(z.w, 3 * 5 * 7);
  EXPECT_EQ(z.q(), z.w);
  for (const char* text : {"n=3,c=8,h=5,w=7,k=16,stride=2", "n=3,c=8,h=5,w=7,k=16,pad=1",
                           "n=3,c=8,h=5,w=7,k=16,r=3,s=3,pad=1"}) {
    const Conv2dProblem other = Conv2dProblem::parse(text);
    EXPECT_TRUE(as_one_line(other) == other) << text;
  }
}

TEST(ImplicitGemmTmaPlan, TilesHoldEachOutputOnceAndTapsReadWhatWasBrought) {
  for (const Machine& machine : machines()) {
    for (const Conv2dProblem& z : problems()) {
      for (const Direction direction : {Direction::forward, Direction::backward_data}) {
        SCOPED_TRACE(cat(z.text(), ", ", name_of(direction)));
        const GatherPlan plan = plan_gather(z, direction, machine);
        const GatherShape& shape = kGatherShapes[plan.shape];
        const Geometry g(z, direction);
        ASSERT_LE(plan.shared_bytes, static_cast<std::size_t>(machine.shared_bytes));
        check_taps(plan.taps, g, plan.pitch);
        // The last output of a tile is one of its rows.
        EXPECT_LE(((plan.images - 1) * plan.lines + plan.height - 1) * plan.pitch + plan.width,
                  shape.rows);
        int most_shift = 0, tiles = 0;
        for (int t = 0; t < plan.taps.taps; ++t) {
          most_shift = std::max(most_shift, int{plan.taps.tap[t].shift});
        }
        EXPECT_GE(plan.patch_stage_bytes, (shape.rows + most_shift) * shape.chunk * 2);
        EXPECT_GE(plan.patch_stage_bytes,
                  plan.patch_w * plan.patch_h * plan.images * shape.chunk * 2);
        EXPECT_EQ(plan.patch_stage_bytes % 1024, 0);
        for (int i = 0; i < plan.taps.phases; ++i) {
          const Phase& phase = plan.taps.phase[i];
          EXPECT_EQ(phase.first_tile, tiles);
          if (phase.outputs_w == 0 || phase.outputs_h == 0) continue;
          EXPECT_GE(phase.tiles_w * plan.width, phase.outputs_w);
          EXPECT_GE(phase.tiles_h * plan.height, phase.outputs_h);
          tiles += phase.tiles_w * phase.tiles_h * ceil_div(static_cast<int>(z.n), plan.images);
        }
        EXPECT_EQ(plan.row_tiles, tiles);
        if (plan.weights_stay) {
          EXPECT_EQ(plan.column_tiles, 1);
          EXPECT_LE(plan.weight_stages, kMaxStages);
        }
      }
    }
  }
}

TEST(ImplicitGemmTmaPlan, BoxesOfBackwardWeightHoldEachPixelOnce) {
  for (const Machine& machine : machines()) {
    for (const Conv2dProblem& z : problems()) {
      for (const int planes : {1, 2}) {
        SCOPED_TRACE(cat(z.text(), ", planes: ", planes));
        const TmaWeightTiling plan =
            planes == 2 ? plan_weight_fp16x3(z, machine) : plan_weight(z, machine);
        const WeightShape& shape = shape_of(plan);
        const Geometry g(z, Direction::backward_weight);
        ASSERT_LE(plan.shared_bytes, static_cast<std::size_t>(machine.shared_bytes));
        check_taps(plan.taps, g, plan.pitch);
        EXPECT_EQ(plan.tiles_w, ceil_div(static_cast<int>(z.q()), plan.width));
        EXPECT_EQ(plan.tiles_h, ceil_div(static_cast<int>(z.p()), plan.height));
        EXPECT_EQ(plan.tiles_n, ceil_div(static_cast<int>(z.n), plan.images));
        // A TMA box may load more elements of dy than the tile has pixels. The additional elements
        // must be outside of the tensor, where TMA loads zeros; otherwise other tiles would count
        // them, too.
        if (plan.errors_w > plan.width) {
          EXPECT_TRUE(plan.columns_apart ? z.q() % plan.width == 0 : plan.width == z.q());
        }
        EXPECT_TRUE(plan.errors_h == plan.height || plan.height == z.p());
        EXPECT_GE(plan.depth, plan.errors_w * plan.errors_h * plan.images);
        EXPECT_EQ(plan.depth % 16, 0);
        int most_shift = 0;
        for (int t = 0; t < plan.taps.taps; ++t) {
          most_shift = std::max(most_shift, int{plan.taps.tap[t].shift});
        }
        EXPECT_GE(plan.pixels_stage_bytes, (plan.depth + most_shift) * shape.columns * 2);
        EXPECT_LE(plan.k_blocks * plan.c_blocks * plan.tap_count, 3 * shape.slots);
        EXPECT_GE(plan.stage_bytes, planes * (plan.k_blocks * plan.depth * 128 +
                                              plan.c_blocks * plan.pixels_stage_bytes));
        EXPECT_LE(plan.sum_width / 4 * z.r * z.s, kSumFours);
        EXPECT_GE(plan.stages, 2);
        if (plan.direct) {
          EXPECT_EQ(plan.splits, 1);
          EXPECT_GE(plan.store_pitch,
                    std::min<std::int64_t>(z.c, plan.c_blocks * shape.columns) * plan.tap_count);
          EXPECT_EQ(plan.store_pitch % 4, 0);
          EXPECT_GE(plan.shared_bytes,
                    static_cast<std::size_t>(plan.k_blocks * 64 * plan.store_pitch * 4));
        }
      }
    }
  }
}

TEST(ImplicitGemmTmaPlan, SchedulesAreNamedAfterTheirKernels) {
  for (int i = 0; i < kGatherShapeCount; ++i) {
    const auto& [rows, columns, blocks, chunk] = kGatherShapes[i];
    EXPECT_EQ(schedule_of(GatherPlan{.shape = i}, false),
              cat("half ", rows, "x", columns, "x", chunk));
  }
  for (int i = 0; i < kFp16x3ShapeCount; ++i) {
    const auto& [rows, columns, blocks, chunk] = kFp16x3Shapes[i];
    const std::string name = cat(rows, "x", columns, "x", chunk);
    EXPECT_EQ(schedule_of(GatherPlan{.shape = i, .planes = 2}, false), name);
    EXPECT_EQ(schedule_of(GatherPlan{.shape = i, .planes = 2}, true), name + " strided");
  }
  for (int i = 0; i < 3; ++i) {
    for (const int planes : {1, 2}) {
      TmaWeightTiling plan{.shape = i, .planes = planes};
      plan.tap_count = 4;
      const WeightShape& shape = shape_of(plan);
      const std::string name = cat(planes == 2 ? "" : "half ", shape.columns, "x", shape.slots);
      EXPECT_EQ(schedule_of(plan, 9), name + " parts");
      plan.direct = true;
      EXPECT_EQ(schedule_of(plan, 9), name + " some taps");
      EXPECT_EQ(schedule_of(plan, 4), name);
    }
  }
}

// Counts the work of every chosen tiling in another way, over the products of its blocks. The
// reduction of 72 channels takes five steps of 16, or nine of 8 in f32.
TEST(ImplicitGemmTmaPlan, CountsAreThoseOfAllBlocks) {
  Conv2dProblem half = Conv2dProblem::parse("n=3,c=72,h=14,w=14,k=200,r=3,s=3,pad=1,dtype=bf16");
  Conv2dProblem scaled = Conv2dProblem::parse("n=3,c=72,h=14,w=14,k=200,r=3,s=3,pad=1");
  for (const Machine& machine : machines()) {
    const auto check = [&](const GatherPlan& plan, double products, double share) {
      const GatherShape& shape = shape_of(plan);
      const double tiles = plan.row_tiles * plan.column_tiles;
      const double elements = shape.rows * shape.columns;
      EXPECT_EQ(plan.cost.blocks, tiles * plan.splits);
      EXPECT_EQ(plan.cost.stored, tiles * plan.splits * elements);
      EXPECT_EQ(plan.cost.issued, share * tiles * elements * 9 * products);
      EXPECT_EQ(plan.cost.resident, shape.blocks);
      EXPECT_EQ(plan.cost.launches, plan.splits > 1 ? 2 : 1);
      EXPECT_EQ(plan.cost.pass_bytes,
                plan.splits > 1 ? 2.0 * plan.splits * 4 * 3 * 14 * 14 * 200 : 0);
      const int chunks = ceil_div(72, plan.from_f32 ? shape.chunk / 2 : shape.chunk);
      EXPECT_EQ(plan.cost.chain, ceil_div(9 * chunks, plan.splits));
    };
    check(plan_gather(half, Direction::forward, machine), 5 * 2 * 16, 1);
    check(plan_gather(scaled, Direction::forward, machine), 5 * 2 * 16, 0.5);
    check(plan_gather(scaled, Direction::forward, machine, true), 9 * 2 * 8, 1);
    check(plan_fp16x3(scaled, Direction::forward, machine), 5 * 2 * 16, 1.5);
    for (const int planes : {1, 2}) {
      const TmaWeightTiling plan =
          planes == 2 ? plan_weight_fp16x3(scaled, machine) : plan_weight(half, machine);
      const WeightShape& shape = shape_of(plan);
      const double tiles = ceil_div(200, 64 * plan.k_blocks) *
                           ceil_div(72, shape.columns * plan.c_blocks) *
                           ceil_div(9, plan.tap_count);
      const int steps = plan.tiles_w * plan.tiles_h * plan.tiles_n;
      // Three warp groups have equally many slots.
      const int slots = round_up(plan.k_blocks * plan.c_blocks * plan.tap_count, 3);
      EXPECT_EQ(plan.cost.blocks, tiles * plan.splits);
      EXPECT_EQ(plan.cost.issued, (planes == 2 ? 1.5 : 1) * tiles * steps * plan.depth * 2 * 64 *
                                      shape.columns * slots);
      EXPECT_EQ(plan.cost.chain, ceil_div(steps, plan.splits));
      EXPECT_EQ(plan.cost.pass_bytes, plan.direct ? 0 : 2.0 * plan.splits * 4 * 200 * 72 * 9);
      EXPECT_EQ(plan.cost.launches, plan.direct ? 1 : 2);
    }
  }
}

}  // namespace
}  // namespace convscope::implicit_gemm_tma
