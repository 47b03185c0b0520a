// SPDX-License-Identifier: Apache-2.0
// sparse_linear_test.cpp: tests compiled steps whose linear layers compute only from unpruned
// blocks of weights. The results agree with those of dense kernels on masked weights. A message
// says where blocks cannot be used or do not pay off.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "framework/ops/elementwise.h"
#include "layers/linear/linear.h"
#include "layers/plan/step_plan.h"
#include "sparsity/pruner.h"
#include "tests/sparsity/networks.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// The layers are so large that, in all directions and on any machine, computing from few blocks is
// estimated to be faster.
constexpr std::int64_t kBatch = 256, kInputs = 608, kUnits = 512, kOutputs = 768;
const Shape kInput{kBatch, kInputs};
constexpr std::int64_t kFew = 97;  // keeps one block in kFew

struct Network {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks = {};
  std::vector<Ref<SparseWeights>> blocks = {};
};

// Adds masks to the first `pruned` linear layers. With `sparse`, these layers compute from 16x1
// blocks.
void prune(Network& network, std::size_t pruned, bool sparse, bool dense_gradient = false) {
  for (const NamedModule& part : network.model->modules()) {
    auto* const linear = dynamic_cast<Linear*>(part.module);
    if (linear == nullptr || network.masks.size() == pruned) continue;
    network.masks.push_back(std::make_shared<Mask>(linear->weight().value()));
    network.masks.back()->set_dense_gradient(dense_gradient);
    linear->add_weight_transform("mask", network.masks.back(), /*first=*/true);
    if (!sparse) continue;
    network.blocks.push_back(
        make_ref<SparseWeights>(network.masks.back()->keep(), 16, 1, dense_gradient));
    network.masks.back()->execute_sparse(network.blocks.back());
  }
}

// Returns a network with linear layers f1 608 -> 512, a ReLU, f2 -> 768 and f3 -> 5 classes. f1 and
// f2 have masks.
Network perceptron(bool sparse, bool dense_gradient = false, std::int64_t units = kUnits) {
  LayerContext context;
  context.seed = 7;
  Network out{.model = build_layers(
                  {testing::layer("linear", "f1", units), testing::layer("relu", "r1"),
                   testing::layer("linear", "f2", kOutputs), testing::layer("linear", "f3", 5)},
                  kInput, context)};
  prune(out, 2, sparse, dense_gradient);
  return out;
}

// Keeps one block of 16 rows in `every`.
Tensor thin(const Shape& shape, std::int64_t every) {
  const Tensor keep = Tensor::zeros(shape);
  const std::int64_t columns = shape[1];
  for (std::int64_t i = 0; i < keep.numel(); ++i) {
    const std::int64_t block = i / columns / 16 * columns + i % columns;
    keep.data<float>()[i] = block % every == 0 ? 1.0f : 0.0f;
  }
  return keep;
}

void prune_every(const Network& network, std::int64_t every) {
  for (const auto& mask : network.masks) mask->set_keep(thin(mask->keep().shape(), every));
}

Tensor labels() {
  const Tensor out = Tensor::zeros({kBatch}, DType::i32);
  for (std::int64_t i = 0; i < kBatch; ++i) {
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7 % 5);
  }
  return out;
}

void expect_near(const Tensor& a, const Tensor& b, const std::string& what) {
  double errors = 0, squares = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    errors += std::pow(a.at(i) - b.at(i), 2);
    squares += std::pow(b.at(i), 2);
  }
  EXPECT_GT(squares, 0) << what;
  EXPECT_LE(std::sqrt(errors), 1e-5 * std::sqrt(squares)) << what;
}

