// SPDX-License-Identifier: Apache-2.0
// plugin_test.cpp: tests the C interface of plug-ins: its layout, its versions and what an
// algorithm of a plug-in is asked and given.
#include "layers/plugin/plugin.h"

#include <gtest/gtest.h>

#include <cstring>

#include "layers/plugin/conv2d_plugin.h"
#include "layers/plugin/plugin_file.h"

namespace convscope {
namespace {

// The layout of version 7. A new member is appended, and gets a line here. If a line has to change,
// older plug-ins would read wrong members: raise CONVSCOPE_PLUGIN_VERSION.
static_assert(CONVSCOPE_PLUGIN_VERSION == 7 && sizeof(void*) == 8);
static_assert(offsetof(ConvscopePlugin, version) == 32 && offsetof(ConvscopePlugin, size) == 36);
static_assert(offsetof(ConvscopePlugin, source) == 48);
static_assert(offsetof(ConvscopePlugin, conv2d_algorithms) == 56);
static_assert(offsetof(ConvscopePlugin, conv2d_ladders) == 72 && sizeof(ConvscopePlugin) == 88);
static_assert(CONVSCOPE_CONV2D_ARGUMENTS_SIZE == 200 + 256 + 32);
static_assert(offsetof(ConvscopeConv2dProblem, groups) == 136);
static_assert(offsetof(ConvscopeConv2dProblem, y_layout) == 164);
static_assert(offsetof(ConvscopeConv2dProblem, blocks) == 192);
static_assert(offsetof(ConvscopeScales, high) == 24 && sizeof(ConvscopeScales) == 32);
static_assert(offsetof(ConvscopeConv2dCall, x) == 16 && offsetof(ConvscopeConv2dCall, dw) == 64);
static_assert(offsetof(ConvscopeConv2dCall, prepared) == 80);
static_assert(offsetof(ConvscopeConv2dCall, most) == 104);
static_assert(offsetof(ConvscopeConv2dCall, columns) == 248);
static_assert(offsetof(ConvscopeCost, prepare_part) == 24);
static_assert(offsetof(ConvscopeConv2dAlgorithm, flags) == 28);
static_assert(offsetof(ConvscopeConv2dAlgorithm, forward) == 40);
static_assert(offsetof(ConvscopeConv2dAlgorithm, prepare_weights) == 96);
static_assert(sizeof(ConvscopeRung) == 32 && CONVSCOPE_MAX_RUNGS == 16);
static_assert(offsetof(ConvscopeConv2dLadder, rungs) == 16);

ConvscopePlugin plugin_of(const ConvscopeConv2dAlgorithm* algorithms, std::uint32_t count) {
  return {.magic = CONVSCOPE_PLUGIN_MAGIC,
          .version = CONVSCOPE_PLUGIN_VERSION,
          .size = sizeof(ConvscopePlugin),
          .conv2d_arguments_size = CONVSCOPE_CONV2D_ARGUMENTS_SIZE,
          .source = "mine.cpp",
          .conv2d_algorithms = algorithms,
          .conv2d_algorithm_count = count,
          .conv2d_algorithm_size = sizeof(ConvscopeConv2dAlgorithm)};
}

TEST(PluginInterface, TakesThePluginOfAnOlderHeader) {
  ConvscopePlugin plugin = plugin_of(nullptr, 0);
  EXPECT_EQ(misfit_of(plugin), "");
  plugin.size = offsetof(ConvscopePlugin, conv2d_ladders);  // there were no ladders yet
  EXPECT_EQ(misfit_of(plugin), "");
  plugin.conv2d_arguments_size -= 8;
  EXPECT_EQ(misfit_of(plugin), "");
  plugin.size -= 8;
  EXPECT_NE(misfit_of(plugin), "");
}

TEST(PluginInterface, IsFoundInBytesAndNothingIsReadBehindThem) {
  const ConvscopePlugin good = plugin_of(nullptr, 0);
  const std::string bytes = "in front" + std::string(reinterpret_cast<const char*>(&good),
                                                     offsetof(ConvscopePlugin, source));
  const auto read = [](const std::string& text) {
    return plugin_in({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  ASSERT_TRUE(read(bytes));
  EXPECT_EQ(misfit_of(*read(bytes)), "");
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_FALSE(read(bytes.substr(0, count))) << count;
  }
}

void does_nothing(const ConvscopeConv2dCall*) {}

// A plug-in of an older header: its structs end before the optional functions.
TEST(PluginInterface, GivesMissingMembersTheirDefaults) {
  constexpr std::size_t kOld = offsetof(ConvscopeConv2dAlgorithm, supports);
  const ConvscopeConv2dAlgorithm algorithms[] = {
      {.name = "a", .idea = "first", .error_growth = 1, .forward = does_nothing},
      {.name = "b", .idea = "second", .flags = CONVSCOPE_AUTO_OK, .backward_data = does_nothing}};
  std::string packed;
  for (const ConvscopeConv2dAlgorithm& one : algorithms) {
    packed.append(reinterpret_cast<const char*>(&one), kOld);
  }
  ConvscopePlugin plugin =
      plugin_of(reinterpret_cast<const ConvscopeConv2dAlgorithm*>(packed.data()), 2);
  plugin.conv2d_algorithm_size = kOld;
  const Conv2dPlugin out = conv2d_plugin("mine.so", plugin);
  ASSERT_EQ(out.algorithms.size(), 2u);
  EXPECT_STREQ(out.algorithms[1].name, "b");
  EXPECT_FALSE(out.algorithms[0].auto_ok);
  EXPECT_TRUE(out.algorithms[1].auto_ok);
  EXPECT_FALSE(out.algorithms[1].offers(Direction::forward));
  EXPECT_STREQ(out.algorithms[0].paper, "");
  const Conv2dProblem problem{.c = 2, .h = 4, .w = 4, .k = 2, .r = 3, .s = 3};
  EXPECT_TRUE(out.algorithms[0].supports(problem, Direction::forward).yes);
  EXPECT_EQ(out.algorithms[0].workspace_bytes(problem, Direction::forward), 0u);
  EXPECT_EQ(out.algorithms[0].cost(problem, Direction::forward).flops, problem.nominal_flops());

  for (const std::size_t size : {kOld - 8, sizeof(ConvscopeConv2dAlgorithm) + 8}) {
    plugin.conv2d_algorithm_size = static_cast<std::uint32_t>(size);
    EXPECT_THROW(conv2d_plugin("mine.so", plugin), Error) << size;
  }
}

ConvscopeConv2dProblem seen_problem;
ConvscopeConv2dCall seen;

TEST(PluginInterface, PassesAWholeCall) {
  const auto run = [](const ConvscopeConv2dCall* call) {
    seen = *call;
    seen_problem = *call->problem;
  };
  const ConvscopeConv2dAlgorithm all{
      .name = "all",
      .flags = CONVSCOPE_TAKES_TYPES | CONVSCOPE_TAKES_SPARSE_WEIGHTS | CONVSCOPE_TAKES_NHWC |
               CONVSCOPE_FUSES_EPILOGUE,
      .forward = run,
      .backward_data = run,
      .backward_weight = run,
      .prepared_bytes = [](const ConvscopeConv2dProblem* z,
                           int32_t direction) { return static_cast<size_t>(z->k + direction); },
      .prepare_weights = run};
  const Conv2dAlgorithm algorithm = conv2d_plugin_algorithm(all);
  Conv2dProblem z = Conv2dProblem::parse("n=2,c=4,h=5,w=6,k=8,r=3,s=3,stride=2x1,pad=1x0x2x3");
  z.types = OperandTypes{DType::u8, DType::i8, DType::i32, DType::f32};
  z.weight_format = {
      .kind = WeightFormat::Kind::block_sparse, .block_rows = 4, .block_columns = 1, .blocks = 3};
  z.layout = {ActivationLayout::nchw16c, ActivationLayout::nhwc};
  float x[1], w[1], b[1], y[1], residual[1];
  char workspace[1], prepared[1];
  const double scale = 0.5;
  const std::int32_t columns[1] = {};
  OperandViews views;
  views.x = {.scales = &scale, .low = -7};
  views.residual = {.scales = &scale, .high = 9};
  views.w_blocks.columns = columns;
  algorithm.forward({z,
                     x,
                     w,
                     b,
                     y,
                     workspace,
                     {.residual = residual, .relu = true, .most = 6, .residual_type = DType::i8},
                     prepared,
                     views});
  EXPECT_EQ(seen.direction, CONVSCOPE_FORWARD);
  EXPECT_TRUE(seen.x == x && seen.w == w && seen.b == b && seen.y == y && seen.dy == nullptr);
  EXPECT_TRUE(seen.workspace == workspace && seen.prepared == prepared);
  EXPECT_TRUE(seen.residual == residual && seen.relu && seen.most == 6);
  EXPECT_EQ(seen.residual_type, CONVSCOPE_I8);
  EXPECT_EQ(seen.residual_scales.high, 9);
  EXPECT_EQ(seen.x_scales.scales, &scale);
  EXPECT_EQ(seen.x_scales.low, -7);
  EXPECT_EQ(seen.columns, columns);
  EXPECT_EQ(seen_problem.p, z.p());
  EXPECT_EQ(seen_problem.q, z.q());
  EXPECT_EQ(seen_problem.stride_h, 2);
  EXPECT_EQ(seen_problem.pad_bottom, 0);
  EXPECT_EQ(seen_problem.pad_right, 3);
  EXPECT_EQ(seen_problem.x_type, CONVSCOPE_U8);
  EXPECT_EQ(seen_problem.accumulator_type, CONVSCOPE_I32);
  EXPECT_EQ(seen_problem.x_layout, CONVSCOPE_NCHW16C);
  EXPECT_EQ(seen_problem.y_layout, CONVSCOPE_NHWC);
  EXPECT_TRUE(seen_problem.is_sparse && seen_problem.block_rows == 4 && seen_problem.blocks == 3);

  algorithm.backward_data({z, y, w, x, workspace, prepared});
  EXPECT_EQ(seen.direction, CONVSCOPE_BACKWARD_DATA);
  EXPECT_TRUE(seen.dy == y && seen.w == w && seen.dx == x && seen.prepared == prepared);
  algorithm.backward_weight({z, x, y, w, true, workspace});
  EXPECT_EQ(seen.direction, CONVSCOPE_BACKWARD_WEIGHT);
  EXPECT_TRUE(seen.x == x && seen.dy == y && seen.dw == w && seen.accumulate == 1);
  algorithm.prepare_weights({z, Direction::backward_data, w, prepared, workspace});
  EXPECT_EQ(seen.direction, CONVSCOPE_BACKWARD_DATA);
  EXPECT_TRUE(seen.w == w && seen.prepared == prepared && seen.workspace == workspace);
  EXPECT_EQ(algorithm.prepared_size(z, Direction::backward_data), 9u);
}

TEST(PluginInterface, AsksAboutOtherTypesOnlyWithTheFlag) {
  const Conv2dProblem f64{.dtype = DType::f64};
  const ConvscopeConv2dAlgorithm plain{.name = "plain", .forward = does_nothing};
  EXPECT_EQ(conv2d_plugin_algorithm(plain).supports(f64, Direction::forward).reason,
            "expects elements of type f32, got f64");
  ConvscopeConv2dAlgorithm any = plain;
  any.flags = CONVSCOPE_TAKES_TYPES;
  EXPECT_TRUE(conv2d_plugin_algorithm(any).supports(f64, Direction::forward).yes);
}

}  // namespace
}  // namespace convscope
