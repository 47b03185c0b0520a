// SPDX-License-Identifier: Apache-2.0
// optimizer_test.cpp: compares the optimisers with their formulas in double and with PyTorch. Also
// tests that results do not depend on threads, instruction sets or checkpoints.
#include <gtest/gtest.h>

#include <functional>

#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "tests/optim/optim_cases.h"

namespace convscope {
namespace {

using namespace optim_test;

using Groups = std::vector<ParameterGroup>;
using Make = std::function<std::unique_ptr<Optimizer>(Groups)>;

using Settings = std::map<std::string, OptionValue>;

Make maker(const char* name, const Settings& settings) {
  return [=](Groups groups) { return make_optimizer(name, std::move(groups), settings); };
}

// ---- the formulas, one element at a time, in double
struct Element {
  double w, m = 0, v = 0;
};
using Rule = std::function<void(Element&, double dw, double lr, double decay, int t)>;

Rule sgd_rule(double momentum, double dampening, bool nesterov, bool decoupled = false) {
  return [=](Element& e, double dw, double lr, double decay, int t) {
    const double d = decoupled ? dw : dw + decay * e.w;
    if (decoupled) e.w -= lr * decay * e.w;
    e.m = t == 1 ? d : momentum * e.m + (1 - dampening) * d;
    const double step = momentum == 0 ? d : nesterov ? d + momentum * e.m : e.m;
    e.w -= lr * step;
  };
}
Rule adam_rule(double beta1, double beta2, bool decoupled) {
  return [=](Element& e, double dw, double lr, double decay, int t) {
    if (decoupled) e.w -= lr * decay * e.w;
    const double d = decoupled ? dw : dw + decay * e.w;
    e.m = beta1 * e.m + (1 - beta1) * d;
    e.v = beta2 * e.v + (1 - beta2) * d * d;
    const double mean = e.m / (1 - std::pow(beta1, t));
    const double square = e.v / (1 - std::pow(beta2, t));
    e.w -= lr * mean / (std::sqrt(square) + 1e-8);
  };
}

Rule lion_rule(double beta1, double beta2) {
  return [=](Element& e, double dw, double lr, double decay, int) {
    const double u = beta1 * e.m + (1 - beta1) * dw;
    e.m = beta2 * e.m + (1 - beta2) * dw;
    e.w -= lr * decay * e.w + lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
  };
}

// Vectors are updated by AdamW.
Rule muon_rule_of_vectors(double adam_lr) {
  return [=, adam = adam_rule(0.9, 0.95, true)](Element& e, double dw, double lr, double decay,
                                                int t) { adam(e, dw, lr * adam_lr, decay, t); };
}

constexpr int kSteps = 20;
double rate_at(int step) { return 0.05 / (1 + step); }

std::vector<double> expected_values(const Rule& rule) {
  const Groups groups = noisy_groups(DType::f64);
  std::vector<double> out;
  std::size_t p = 0;
  for (const ParameterGroup& group : groups) {
    for (const OptimParameter& each : group.parameters) {
      const Tensor& w = each.variable.value();
      const auto count = static_cast<std::size_t>(w.numel());
      std::vector<Element> elements;
      for (std::size_t i = 0; i < count; ++i) {
        elements.push_back({w.at(static_cast<std::int64_t>(i))});
      }
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<double> dw = noisy_gradient(p, count, step);
        for (std::size_t i = 0; i < count; ++i) {
          rule(elements[i], dw[i], rate_at(step) * group.lr_scale, group.weight_decay, step + 1);
        }
      }
      for (const Element& element : elements) out.push_back(element.w);
      ++p;
    }
  }
  return out;
}

std::vector<double> values_after(const Make& make, DType dtype, int first = 0, int last = kSteps) {
  const Groups groups = noisy_groups(dtype);
  const std::unique_ptr<Optimizer> optimizer = make(groups);
  for (int step = first; step < last; ++step) {
    set_noisy_gradients(groups, step);
    optimizer->step(rate_at(step));
  }
  return values_of(groups);
}

struct Case {
  const char* name;
  Make make;
  Rule rule;
};
std::vector<Case> cases() {
  const auto test_case = [](const char* name, const Settings& settings, const Rule& rule) {
    return Case{name, maker(name, settings), rule};
  };
  return {test_case("sgd", {{"momentum", 0.0}}, sgd_rule(0, 0, false)),
          test_case("sgd", {}, sgd_rule(0.9, 0, false)),
          test_case("sgd", {{"dampening", 0.25}}, sgd_rule(0.9, 0.25, false)),
          test_case("sgd", {{"momentum", 0.8}, {"nesterov", true}}, sgd_rule(0.8, 0, true)),
          test_case("sgdw", {{"momentum", 0.8}}, sgd_rule(0.8, 0, false, true)),
          test_case("sgdw", {{"nesterov", true}}, sgd_rule(0.9, 0, true, true)),
          test_case("adam", {{"beta1", 0.8}, {"beta2", 0.95}}, adam_rule(0.8, 0.95, false)),
          test_case("adamw", {{"beta2", 0.99}}, adam_rule(0.9, 0.99, true)),
          test_case("lion", {{"beta1", 0.8}}, lion_rule(0.8, 0.99)),
          test_case("muon", {{"adam_lr", 0.5}}, muon_rule_of_vectors(0.5))};
}

TEST(Optimizer, FollowsTheFormulasOverTwentyStepsInDouble) {
  for (const Case& each : cases()) {
    // The weights are below 2, and each of 20 steps has at most 10 roundings of 1.1e-16, so the
    // error is below 5e-14.
    EXPECT_LT(greatest_difference(values_after(each.make, DType::f64), expected_values(each.rule)),
              5e-14)
        << each.name;
  }
}

TEST(Optimizer, FollowsTheFormulasInFloatOnEachInstructionSet) {
  const Isa before = current_isa();
  for (const Case& each : cases()) {
    const std::vector<double> expected = expected_values(each.rule);
    for (int isa = 0; isa < kIsaCount; ++isa) {
      if (!supports_isa(static_cast<Isa>(isa))) continue;
      set_isa(static_cast<Isa>(isa));
      // The same estimate with 6e-8 instead of 1.1e-16.
      EXPECT_LT(greatest_difference(values_after(each.make, DType::f32), expected), 2.4e-5)
          << each.name << " " << name_of(static_cast<Isa>(isa));
    }
  }
  set_isa(before);
}

TEST(Optimizer, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Case& each : cases()) {
    set_num_threads(1);
    const std::vector<double> one = values_after(each.make, DType::f32);
    set_num_threads(3);
    EXPECT_EQ(values_after(each.make, DType::f32), one) << each.name;
  }
  set_num_threads(0);
}