int count_of(const StepPlan& plan, const std::string& word) {
  int found = 0;
  const std::string text = plan.text();
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

std::unique_ptr<StepPlan> plan_of(const Network& network, PlanMode mode,
                                  const Shape& input = kInput) {
  std::string why;
  auto plan = StepPlan::make(*network.model, input, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  return plan;
}

std::vector<std::string> kernels_of(const StepPlan& plan, const std::string& layer) {
  std::vector<std::string> out;
  for (const RanKernel& one : plan.kernels()) {
    if (one.layer == layer) out.push_back(one.kernel);
  }
  return out;
}

using Names = std::vector<std::string>;

TEST(SparseLinear, MakesTheNumbersOfMaskedStepsAtEachMask) {
  const Network sparse = perceptron(true), dense = perceptron(false);
  const Tensor x = testing::random_tensor(kInput, 3);
  std::unique_ptr<StepPlan> plan;
  for (const std::int64_t every : {1, 7, 61, 97}) {
    prune_every(sparse, every);
    prune_every(dense, every);
    EXPECT_FALSE(plan && plan->is_current());  // its lists are those of the previous mask
    plan = plan_of(sparse, PlanMode::training);
    const auto masked = plan_of(dense, PlanMode::training);
    ASSERT_TRUE(plan && masked);
    const std::string ran = every == 1 ? "linear" : "block_sparse";
    EXPECT_EQ(kernels_of(*plan, "f1"), (Names{ran, ran})) << plan->text();  // dx is not needed
    EXPECT_EQ(kernels_of(*plan, "f2"), (Names{ran, ran, ran})) << plan->text();
    EXPECT_EQ(kernels_of(*plan, "f3"), (Names{"linear", "linear", "linear"}));
    EXPECT_EQ(kernels_of(*masked, "f2"), (Names{"linear", "linear", "linear"}));
    EXPECT_EQ(count_of(*plan, "linear block_sparse + relu"), every == 1 ? 0 : 1) << plan->text();
    EXPECT_NEAR(plan->forward(x, labels()), masked->forward(x, labels()), 1e-5);
    plan->backward();
    masked->backward();
    const auto a = sparse.model->parameters(), b = dense.model->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_near(a[i].variable.grad(), b[i].variable.grad(), cat(a[i].name, " one in ", every));
    }
    EXPECT_TRUE(plan->is_current());
  }
}

TEST(SparseLinear, OfInferenceIsThatOfTheMasks) {
  const Network sparse = perceptron(true), dense = perceptron(false);
  const Tensor x = testing::random_tensor(kInput, 3);
  for (const std::int64_t every : {kFew, std::int64_t{11}}) {
    Tensor y[2];
    int i = 0;
    for (const Network* one : {&sparse, &dense}) {
      prune_every(*one, every);
      one->model->eval();
      const auto plan = plan_of(*one, PlanMode::inference);
      ASSERT_NE(plan, nullptr);
      EXPECT_EQ(count_of(*plan, "linear block_sparse"), one == &sparse ? 2 : 0) << plan->text();
      plan->prepare();
      y[i++] = plan->infer(x).clone();
      plan->infer(x);  // the lists stay
      expect_near(plan->infer(x), y[i - 1], "again");
    }
    expect_near(y[0], y[1], cat("one in ", every));
  }
}

// The numbers of inputs and outputs do not fill blocks of 16 channels. Images are NCHW.
TEST(SparseLinear, OfSingleWeightsTakesAnySizes) {
  const Shape input{kBatch, 301};
  Tensor y[2];
  for (const bool sparse : {true, false}) {
    LayerContext context;
    context.seed = 7;
    const Network network{.model =
                              build_layers({testing::layer("linear", "f1", 205)}, input, context)};
    auto* const linear = dynamic_cast<Linear*>(network.model->modules().back().module);
    ASSERT_NE(linear, nullptr);
    const Tensor keep = Tensor::zeros({205, 301});
    for (std::int64_t i = 0; i < keep.numel(); i += 731) keep.data<float>()[i] = 1;
    const auto mask = std::make_shared<Mask>(linear->weight().value());
    mask->set_keep(keep);
    linear->add_weight_transform("mask", mask, /*first=*/true);
    if (sparse) mask->execute_sparse(make_ref<SparseWeights>(mask->keep(), 1, 1, false));
    network.model->eval();
    const auto plan = plan_of(network, PlanMode::inference, input);
    ASSERT_NE(plan, nullptr);
    EXPECT_EQ(count_of(*plan, "linear block_sparse"), sparse ? 1 : 0) << plan->text();
    plan->prepare();
    y[sparse ? 0 : 1] = plan->infer(testing::random_tensor(input, 3)).clone();
  }
  expect_near(y[0], y[1], "y");
}

// Computes f(h) + f(h) + g(h) with h = a(x), then 5 classes. In the backward pass, dx of f and g is
// added to an existing dx, and the second dw of f is added to the first.
class Meeting final : public Module {
 public:
  explicit Meeting(LayerContext& context)
      : a_(add_child("a", layer(kInputs, context))),
        f_(add_child("f", layer(kUnits, context))),
        g_(add_child("g", layer(kUnits, context))),
        last_(add_child("last",
                        std::make_shared<Linear>(
                            LinearOptions{.in_features = kUnits, .out_features = 5}, context))) {}
  std::string kind() const override { return "meeting"; }
  Variable forward(const Variable& x) override {
    const Variable h = a_->forward(x);
    const Variable f = f_->forward(h) + f_->forward(h);
    const Graph::Scope scope(x.graph(), "g");
    return last_->forward(f + g_->forward(h));
  }
  Shape output_shape(const Shape& input) const override { return {input[0], 5}; }
  Linear& f() { return *f_; }
  Linear& g() { return *g_; }

 private:
  static std::shared_ptr<Linear> layer(std::int64_t inputs, LayerContext& context) {
    return std::make_shared<Linear>(LinearOptions{.in_features = inputs, .out_features = kUnits},
                                    context);
  }
  std::shared_ptr<Linear> a_, f_, g_, last_;
};

TEST(SparseLinear, AddsToGradientsThatAreThere) {
  const Tensor keep = thin({kUnits, kUnits}, kFew);
  std::vector<std::shared_ptr<Meeting>> models;
  std::vector<std::unique_ptr<StepPlan>> plans;
  const Tensor x = testing::random_tensor(kInput, 3);
  for (const bool sparse : {true, false}) {
    LayerContext context;
    context.seed = 7;
    models.push_back(std::make_shared<Meeting>(context));
    for (Linear* one : {&models.back()->f(), &models.back()->g()}) {
      const auto mask = std::make_shared<Mask>(one->weight().value());
      mask->set_keep(keep);
      if (sparse) mask->execute_sparse(make_ref<SparseWeights>(mask->keep(), 16, 1, false));
      one->add_weight_transform("mask", mask, /*first=*/true);
    }
    plans.push_back(plan_of({.model = models.back()}, PlanMode::training));
    ASSERT_NE(plans.back(), nullptr);
    plans.back()->forward(x, labels());
    plans.back()->backward();
  }
  const Names ran = kernels_of(*plans[0], "g");  // and of the last layer
  EXPECT_EQ(std::ranges::count(ran, "block_sparse"), 3) << plans[0]->text();
  const auto a = models[0]->parameters(), b = models[1]->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    Tensor got = a[i].variable.grad(), want = b[i].variable.grad().clone();
    if (a[i].name == "f.weight" || a[i].name == "g.weight") {  // compare only stored weights
      for (std::int64_t e = 0; e < want.numel(); ++e)
        want.data<float>()[e] *= keep.data<float>()[e];
    }
    expect_near(got, want, a[i].name);
  }
}

