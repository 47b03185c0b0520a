// SPDX-License-Identifier: Apache-2.0
// clip_test.cpp: clipping of gradients to a maximum norm.
#include <gtest/gtest.h>

#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/optim/optim_cases.h"

namespace convscope {
namespace {

using namespace optim_test;

std::vector<OptimParameter> noisy_parameters(DType dtype) {
  const std::vector<ParameterGroup> groups = noisy_groups(dtype);
  set_noisy_gradients(groups, 0);
  std::vector<OptimParameter> out;
  for (const ParameterGroup& group : groups) {
    out.insert(out.end(), group.parameters.begin(), group.parameters.end());
  }
  return out;
}

double norm_of(const std::vector<OptimParameter>& parameters) {
  double sum = 0;
  for (const OptimParameter& each : parameters) {
    const Tensor& dw = each.variable.state()->grad;
    if (!dw.defined()) continue;
    for (std::int64_t i = 0; i < dw.numel(); ++i) sum += dw.at(i) * dw.at(i);
  }
  return std::sqrt(sum);
}

TEST(ClipGradientNorm, ScalesALongGradientToTheLimit) {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<OptimParameter> parameters = noisy_parameters(dtype);
    const double before = norm_of(parameters);
    // The norms are sums of 66,000 terms in double, added in different orders; the relative error
    // is far below 1e-12.
    EXPECT_NEAR(clip_gradient_norm(parameters, 2.0), before, before * 1e-12);
    // Scaling rounds each element once, so the relative error of the norm is below 6e-8.
    EXPECT_NEAR(norm_of(parameters), 2.0, 2.0 * 6e-8);
  }
}

TEST(ClipGradientNorm, LeavesAShortGradientAlone) {
  const std::vector<OptimParameter> parameters = {parameter("w", {0, 0}), parameter("u", {1})};
  set_gradient(parameters[0].variable, {3.0, 4.0});
  EXPECT_EQ(clip_gradient_norm(parameters, 5.0), 5.0);
  EXPECT_EQ(parameters[0].variable.grad().at(0), 3.0);
  EXPECT_EQ(clip_gradient_norm(parameters, 80.0), 5.0);  // far below the limit
  EXPECT_EQ(parameters[0].variable.grad().at(0), 3.0);
  EXPECT_EQ(parameters[0].variable.grad().at(1), 4.0);
  EXPECT_EQ(clip_gradient_norm({parameter("none", {1})}, 1.0), 0.0);
}

TEST(ClipGradientNorm, GivesTheSameBitsOnEachInstructionSetAndNumberOfThreads) {
  const Isa before = current_isa();
  set_num_threads(1);
  const double expected = clip_gradient_norm(noisy_parameters(DType::f32), 1e9);
  for (int threads : {2, 3}) {
    set_num_threads(threads);
    for (int isa = 0; isa < kIsaCount; ++isa) {
      if (!supports_isa(static_cast<Isa>(isa))) continue;
      set_isa(static_cast<Isa>(isa));
      EXPECT_EQ(clip_gradient_norm(noisy_parameters(DType::f32), 1e9), expected);
    }
  }
  set_isa(before);
  set_num_threads(0);
}

TEST(ClipGradientNorm, ReportsANormThatIsNotFiniteAndChangesNothing) {
  for (double bad : {std::nan(""), HUGE_VAL}) {
    const std::vector<OptimParameter> parameters = {parameter("w", {0, 0})};
    set_gradient(parameters[0].variable, {bad, 4.0});
    EXPECT_FALSE(std::isfinite(clip_gradient_norm(parameters, 1.0)));
    EXPECT_EQ(parameters[0].variable.grad().at(1), 4.0);
  }
  EXPECT_THROW(clip_gradient_norm({}, 0.0), Error);
  EXPECT_THROW(clip_gradient_norm({}, std::nan("")), Error);
}

}  // namespace
}  // namespace convscope
