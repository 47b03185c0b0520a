// SPDX-License-Identifier: Apache-2.0
// quantizer_test.cpp: initial step sizes, and a quantiser before a layer.
#include "quant/quantizer.h"

#include <set>

#include "framework/autograd/variable.h"
#include "optim/optimizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace testing;

TEST(Calibration, TakesMaxAndMeanAsTheirFormulasSay) {
  const Tensor v = Tensor::from({-3, 1, 0, 2}, {2, 2});
  EXPECT_FLOAT_EQ(static_cast<float>(calibrated_step(v, {8, 7}, StepRule::max_abs).at(0)),
                  3.0f / 7);
  EXPECT_FLOAT_EQ(static_cast<float>(calibrated_step(v, {8, 7}, StepRule::mean_abs).at(0)),
                  2 * 1.5f / std::sqrt(7.0f));
  const Tensor rows = calibrated_step(v, {8, 7}, StepRule::max_abs, true);
  EXPECT_TRUE(near(rows, Tensor::from({3.0f / 7, 2.0f / 7}, {2}), 0, 1e-7));
  // An unsigned grid ignores negative numbers.
  EXPECT_FLOAT_EQ(static_cast<float>(calibrated_step(v, {0, 15}, StepRule::max_abs).at(0)),
                  2.0f / 15);
  EXPECT_FLOAT_EQ(static_cast<float>(calibrated_step(v, {0, 15}, StepRule::mean_abs).at(0)),
                  2 * 0.75f / std::sqrt(15.0f));
}

TEST(Calibration, PercentileLeavesTheOutlierOut) {
  Tensor v = Tensor::full({1001}, 1.0);
  v.data<float>()[17] = -1000;
  EXPECT_FLOAT_EQ(
      static_cast<float>(calibrated_step(v, {8, 7}, StepRule::percentile, false, 99).at(0)),
      1.0f / 7);
  EXPECT_FLOAT_EQ(
      static_cast<float>(calibrated_step(v, {8, 7}, StepRule::percentile, false, 100).at(0)),
      1000.0f / 7);
}

TEST(Calibration, MseIsTheBestOfItsCandidatesAndNeverWorseThanMaxAbs) {
  const Tensor v = normal({5000}, DType::f32);
  for (int bits = 2; bits <= 8; ++bits) {
    const IntegerGrid grid = integer_grid(bits, true);
    const double largest = calibrated_step(v, grid, StepRule::max_abs).at(0);
    const double best = calibrated_step(v, grid, StepRule::mse).at(0);
    const double error = rounding_error(v, grid, best);
    EXPECT_LE(error, rounding_error(v, grid, largest) * (1 + 1e-12)) << bits;
    for (int c = 1; c <= 100; ++c) {
      EXPECT_LE(error, rounding_error(v, grid, largest * c / 100) * (1 + 1e-6)) << bits << " " << c;
    }
  }
  // With few levels the best step size clips more numbers. For normal numbers in 2 bits it is about
  // one standard deviation.
  EXPECT_NEAR(calibrated_step(v, {2, 1}, StepRule::mse).at(0), 1.0, 0.2);
}

TEST(Calibration, OfZerosIsAStepThatDividesNothingByZero) {
  EXPECT_FLOAT_EQ(
      static_cast<float>(calibrated_step(Tensor::zeros({4}), {8, 7}, StepRule::mse).at(0)),
      1.0f / 7);
  const Tensor rows =
      calibrated_step(Tensor::from({0, 0, 7, 0}, {2, 2}), {8, 7}, StepRule::max_abs, true);
  EXPECT_TRUE(near(rows, Tensor::from({1, 1}, {2}), 0, 0));
}

TEST(Calibration, RefusesWhatHasNoStep) {
  EXPECT_ERROR(ErrorKind::kInvalid, "[quant] expected at least one f32 value",
               calibrated_step(Tensor::zeros({0}), {8, 7}, StepRule::mse));
  EXPECT_ERROR(ErrorKind::kRun, "expected finite values to calibrate a step on",
               calibrated_step(Tensor::from({1, NAN}, {2}), {8, 7}, StepRule::mse));
}

TEST(IntegerGrid, HasTwoToTheBitsCodes) {
  for (int bits = 2; bits <= 8; ++bits) {
    const IntegerGrid with_sign = integer_grid(bits, true), without = integer_grid(bits, false);
    EXPECT_EQ(with_sign.qn + with_sign.qp + 1, 1 << bits);
    EXPECT_EQ(with_sign.qn, with_sign.qp + 1);
    EXPECT_EQ(without.qn, 0);
    EXPECT_EQ(without.qp + 1, 1 << bits);
  }
}

