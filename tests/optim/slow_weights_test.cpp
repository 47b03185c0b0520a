// SPDX-License-Identifier: Apache-2.0
// slow_weights_test.cpp: compares averages of weights and Lookahead with their formulas in double.
#include "optim/slow_weights.h"

#include <gtest/gtest.h>

#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/optim/optim_cases.h"

namespace convscope {
namespace {

using namespace optim_test;

constexpr SlowWeightsOptions kBoth = {.decay = 0.9, .k = 3, .alpha = 0.25};

std::unique_ptr<Optimizer> both(std::vector<ParameterGroup> groups) {
  return with_slow_weights(
      make_optimizer("sgd", std::move(groups), {{"momentum", 0.5}, {"nesterov", true}}), {}, kBoth);
}

// Weights, their averages, and the slow weights of all parameters.
struct Values {
  std::vector<double> w, average, slow;
};

void append(std::vector<double>& to, const Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) to.push_back(tensor.at(i));
}

Values values_of(Optimizer& optimizer) {
  Values out;
  for (const AveragedTensor& each : optimizer.averages()) {
    append(out.w, each.weight);
    append(out.average, each.average);
  }
  for (const OptimState& entry : optimizer.state()) {
    if (entry.name.starts_with("slow.")) append(out.slow, entry.tensor);
  }
  return out;
}

constexpr int kSteps = 10;

Values after_steps(DType dtype) {
  const std::vector<ParameterGroup> groups = noisy_groups(dtype);
  const auto optimizer = both(groups);
  for (int step = 0; step < kSteps; ++step) {
    set_noisy_gradients(groups, step);
    optimizer->step(0.1);
  }
  return values_of(*optimizer);
}

Values by_formula() {
  const std::vector<ParameterGroup> groups = noisy_groups(DType::f64);
  Values out;
  std::size_t p = 0;
  for (const ParameterGroup& group : groups) {
    for (const OptimParameter& each : group.parameters) {
      const auto count = static_cast<std::size_t>(each.variable.value().numel());
      for (std::size_t i = 0; i < count; ++i) {
        double w = each.variable.value().at(static_cast<std::int64_t>(i));
        double m = 0, average = w, slow = w;
        for (int t = 1; t <= kSteps; ++t) {
          const double dw = static_cast<float>(noise(p, i, static_cast<std::uint64_t>(t - 1)));
          const double d = dw + group.weight_decay * w;
          m = t == 1 ? d : 0.5 * m + d;
          w -= 0.1 * group.lr_scale * (d + 0.5 * m);
          if (t % 3 == 0) w = slow = slow + 0.25 * (w - slow);
          average = 0.9 * average + 0.1 * w;
        }
        out.w.push_back(w);
        out.average.push_back(average);
        out.slow.push_back(slow);
      }
      ++p;
    }
  }
  return out;
}

void expect_near(const Values& got, const Values& want, double tolerance) {
  EXPECT_LT(greatest_difference(got.w, want.w), tolerance);
  EXPECT_LT(greatest_difference(got.average, want.average), tolerance);
  EXPECT_LT(greatest_difference(got.slow, want.slow), tolerance);
}

// The weights are below 4, and each of 10 steps has at most 10 roundings.
TEST(SlowWeights, FollowTheFormulas) {
  const Values want = by_formula();
  expect_near(after_steps(DType::f64), want, 5e-14);
  const Isa before = current_isa();
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    set_isa(static_cast<Isa>(isa));
    expect_near(after_steps(DType::f32), want, 2.4e-5);
  }
  set_isa(before);
}

TEST(SlowWeights, HaveTheSameBitsForAnyNumberOfThreads) {
  set_num_threads(1);
  const Values one = after_steps(DType::f32);
  set_num_threads(3);
  const Values three = after_steps(DType::f32);
  set_num_threads(0);
  EXPECT_EQ(one.w, three.w);
  EXPECT_EQ(one.average, three.average);
  EXPECT_EQ(one.slow, three.slow);
}

// 4 of 10 steps are done before the state is saved, so that k = 3 is not at its beginning.
TEST(SlowWeights, ContinueFromASavedStateWithTheSameBits) {
  const std::vector<ParameterGroup> first = noisy_groups(DType::f32);
  const std::vector<ParameterGroup> second = noisy_groups(DType::f32);
  const auto before = both(first);
  const auto after = both(second);
  for (int step = 0; step < kSteps; ++step) {
    const bool is_saved = step >= 4;
    set_noisy_gradients(is_saved ? second : first, step);
    if (step == 4) {
      const auto saved = before->state();
      const auto loaded = after->state();
      ASSERT_EQ(saved.size(), loaded.size());
      for (std::size_t i = 0; i < saved.size(); ++i) {
        EXPECT_EQ(saved[i].name, loaded[i].name);
        loaded[i].tensor.copy_from(saved[i].tensor);
      }
      for (std::size_t g = 0; g < first.size(); ++g) {
        for (std::size_t p = 0; p < first[g].parameters.size(); ++p) {
          second[g].parameters[p].variable.value().copy_from(
              first[g].parameters[p].variable.value());
        }
      }
    }
    (is_saved ? after : before)->step(0.1);
  }
  const Values got = values_of(*after);
  const Values want = after_steps(DType::f32);
  EXPECT_EQ(got.w, want.w);
  EXPECT_EQ(got.average, want.average);
  EXPECT_EQ(got.slow, want.slow);
}

TEST(SlowWeights, AverageBuffersAndParametersWithoutAGradient) {
  ParameterGroup group;
  group.parameters = {parameter("a", {1, 2}), parameter("b", {3})};
  const Tensor mean = Tensor::full({2}, 1.0, DType::f32);
  const auto optimizer = with_slow_weights(make_optimizer("sgd", {group}, {{"momentum", 0.0}}),
                                           {{"bn.running_mean", mean}}, {.decay = 0.75});
  EXPECT_TRUE(optimizer->averages().empty()) << "there is no average before the first update";
  group.parameters[0].variable.value().fill(4);  // loaded after the optimiser was made
  set_gradient(group.parameters[1].variable, {8});
  mean.fill(1);
  optimizer->step(0.25);
  mean.fill(5);
  set_gradient(group.parameters[1].variable, {0});
  optimizer->step(0.25);
  const auto averages = optimizer->averages();
  ASSERT_EQ(averages.size(), 3u);
  EXPECT_EQ(averages[0].average.at(0), 4);
  EXPECT_EQ(averages[1].average.at(0), 3 - 2 * 0.25 - 1.5 * 0.25);
  EXPECT_EQ(averages[2].average.at(1), 2);
  {
    const AveragedWeights exchanged(optimizer.get());
    EXPECT_EQ(mean.at(1), 2);
  }
  EXPECT_EQ(mean.at(1), 5);
  EXPECT_EQ(group.parameters[1].variable.value().at(0), 1);
}

TEST(SlowWeights, RefuseSettingsThatMakeNoSense) {
  const auto make = [](const SlowWeightsOptions& options) {
    with_slow_weights(make_optimizer("sgd", noisy_groups(DType::f32)), {}, options);
  };
  EXPECT_THROW(make({.decay = 1}), Error);
  EXPECT_THROW(make({.k = 2, .alpha = 1.5}), Error);
  EXPECT_NO_THROW(make({}));
}

}  // namespace
}  // namespace convscope