TEST(Optimizer, ContinuesFromASavedStateWithTheSameBits) {
  for (const Case& each : cases()) {
    const std::vector<double> straight = values_after(each.make, DType::f32);

    const Groups first = noisy_groups(DType::f32);
    const std::unique_ptr<Optimizer> before = each.make(first);
    for (int step = 0; step < 7; ++step) {
      set_noisy_gradients(first, step);
      before->step(rate_at(step));
    }
    const Groups second = noisy_groups(DType::f32);
    const std::unique_ptr<Optimizer> after = each.make(second);
    std::vector<OptimState> saved = before->state();
    std::vector<OptimState> loaded = after->state();
    ASSERT_EQ(saved.size(), loaded.size());
    for (std::size_t i = 0; i < saved.size(); ++i) {
      EXPECT_EQ(saved[i].name, loaded[i].name);
      loaded[i].tensor.copy_from(saved[i].tensor);
    }
    for (std::size_t g = 0; g < first.size(); ++g) {
      for (std::size_t p = 0; p < first[g].parameters.size(); ++p) {
        second[g].parameters[p].variable.value().copy_from(first[g].parameters[p].variable.value());
      }
    }
    for (int step = 7; step < kSteps; ++step) {
      set_noisy_gradients(second, step);
      after->step(rate_at(step));
    }
    EXPECT_EQ(values_of(second), straight) << each.name;
  }
}