TEST(SparseLinear, StaysDenseAndSaysWhyWhereAllIsKept) {
  const Network sparse = perceptron(true);
  const auto plan = plan_of(sparse, PlanMode::training);
  EXPECT_EQ(count_of(*plan, "linear block_sparse"), 0) << plan->text();
  EXPECT_EQ(count_of(*plan,
                     "forward linear, dense, because at density 1.00 block_sparse is "
                     "estimated at "),
            2)
      << plan->text();
  EXPECT_EQ(count_of(*plan, "backward_data linear, dense, because at density 1.00"), 1);
  EXPECT_EQ(count_of(*plan, "backward_weight linear, dense, because at density 1.00"), 2);
}

TEST(SparseLinear, OfDenseGradientsKeepsBackwardWeightDense) {
  const Network sparse = perceptron(true, /*dense_gradient=*/true);
  const Network dense = perceptron(false, /*dense_gradient=*/true);
  const Tensor x = testing::random_tensor(kInput, 3);
  std::vector<Tensor> gradients;
  for (const Network* one : {&sparse, &dense}) {
    prune_every(*one, kFew);
    const auto plan = plan_of(*one, PlanMode::training);
    if (one == &sparse) {
      EXPECT_EQ(
          count_of(*plan,
                   "backward_weight linear, dense, because pruned weights need their gradient"),
          2)
          << plan->text();
      EXPECT_EQ(kernels_of(*plan, "f2"), (Names{"block_sparse", "block_sparse", "linear"}));
    }
    plan->forward(x, labels());
    plan->backward();
    for (const auto& one_of : one->model->parameters()) gradients.push_back(one_of.variable.grad());
  }
  const std::size_t count = gradients.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    expect_near(gradients[i], gradients[i + count], cat("gradient ", i));
  }
  // Pruned weights have gradients, too.
  EXPECT_NE(gradients[0].at(1), 0);
}