// Returns the gradient of the step size for input `x`, if the gradient of the output is 1
// everywhere.
Tensor step_gradient(const QuantizerOptions& options, const Tensor& x) {
  Quantizer quantizer(options);
  quantizer.forward(Variable(x)).backward(Tensor::full(x.shape(), 1.0));
  return quantizer.parameters().front().variable.grad();
}

// The gradient is scaled by g = 1 / sqrt(N Qp). For an activation, N counts the values of one
// sample; for a weight, it counts the weights that share a step size.
TEST(Quantizer, ScalesTheGradientOfTheStepByTheValuesThatShareIt) {
  const QuantizerOptions plain{
      .bits = 4, .step = QuantStep::floored, .init = StepRule::max_abs, .is_weight = false};
  const Tensor one = normal({1, 300}, DType::f32);
  const Tensor twice = Tensor::empty({2, 300});
  for (std::int64_t n = 0; n < 2; ++n) twice.slice_rows(n, 1).copy_from(one);
  const double one_gradient = step_gradient(plain, one).at(0);
  ASSERT_NE(one_gradient, 0);
  EXPECT_NEAR(step_gradient(plain, twice).at(0), 2 * one_gradient, 1e-6 * std::abs(one_gradient));

  QuantizerOptions weight = plain;
  weight.is_weight = true;
  // If the two samples are one weight instead of two activations, N counts the values of both.
  EXPECT_NEAR(step_gradient(weight, twice).at(0), std::sqrt(2.0) * one_gradient,
              1e-6 * std::abs(one_gradient));
  weight.channels = 2;
  const Tensor by_channel = step_gradient(weight, twice);
  for (const int channel : {0, 1}) {
    EXPECT_NEAR(by_channel.at(channel), one_gradient, 1e-6 * std::abs(one_gradient)) << channel;
  }
}

const QuantizerOptions kWeight4 = {.bits = 4, .init = StepRule::max_abs};

TEST(Quantizer, CalibratesOnTheFirstTrainingBatchAndRoundsToItsGrid) {
  Quantizer quantizer(kWeight4);
  EXPECT_FALSE(quantizer.is_calibrated());
  const Tensor w = normal({6, 20}, DType::f32);
  const Tensor rounded = quantizer.forward(Variable(w)).value();
  EXPECT_TRUE(quantizer.is_calibrated());
  const double s = quantizer.steps().at(0);
  EXPECT_NEAR(s, calibrated_step(w, {8, 7}, StepRule::max_abs).at(0), s * 1e-6);
  std::set<int> codes;
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    const double code = rounded.at(i) / s;
    EXPECT_NEAR(code, std::nearbyint(code), 1e-4);
    codes.insert(static_cast<int>(std::nearbyint(code)));
  }
  EXPECT_GE(*codes.begin(), -8);
  EXPECT_LE(*codes.rbegin(), 7);
  EXPECT_GT(codes.size(), 8u);
}

TEST(Quantizer, IsNotEvaluatedBeforeItHasAStep) {
  Quantizer quantizer(kWeight4);
  quantizer.eval();
  EXPECT_ERROR(ErrorKind::kInvalid, "[quantizer] expected a calibrated step",
               quantizer.forward(Variable(normal({4}, DType::f32))));
}

TEST(Quantizer, ThatWaitsLetsEverythingThroughUntilItBegins) {
  QuantizerOptions options = kWeight4;
  options.waits = true;
  Quantizer quantizer(options);
  const Tensor w = normal({6, 20}, DType::f32);
  for (const bool training : {true, false}) {
    quantizer.train(training);
    EXPECT_TRUE(same_bits(quantizer.forward(Variable(w)).value(), w));
    EXPECT_FALSE(quantizer.is_calibrated());
  }
  quantizer.begin();
  quantizer.train();
  EXPECT_FALSE(same_bits(quantizer.forward(Variable(w)).value(), w));
  // A quantiser with a calibrated step does not wait.
  Quantizer loaded(options);
  loaded.parameters()[0].variable.value().copy_from(quantizer.parameters()[0].variable.value());
  for (std::size_t i = 0; i < loaded.buffers().size(); ++i) {
    loaded.buffers()[i].tensor.copy_from(quantizer.buffers()[i].tensor);
  }
  loaded.eval();
  EXPECT_TRUE(
      same_bits(loaded.forward(Variable(w)).value(), quantizer.forward(Variable(w)).value()));
}