// Values of PyTorch 1.13 (float32), made by
//   w = torch.tensor([0.5, -1.25, 2.0]); w.requires_grad_(); opt = torch.optim.SGD([w], lr=0.1,
//   ...) for t in range(4):
//     w.grad = torch.tensor([0.3, -0.7, 1.1]) * (1 - 0.25 * t) + 0.1 * w.detach(); opt.step()
TEST(Optimizer, GivesPyTorchsValues) {
  struct Golden {
    const char* name;
    Make make;
    double weight_decay;
    std::vector<double> w;
  };
  const std::vector<Golden> table = {{"SGD(lr=0.1)",
                                      maker("sgd", {{"momentum", 0.0}}),
                                      0.0,
                                      {0.40678677, -1.02921879, 1.65165091}},
                                     {"SGD(lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.05)",
                                      maker("sgd", {{"dampening", 0.3}}),
                                      0.05,
                                      {0.278235525, -0.723503709, 1.16877198}},
                                     {"SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05)",
                                      maker("sgd", {{"nesterov", true}}),
                                      0.05,
                                      {0.170830876, -0.467391968, 0.76395303}},
                                     {"Adam(lr=0.1, weight_decay=0.05)",
                                      maker("adam", {}),
                                      0.05,
                                      {0.119094186, -0.865097582, 1.61413479}},
                                     {"AdamW(lr=0.1, weight_decay=0.05)",
                                      maker("adamw", {}),
                                      0.05,
                                      {0.112739146, -0.844863951, 1.57922935}}};
  for (const Golden& golden : table) {
    ParameterGroup group;
    group.weight_decay = golden.weight_decay;
    group.parameters = {parameter("w", {0.5, -1.25, 2.0})};
    const std::unique_ptr<Optimizer> optimizer = golden.make({group});
    const Tensor& w = group.parameters[0].variable.value();
    for (int t = 0; t < 4; ++t) {
      std::vector<double> dw = {0.3, -0.7, 1.1};
      for (std::size_t i = 0; i < 3; ++i) {
        dw[i] = dw[i] * (1 - 0.25 * t) + 0.1 * w.at(static_cast<std::int64_t>(i));
      }
      set_gradient(group.parameters[0].variable, dw);
      optimizer->step(0.1);
    }
    // The expected values and the optimiser round to float in four steps, so they differ by a few
    // units in the last place of 2.
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(w.at(i), golden.w[static_cast<std::size_t>(i)], 1e-6) << golden.name;
    }
  }
}

TEST(Optimizer, LeavesParametersWithoutAGradientAlone) {
  for (const Case& each : cases()) {
    ParameterGroup group;
    group.weight_decay = 0.1;
    group.parameters = {parameter("reached", {1.0}), parameter("not_reached", {1.0}),
                        parameter("cleared", {1.0})};
    set_gradient(group.parameters[0].variable, {1.0});
    set_gradient(group.parameters[2].variable, {1.0});
    group.parameters[2].variable.zero_grad();
    const std::unique_ptr<Optimizer> optimizer = each.make({group});
    optimizer->step(0.1);
    EXPECT_LT(group.parameters[0].variable.value().at(0), 0.99) << each.name;
    EXPECT_EQ(group.parameters[1].variable.value().at(0), 1.0) << each.name;
    EXPECT_EQ(group.parameters[2].variable.value().at(0), 1.0) << each.name;
    // The parameter's first real update still counts as its first step.
    set_gradient(group.parameters[1].variable, {1.0});
    optimizer->step(0.1);
    EXPECT_EQ(optimizer->state().back().tensor.at(1), 1.0) << each.name;
    EXPECT_EQ(optimizer->state().back().tensor.at(0), 2.0) << each.name;
  }
}

// Adam's bias correction counts the steps of each parameter separately. With a constant gradient g
// the corrected means are g and g^2, so each step has the length of the learning rate.
TEST(Optimizer, AdamCorrectsEachParameterForItsOwnSteps) {
  ParameterGroup group;
  group.parameters = {parameter("early", {0.0}, DType::f64), parameter("late", {0.0}, DType::f64)};
  const auto optimizer = make_optimizer("adam", {group});
  for (int step = 1; step <= 6; ++step) {
    set_gradient(group.parameters[0].variable, {2.0});
    if (step > 3) set_gradient(group.parameters[1].variable, {2.0});
    optimizer->step(0.125);
    const int own = std::max(0, step - 3);
    EXPECT_NEAR(group.parameters[0].variable.value().at(0), -0.125 * step, 1e-7) << step;
    EXPECT_NEAR(group.parameters[1].variable.value().at(0), -0.125 * own, 1e-7) << step;
  }
}

