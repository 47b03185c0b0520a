// SPDX-License-Identifier: Apache-2.0
// muon_test.cpp: compares Muon with PyTorch, and its directions with the definition.
#include <gtest/gtest.h>

#include "framework/ops/gemm/matmul.h"
#include "framework/parallel.h"
#include "optim/slow_weights.h"
#include "tests/optim/optim_cases.h"

namespace convscope {
namespace {

using namespace optim_test;
using Settings = std::map<std::string, OptionValue>;

OptimParameter shaped(const OptimParameter& p, const Shape& shape) {
  return {p.name, Variable(p.variable.value().reshape(shape), true)};
}

void set_gradient_like(const Variable& w, const std::vector<double>& values) {
  set_gradient(w, values);
  w.state()->grad = w.state()->grad.reshape(w.shape());
}

// Values of PyTorch 2.15 in f64, with torch.float64 instead of bfloat16 in
// torch.optim._muon._zeropower_via_newtonschulz:
//   w = torch.tensor([0.5, -1.25, 2.0, 0.75, -0.5, 1.5]).reshape(shape)
//   opt = torch.optim.Muon([w], lr=0.1, weight_decay=0.05, ...)
//   for t in range(4):
//     w.grad = torch.tensor([0.3, -0.7, 1.1, 0.2, 0.9, -0.4]).reshape(shape) * (1 - 0.25 * t)
//              + 0.1 * w.detach(); opt.step()
TEST(Muon, GivesPyTorchsValues) {
  struct Golden {
    Shape shape;
    Settings settings;
    std::vector<double> w;
  };
  const std::vector<Golden> table = {
      {{2, 3},
       {},
       {0.3645944453, -1.152451278, 1.683915367, 0.5159356923, -0.8172693161, 1.376348541}},
      {{3, 2},
       {{"nesterov", false}},
       {0.405705844, -0.8640078761, 1.616176814, 0.5982911849, -0.6986916754, 1.551397478}},
      {{2, 1, 3, 1},
       {{"adjust_lr", std::string("match_rms_adamw")}},
       {0.4467459128, -1.200085093, 1.864866508, 0.6595336125, -0.6030008452, 1.437905839}}};
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const Golden& golden : table) {
      ParameterGroup group;
      group.weight_decay = 0.05;
      group.parameters = {
          shaped(parameter("w", {0.5, -1.25, 2.0, 0.75, -0.5, 1.5}, dtype), golden.shape)};
      const auto optimizer = make_optimizer("muon", {group}, golden.settings);
      const Variable& w = group.parameters[0].variable;
      for (int t = 0; t < 4; ++t) {
        std::vector<double> dw = {0.3, -0.7, 1.1, 0.2, 0.9, -0.4};
        for (std::size_t i = 0; i < 6; ++i) {
          dw[i] = dw[i] * (1 - 0.25 * t) + 0.1 * w.value().at(static_cast<std::int64_t>(i));
        }
        set_gradient_like(w, dw);
        optimizer->step(0.1);
      }
      for (std::int64_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(w.value().at(i), golden.w[static_cast<std::size_t>(i)],
                    dtype == DType::f64 ? 1e-9 : 2e-5);
      }
    }
  }
}

std::vector<ParameterGroup> matrices(DType dtype) {
  std::vector<ParameterGroup> groups = {{.name = "all", .parameters = {}, .weight_decay = 0.01}};
  const Shape shapes[] = {{16, 3, 3, 3}, {40, 24}, {70, 20}, {30}};
  for (std::size_t p = 0; p < std::size(shapes); ++p) {
    std::vector<double> values(static_cast<std::size_t>(shapes[p].numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(noise(p, i, 99));
    }
    groups[0].parameters.push_back(
        shaped(parameter("p" + std::to_string(p), values, dtype), shapes[p]));
  }
  return groups;
}

std::vector<double> after_steps(DType dtype, int steps = 4) {
  const std::vector<ParameterGroup> groups = matrices(dtype);
  const auto optimizer = make_optimizer("muon", groups);
  for (int step = 0; step < steps; ++step) {
    std::size_t p = 0;
    for (const OptimParameter& each : groups[0].parameters) {
      const auto count = static_cast<std::size_t>(each.variable.value().numel());
      set_gradient_like(each.variable, noisy_gradient(p++, count, step));
    }
    optimizer->step(0.05);
  }
  return values_of(groups);
}

TEST(Muon, HasTheSameBitsForAnyNumberOfThreads) {
  set_num_threads(1);
  const std::vector<double> one = after_steps(DType::f32);
  set_num_threads(3);
  EXPECT_EQ(after_steps(DType::f32), one);
  set_num_threads(0);
  // The iteration multiplies errors by at most 3.4445 in each of its steps: 500 * 6e-8 * 0.05.
  EXPECT_LT(greatest_difference(after_steps(DType::f64), one), 2e-5);
}

// One step without decay and momentum moves by lr * o, and o o' is near the identity.
TEST(Muon, MovesByAnOrthogonalMatrix) {
  ParameterGroup group;
  const Shape shape = {6, 2, 2, 2};
  group.parameters = {shaped(parameter("w", std::vector<double>(48, 0.0), DType::f64), shape)};
  const auto optimizer = make_optimizer("muon", {group}, {{"momentum", 0.0}});
  set_gradient_like(group.parameters[0].variable, noisy_gradient(3, 48, 1));
  optimizer->step(1.0);
  const Tensor o = group.parameters[0].variable.value().reshape({6, 8});
  const Tensor product = matmul(o, o, Transpose::no, Transpose::yes);
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t j = 0; j < 6; ++j) {
      EXPECT_NEAR(product.at(i * 6 + j), i == j ? 1.0 : 0.0, i == j ? 0.6 : 0.4);
    }
  }
}

TEST(Muon, LeavesTheEndLayersToAdamW) {
  const auto after_one_step = [](const char* name, bool end_layers) {
    ParameterGroup group;
    group.parameters = {shaped(parameter("w", {1, 2, 3, 4}), {2, 2})};
    group.parameters[0].is_end = true;
    Settings settings;
    if (std::string(name) == "muon") settings = {{"adam_lr", 1.0}, {"end_layers", end_layers}};
    if (std::string(name) == "adamw") settings = {{"beta2", 0.95}};
    const auto optimizer = make_optimizer(name, {group}, settings);
    set_gradient_like(group.parameters[0].variable, {1, -2, 3, -1});
    optimizer->step(0.1);
    return values_of({group});
  };
  EXPECT_EQ(after_one_step("muon", false), after_one_step("adamw", false));
  EXPECT_NE(after_one_step("muon", true), after_one_step("adamw", false));
}

}  // namespace
}  // namespace convscope