TEST(Quantizer, OfAPrunedWeightCountsOnlyWhatIsLeft) {
  // Zeros keep code 0 and add nothing to the gradient of the step size. So the step size of a
  // weight of which three quarters are pruned learns like that of a weight with a quarter of the
  // elements.
  QuantizerOptions options = kWeight4;
  options.init = StepRule::mean_abs;
  Quantizer small(options), pruned(options);
  const Tensor few = normal({4, 5}, DType::f32);
  Tensor many = Tensor::zeros({4, 20});
  for (std::int64_t i = 0; i < 20; ++i) many.data<float>()[i * 4] = few.data<float>()[i];
  pruned.set_kept(20);
  const Variable y = pruned.forward(Variable(many)), y_small = small.forward(Variable(few));
  EXPECT_EQ(pruned.steps().at(0), small.steps().at(0));
  for (std::int64_t i = 0; i < 80; ++i) {
    EXPECT_EQ(y.value().at(i), i % 4 == 0 ? y_small.value().at(i / 4) : 0.0);
  }
  const Tensor dy = normal({4, 20}, DType::f32, 2);
  Tensor dy_small = Tensor::empty({4, 5});
  for (std::int64_t i = 0; i < 20; ++i) dy_small.data<float>()[i] = dy.data<float>()[i * 4];
  y.backward(dy);
  y_small.backward(dy_small);
  const double want = small.parameters()[0].variable.grad().at(0);
  EXPECT_NEAR(pruned.parameters()[0].variable.grad().at(0), want, 1e-6 * std::fabs(want));
  EXPECT_NE(want, 0);
}

TEST(Quantizer, CountsWhatLiesBeyondItsGridWhenAsked) {
  QuantizerOptions options = kWeight4;
  options.channels = 2;
  Quantizer quantizer(options);
  quantizer.forward(Variable(Tensor::from({7, 1, 1, 1, 14, 2, 2, 2}, {2, 4})));  // steps 1 and 2
  EXPECT_FALSE(quantizer.observed().steps.defined());
  quantizer.observe(true);
  quantizer.forward(Variable(Tensor::from({7, -8, 7.5, -9, 14, -16, 13, 15}, {2, 4})));
  EXPECT_NEAR(quantizer.observed().steps.at(1), 2, 1e-6);
  // 7.5 and -9 are outside of -8..7, and 15 is outside of -16..14. Values exactly at a bound may
  // count as clipped, because a step size stored as a logarithm is exact only within 1e-6.
  EXPECT_GE(quantizer.observed().clipped_percent, 100.0 * 3 / 8);
  quantizer.observe(false);
  quantizer.forward(Variable(Tensor::zeros({2, 4})));
  EXPECT_GE(quantizer.observed().clipped_percent, 100.0 * 3 / 8);
}

TEST(Quantizer, WhatLiesAtTheBoundIsNotClippedAndWhatIsPrunedDoesNotCount) {
  QuantizerOptions options = kWeight4;
  options.step = QuantStep::floored;  // the step itself, so that the bounds are exact
  Quantizer quantizer(options);
  quantizer.forward(Variable(Tensor::from({7, 1, 1, 1}, {4})));  // step 1
  quantizer.observe(true);
  quantizer.forward(Variable(Tensor::from({7, -8, 7.5f, -9}, {4})));
  EXPECT_EQ(quantizer.observed().clipped_percent, 50);
  quantizer.set_kept(2);
  quantizer.forward(Variable(Tensor::from({0, 0, 7.5f, 1}, {4})));
  EXPECT_EQ(quantizer.observed().clipped_percent, 50);
}

TEST(Quantizer, MinMaxKeepsTheLargestOfItsBatchesAndThenStands) {
  Quantizer quantizer({.bits = 8,
                       .is_signed = false,
                       .method = QuantMethod::minmax,
                       .calibration_batches = 3,
                       .is_weight = false});
  EXPECT_TRUE(quantizer.parameters().empty());
  for (double top : {1.0, 5.0, 2.0, 9.0}) quantizer.forward(Variable(Tensor::full({2, 3}, top)));
  EXPECT_FLOAT_EQ(static_cast<float>(quantizer.steps().at(0)), 5.0f / 255);
}

TEST(Quantizer, LsqStartsFromTheMeanOfItsBatches) {
  QuantizerOptions options = kWeight4;
  options.calibration_batches = 2;
  options.is_weight = false;
  Quantizer quantizer(options);
  for (double top : {7.0, 21.0, 700.0}) quantizer.forward(Variable(Tensor::full({2, 3}, top)));
  EXPECT_NEAR(quantizer.steps().at(0), 2.0, 1e-6);
}