// With a zero gradient only decoupled weight decay acts: w becomes w (1 - rate decay), with the
// learning rate of the group.
TEST(Optimizer, DecoupledDecayFollowsTheRateOfTheGroup) {
  ParameterGroup group;
  group.lr_scale = 0.5;
  group.weight_decay = 0.25;
  group.parameters = {parameter("w", {8.0}, DType::f64)};
  set_gradient(group.parameters[0].variable, {0.0});
  const auto optimizer = make_optimizer("adamw", {group});
  optimizer->step(0.5);
  EXPECT_EQ(group.parameters[0].variable.value().at(0), 8 * (1 - 0.25 * 0.25));
}

TEST(Optimizer, FollowsAParameterWhoseTensorIsReplaced) {
  ParameterGroup group;
  group.parameters = {parameter("w", {1.0, 1.0})};
  const auto optimizer = make_optimizer("sgd", {group});
  group.parameters[0].variable.set_value(Tensor::from({5.0f, 6.0f}, Shape{2}));
  set_gradient(group.parameters[0].variable, {1.0, 2.0});
  optimizer->step(0.5);
  EXPECT_EQ(group.parameters[0].variable.value().at(0), 4.5);
  EXPECT_EQ(group.parameters[0].variable.value().at(1), 5.0);
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
void expect_message(const std::function<void()>& action, const std::string& part) {
  EXPECT_NE(message_of(action).find(part), std::string::npos) << message_of(action);
}

TEST(Optimizer, RefusesSettingsThatMakeNoSense) {
  const Groups groups = noisy_groups(DType::f32);
  const auto sgd = [](const Groups& all, const Settings& settings = {}) {
    return make_optimizer("sgd", all, settings);
  };
  expect_message([&] { sgd(groups, {{"momentum", 1.5}}); }, "[sgd] momentum: expected");
  expect_message(
      [&] {
        sgd(groups, {{"momentum", 0.0}, {"nesterov", true}});
      },
      "because nesterov is on, got momentum 0 and dampening 0");
  expect_message([&] { sgd(groups, {{"beta1", 0.5}}); }, "'beta1'");
  expect_message([&] { make_optimizer("adam", groups, {{"beta2", 1.0}}); }, "[adam] beta2: exp");
  expect_message([&] { make_optimizer("adamw", groups, {{"epsilon", 0.0}}); }, "[adamw] epsilon");
  expect_message([&] { sgd({}); }, "expected at least one parameter");
  expect_message([&] { sgd(groups)->step(NAN); }, "learning rate >= 0, got nan");
  Groups negative = groups;
  negative[1].weight_decay = -1;
  expect_message([&] { sgd(negative); }, "weight_decay >= 0 in group 'biases', got -1");
  Groups twice = groups;
  twice[1].parameters.push_back(groups[0].parameters[0]);
  expect_message([&] { sgd(twice); }, "got 'p0' again in group 'biases'");
  Groups frozen = groups;
  frozen[0].parameters.push_back({"frozen", Variable(Tensor::zeros(Shape{1}))});
  expect_message([&] { sgd(frozen); }, "'frozen' to be a leaf that requires a gradient");
}

TEST(Optimizer, NamesTheParametersThatGroupsMissOrShare) {
  const OptimParameter a = parameter("a", {1});
  const OptimParameter b = parameter("b", {1});
  const OptimParameter c = parameter("c", {1});
  ParameterGroup one;
  one.parameters = {a};
  ParameterGroup two;
  two.parameters = {a, b};
  EXPECT_NO_THROW(check_groups_cover({two}, {a, b}));
  EXPECT_EQ(message_of([&] {
              check_groups_cover({one, two}, {a, b, c});
            }),
            "[optimizer] expected every parameter in exactly one group, got in no group: c; in "
            "more than one: a");
}

TEST(Optimizer, IsBuiltFromTheRegistryWithItsDefaults) {
  EXPECT_EQ(optimizer_types().names(),
            (std::vector<std::string>{"adam", "adamw", "lion", "muon", "sgd", "sgdw"}));
  for (const auto& [name, type] : optimizer_types().entries()) {
    const std::unique_ptr<Optimizer> optimizer =
        type.build(noisy_groups(DType::f32), Options(type.fields));
    EXPECT_EQ(optimizer->kind(), name);
    for (const OptionField& field : type.fields) {
      EXPECT_EQ(refusal_of(field, field.default_value), "") << name << " " << field.name;
      EXPECT_FALSE(field.doc.empty()) << name << " " << field.name;
    }
  }
}

}  // namespace
}  // namespace convscope