TEST(SparseLinear, OfBlocksThatDoNotDivideStaysDense) {
  const Network sparse = perceptron(true, false, /*units=*/200);
  const auto plan = plan_of(sparse, PlanMode::training);
  EXPECT_EQ(count_of(*plan,
                     "forward linear, dense, because blocks of 16x1 do not divide its 200x608 "
                     "matrix of weights"),
            1)
      << plan->text();
}

TEST(SparseLinear, RefusesMasksOfPartsOfBlocks) {
  const Network sparse = perceptron(true);
  const Tensor keep = sparse.masks[0]->keep().clone();
  keep.data<float>()[keep.numel() - 1] = 0;
  sparse.masks[0]->set_keep(keep);
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[linear] expected a mask of whole 16x1 blocks because the layer is executed from "
               "block-sparse weights, got one that keeps a part of block 607 in row 31 of blocks",
               StepPlan::make(*sparse.model, kInput, PlanMode::training, nullptr));
}

// Returns weights and masks after some training steps in which the masks change.
std::vector<Tensor> trained(const std::string& method, bool sparse) {
  constexpr std::int64_t kSteps = 6;
  LayerContext context;
  context.seed = 7;
  const auto model =
      build_layers({testing::layer("linear", "f1", kUnits), testing::layer("relu", "r1"),
                    testing::layer("linear", "f2", kOutputs), testing::layer("linear", "f3", 16)},
                   kInput, context);
  std::map<std::string, OptionValue> given{{"method", method},
                                           {"execute", std::string(sparse ? "sparse" : "masked")},
                                           {"target", 0.99},
                                           {"distribution", std::string("uniform")},
                                           {"every_steps", std::int64_t{2}},
                                           {"start", 0.0},
                                           {"end", 0.8},
                                           {"exclude", std::vector<std::string>{"f3"}}};
  if (method == "block") given["block"] = std::vector<std::int64_t>{16, 1};
  if (method == "rigl") given["drop_fraction"] = 0.3;
  Pruner pruner(*model, kInput, testing::options_of(given), kSteps, 3);
  std::unique_ptr<StepPlan> plan;
  int in_blocks = 0, dense_gradients = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    pruner.before_step(step);
    if (!plan || !plan->is_current()) {
      plan = StepPlan::make(*model, kInput, PlanMode::training, nullptr);
    }
    if (plan == nullptr) return {};
    in_blocks += count_of(*plan, "linear block_sparse") > 0 ? 1 : 0;
    dense_gradients += count_of(*plan, "need their gradient") > 0 ? 1 : 0;
    plan->forward(testing::random_tensor(kInput, static_cast<std::uint64_t>(step)), labels());
    plan->backward();
    for (const auto& parameter : model->parameters()) {
      const Tensor w = parameter.variable.value(), dw = parameter.variable.grad();
      for (std::int64_t i = 0; i < w.numel(); ++i)
        w.data<float>()[i] -= 0.02f * dw.data<float>()[i];
    }
    pruner.after_step(step + 1);
  }
  EXPECT_EQ(in_blocks > 0, sparse) << method;
  EXPECT_EQ(dense_gradients > 0, sparse && method == "rigl") << method;
  std::vector<Tensor> out = pruner.masks();
  for (const auto& parameter : model->parameters()) out.push_back(parameter.variable.value());
  return out;
}

// RigL grows pruned weights according to their gradients. Only the steps directly before an update
// of the masks compute these gradients.
TEST(SparseLinear, OfChangingMasksTrainsAsMaskedStepsDo) {
  for (const char* method : {"block", "rigl"}) {
    const std::vector<Tensor> sparse = trained(method, true), masked = trained(method, false);
    ASSERT_EQ(sparse.size(), masked.size()) << method;
    ASSERT_FALSE(sparse.empty()) << method;
    for (std::size_t i = 0; i < sparse.size(); ++i) {
      ASSERT_EQ(sparse[i].defined(), masked[i].defined());
      if (sparse[i].defined()) expect_near(sparse[i], masked[i], cat(method, ", tensor ", i));
    }
  }
}

}  // namespace
}  // namespace convscope