TEST(Quantizer, StaysPositiveAndFiniteUnderViolentLearningRates) {
  for (QuantStep form : {QuantStep::log, QuantStep::floored}) {
    for (double lr : {1.0, 1e3, 1e8}) {
      for (std::int64_t channels : {0, 6}) {
        SCOPED_TRACE(cat(form == QuantStep::log ? "log " : "floored ", lr, " ", channels));
        QuantizerOptions options = kWeight4;
        options.step = form;
        options.channels = channels;
        Quantizer quantizer(options);
        const Tensor w = normal({6, 50}, DType::f32);
        quantizer.forward(Variable(w));
        const auto sgd =
            make_optimizer("sgd", {{.parameters = {{"step", quantizer.parameters()[0].variable}}}});
        double before = quantizer.steps().at(0);
        for (std::uint64_t step = 0; step < 50; ++step) {
          quantizer.zero_grad();
          const Variable y = quantizer.forward(Variable(w));
          for (std::int64_t i = 0; i < quantizer.steps().numel(); ++i) {
            ASSERT_GT(quantizer.steps().at(i), 0);
            ASSERT_TRUE(std::isfinite(quantizer.steps().at(i)));
          }
          const double now = quantizer.steps().at(0);
          if (form == QuantStep::log) {
            ASSERT_LE(std::abs(std::log(now / before)), std::log(Quantizer::kMaxChange) + 1e-5);
          }
          before = now;
          for (std::int64_t i = 0; i < w.numel(); ++i) ASSERT_TRUE(std::isfinite(y.value().at(i)));
          y.backward(normal({6, 50}, DType::f32, step + 5));
          sgd->step(lr);
        }
      }
    }
  }
}

TEST(Quantizer, TheLogStepMovesToFirstOrderAsThePapersOwnUpdate) {
  const Tensor w = normal({40}, DType::f32), dy = normal({40}, DType::f32, 2);
  double after[2];
  for (QuantStep form : {QuantStep::log, QuantStep::floored}) {
    QuantizerOptions options = kWeight4;
    options.step = form;
    Quantizer quantizer(options);
    quantizer.forward(Variable(w)).backward(dy);
    const auto sgd =
        make_optimizer("sgd", {{.parameters = {{"step", quantizer.parameters()[0].variable}}}},
                       {{"momentum", 0.0}});
    sgd->step(1e-3);
    after[form == QuantStep::log ? 0 : 1] = quantizer.steps().at(0);
  }
  const double s0 = calibrated_step(w, {8, 7}, StepRule::max_abs).at(0);
  ASSERT_GT(std::abs(after[1] - s0), 1e-5);  // it changed
  EXPECT_NEAR((after[0] - s0) / (after[1] - s0), 1.0, 0.02);
}

TEST(Quantizer, LearnsAStepThatRoundsBetter) {
  // Training starts with a step size four times too large and minimises sum (w_hat - w)^2 with
  // fixed w.
  Quantizer quantizer({.bits = 4, .init = StepRule::mse});
  const Tensor w = normal({400}, DType::f32);
  quantizer.forward(Variable(w));
  const Variable t = quantizer.parameters()[0].variable;
  const double best = quantizer.steps().at(0);
  const float start = t.value().data<float>()[0] + std::log(4.0f);
  t.value().data<float>()[0] = start;
  for (const NamedTensor& buffer : quantizer.buffers()) {
    if (buffer.name == "last_step") buffer.tensor.fill(static_cast<double>(start));
  }
  const auto sgd = make_optimizer("sgd", {{.parameters = {{"step", t}}}}, {{"momentum", 0.0}});
  for (int i = 0; i < 1000; ++i) {
    quantizer.zero_grad();
    const Variable y = quantizer.forward(Variable(w));
    const Tensor dy = Tensor::empty({400});
    for (std::int64_t j = 0; j < 400; ++j) {
      dy.data<float>()[j] = 2 * (y.value().data<float>()[j] - w.data<float>()[j]) / 400;
    }
    y.backward(dy);
    sgd->step(4.0);
  }
  EXPECT_NEAR(quantizer.steps().at(0) / best, 1.0, 0.2);
}

TEST(Quantizer, GoesOnWithTheSameBitsFromItsParametersAndBuffers) {
  const auto make = [] {
    QuantizerOptions options = kWeight4;
    options.channels = 6;
    return Quantizer(options);
  };
  Quantizer first = make(), second = make();
  const Tensor w = normal({6, 50}, DType::f32);
  first.forward(Variable(w));
  first.parameters()[0].variable.value().data<float>()[2] += 3;  // an update not yet bounded
  second.parameters()[0].variable.value().copy_from(first.parameters()[0].variable.value());
  for (std::size_t i = 0; i < first.buffers().size(); ++i) {
    EXPECT_EQ(first.buffers()[i].name, second.buffers()[i].name);
    second.buffers()[i].tensor.copy_from(first.buffers()[i].tensor);
  }
  second.eval();
  EXPECT_TRUE(same_bits(second.forward(Variable(w)).value(), first.forward(Variable(w)).value()));
}

}  // namespace
}  // namespace convscope
