// SPDX-License-Identifier: Apache-2.0
// quant_block_test.cpp: tests that the config block `quant:` creates the right quantisers in the
// network and the right parameter groups in the optimiser.
#include <gtest/gtest.h>

#include "experiments/config/build.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const std::string kBase =
    "data: {set: synthetic_digits}\nmodel: {type: lenet5}\noptim: {weight_decay: 0.1}\n";

ExperimentConfig parsed(const std::string& quant) {
  return parse_config_text(kBase + quant, "test.yaml");
}

TEST(QuantBlock, IsAbsentWhenNotGivenOrNull) {
  EXPECT_FALSE(parsed("").quant.has_value());
  EXPECT_FALSE(parsed("quant: null\n").quant.has_value());
  EXPECT_TRUE(parsed("quant: {}\n").quant.has_value());
}

TEST(QuantBlock, ComesBackFromItsYaml) {
  const ExperimentConfig config = parsed(
      "quant: {method: percentile, w_bits: 4, a_bits: 3, first_last_bits: 6, residual_bits: 5,\n  "
      "per_channel: true, init: max_abs, step: floored, lr_scale: 0.5, percentile: 99, "
      "calibration_batches: 7,\n  "
      "begin: 0.25,\n"
      "  start_from: runs/dense, per_layer: {c1: {w_bits: 5}, f4: {a_bits: 2}}}\n");
  const QuantConfig& quant = *config.quant;
  EXPECT_EQ(quant.method, QuantMethod::percentile);
  EXPECT_EQ(quant.w_bits, 4);
  EXPECT_EQ(quant.a_bits, 3);
  EXPECT_EQ(quant.first_last_bits, 6);
  EXPECT_EQ(quant.residual_bits, 5);
  EXPECT_TRUE(quant.per_channel);
  EXPECT_EQ(quant.init, StepRule::max_abs);
  EXPECT_EQ(quant.step, QuantStep::floored);
  EXPECT_EQ(quant.lr_scale, 0.5);
  EXPECT_EQ(quant.calibration_batches, 7);
  EXPECT_EQ(quant.begin, 0.25);
  EXPECT_EQ(quant.start_from, "runs/dense");
  EXPECT_EQ(quant.per_layer.at("c1").w_bits, 5);
  EXPECT_EQ(quant.per_layer.at("f4").a_bits, 2);
  const std::string text = to_yaml(config);
  EXPECT_EQ(to_yaml(parse_config_text(text, "again.yaml")), text);
}

TEST(QuantBlock, SaysWhatIsWrong) {
  EXPECT_ERROR(ErrorKind::kConfig, "quant.w_bits", parsed("quant: {w_bits: 1}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.a_bits", parsed("quant: {a_bits: 9}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.residual_bits: expected 0 or 2 to 8 bits, got 1",
               parsed("quant: {residual_bits: 1}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.residual_bits", parsed("quant: {residual_bits: 9}\n"));
  EXPECT_EQ(parsed("quant: {residual_bits: 0}\n").quant->residual_bits, 0);
  EXPECT_EQ(parsed("quant: {}\n").quant->residual_bits, 8);
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'w_bits'", parsed("quant: {w_bit: 4}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.begin", parsed("quant: {begin: 1.5}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.begin", parsed("quant: {begin: -1}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "minmax", parsed("quant: {method: min_max}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "quant.per_layer.c1.w_bits",
               parsed("quant: {per_layer: {c1: {w_bits: 12}}}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "expected a map such as {w_bits: 8}",
               parsed("quant: {per_layer: {c1: 4}}\n"));
  EXPECT_ERROR(ErrorKind::kConfig, "did you mean 'c1'",
               build_model(parsed("quant: {per_layer: {cl: {w_bits: 4}}}\n"), {1, 28, 28}, 10));
}

TEST(QuantBlock, GivesTheStepsTheirRateAndNoDecay) {
  const ExperimentConfig config = parsed("quant: {lr_scale: 0.25}\n");
  const auto model = build_model(config, {1, 28, 28}, 10);
  const auto optimizer = build_optimizer(config, *model);
  ASSERT_EQ(optimizer->groups().size(), 2u);
  const ParameterGroup& steps = optimizer->groups()[0];
  EXPECT_EQ(steps.parameters.size(), 10u);  // five layers, weight and input
  EXPECT_EQ(steps.parameters[0].name, "c1.input_quantizer.log_step");
  EXPECT_EQ(steps.lr_scale, 0.25);
  EXPECT_EQ(steps.weight_decay, 0);
  EXPECT_EQ(optimizer->groups()[1].weight_decay, 0.1);
  // If a network has no quantisers, or their step sizes are fixed, the optimiser has no parameter
  // group for step sizes.
  const ExperimentConfig plain = parsed("");
  EXPECT_EQ(build_optimizer(plain, *build_model(plain, {1, 28, 28}, 10))->groups().size(), 1u);
  const ExperimentConfig fixed = parsed("quant: {method: minmax}\n");
  EXPECT_EQ(build_optimizer(fixed, *build_model(fixed, {1, 28, 28}, 10))->groups().size(), 1u);
}

}  // namespace
}  // namespace convscope
