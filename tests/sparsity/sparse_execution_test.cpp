// SPDX-License-Identifier: Apache-2.0
// sparse_execution_test.cpp: tests compiled steps that compute only from unpruned blocks of
// weights. For every mask the results agree with those of dense kernels on masked weights. A
// message says where blocks cannot be used.
#include <gtest/gtest.h>

#include <cmath>
#include <variant>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/conv2d.h"
#include "layers/plan/step_plan.h"
#include "sparsity/pruner.h"
#include "tests/sparsity/networks.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const Shape kInput{4, 20, 9, 9};

struct Masked {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks;
};

// Returns a network with convolutions c1 20 -> 32 and c2 -> 16, each with a mask. With `sparse`, it
// computes from 16x1 blocks.
Masked network(const std::string& algorithm, bool sparse, bool dense_gradient = false) {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [&](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw16c"};  // prevents chains
  };
  Masked out{
      .model = build_layers({testing::layer("conv2d", "c1", 32), testing::layer("relu", "r1"),
                             testing::layer("conv2d", "c2", 16), testing::layer("flatten", "flat"),
                             testing::layer("linear", "f", 5)},
                            kInput, context),
      .masks = {}};
  for (const NamedModule& part : out.model->modules()) {
    auto* const conv = dynamic_cast<Conv2d*>(part.module);
    if (conv == nullptr) continue;
    out.masks.push_back(std::make_shared<Mask>(conv->weight().value()));
    conv->add_weight_transform("mask", out.masks.back(), /*first=*/true);
    if (!sparse) continue;
    out.masks.back()->execute_sparse(
        make_ref<SparseWeights>(out.masks.back()->keep(), 16, 1, dense_gradient));
  }
  return out;
}

// Keeps one block of 16 kernels in `every`.
void prune_every(const Masked& network, std::int64_t every) {
  for (const auto& mask : network.masks) {
    const Tensor keep = Tensor::zeros(mask->keep().shape());
    const std::int64_t columns = keep.numel() / keep.dim(0);
    for (std::int64_t i = 0; i < keep.numel(); ++i) {
      const std::int64_t block = i / columns / 16 * columns + i % columns;
      keep.data<float>()[i] = block % every == 0 ? 1.0f : 0.0f;
    }
    mask->set_keep(keep);
  }
}

void expect_near(const Tensor& a, const Tensor& b, const std::string& what) {
  double errors = 0, squares = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    errors += std::pow(a.at(i) - b.at(i), 2);
    squares += std::pow(b.at(i), 2);
  }
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

TEST(SparseExecution, MakesTheNumbersOfMaskedStepsAtEachMask) {
  const Masked sparse = network("block_sparse", true);
  const Masked dense = network("auto", false);
  const Tensor x = testing::random_tensor(kInput, 3);
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  std::unique_ptr<StepPlan> plan;
  for (const std::int64_t every : {1, 10, 3}) {
    prune_every(sparse, every);
    prune_every(dense, every);
    EXPECT_FALSE(plan && plan->is_current());  // its lists are those of the previous mask
    std::string why;
    plan = StepPlan::make(*sparse.model, kInput, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(count_of(*plan, "conv2d block_sparse"), 2) << plan->text();
    const auto masked = StepPlan::make(*dense.model, kInput, PlanMode::training, &why);
    ASSERT_NE(masked, nullptr) << why;
    EXPECT_NEAR(plan->forward(x, labels), masked->forward(x, labels), 1e-5);
    plan->backward();
    masked->backward();
    const auto a = sparse.model->parameters();
    const auto b = dense.model->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_near(a[i].variable.grad(), b[i].variable.grad(), cat(a[i].name, " one in ", every));
    }
    EXPECT_TRUE(plan->is_current());
  }
}

TEST(SparseExecution, OfInferenceIsThatOfTheMasks) {
  const Masked sparse = network("block_sparse", true);
  const Masked dense = network("auto", false);
  const Tensor x = testing::random_tensor(kInput, 3);
  for (const std::int64_t every : {7, 2}) {
    Tensor y[2];
    int i = 0;
    for (const Masked* one : {&sparse, &dense}) {
      prune_every(*one, every);
      one->model->eval();
      const auto plan = StepPlan::make(*one->model, kInput, PlanMode::inference, nullptr);
      ASSERT_NE(plan, nullptr);
      plan->prepare();
      y[i++] = plan->infer(x).clone();
    }
    expect_near(y[0], y[1], cat("one in ", every));
  }
}

// In a LeNet the pruned c2 stays in the chain of both convolutions. A block-sparse c2 would be
// faster by itself, but the layout conversions around it would cost more.
TEST(SparseExecution, OfFewChannelsStaysInTheChain) {
  if (current_isa() < Isa::avx2) GTEST_SKIP() << "without wide vectors there is no chain";
  LayerContext context;
  context.seed = 7;
  std::vector<LayerSpec> specs{
      testing::layer("conv2d", "c1", 6),  testing::layer("relu", "r1"),
      testing::layer("max_pool2d", "p1"), testing::layer("conv2d", "c2", 16),
      testing::layer("relu", "r2"),       testing::layer("max_pool2d", "p2"),
      testing::layer("flatten", "flat"),  testing::layer("linear", "f", 5)};
  specs[0].options.set("kernel_size", std::int64_t{5});
  specs[3].options.set("kernel_size", std::int64_t{5});
  const Shape images{64, 3, 32, 32};
  Masked net{.model = build_layers(specs, images, context), .masks = {}};
  for (const NamedModule& part : net.model->modules()) {
    auto* const conv = dynamic_cast<Conv2d*>(part.module);
    if (conv == nullptr || conv->weight().shape()[0] != 16) continue;
    net.masks.push_back(std::make_shared<Mask>(conv->weight().value()));
    conv->add_weight_transform("mask", net.masks.back(), /*first=*/true);
    net.masks.back()->execute_sparse(
        make_ref<SparseWeights>(net.masks.back()->keep(), 16, 1, false));
  }
  prune_every(net, 2);
  const auto plan = StepPlan::make(*net.model, images, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("c2 conv2d direct_batch_lanes"), std::string::npos) << plan->text();
}

// With block-sparse kernels, the masked weight is needed only while the compiled step gathers the
// blocks. Afterwards images and the next layer's weight reuse its memory. (Dense kernels read the
// masked weight itself, so it has to stay.)
TEST(SparseExecution, OfInferenceKeepsNoMaskedWeights) {
  const auto model = [](const std::string& word) {
    LayerContext context;
    context.seed = 7;
    context.conv_policy = [word](const std::string&) {
      return Conv2dPolicy{word, word, word, "nchw16c"};
    };
    Masked out{.model = build_layers(
                   {testing::layer("conv2d", "c1", 256), testing::layer("conv2d", "c2", 256),
                    testing::layer("conv2d", "c3", 16), testing::layer("flatten", "flat")},
                   {1, 256, 8, 8}, context),
               .masks = {}};
    for (const NamedModule& part : out.model->modules()) {
      auto* const conv = dynamic_cast<Conv2d*>(part.module);
      if (conv == nullptr) continue;
      out.masks.push_back(std::make_shared<Mask>(conv->weight().value()));
      conv->add_weight_transform("mask", out.masks.back(), /*first=*/true);
      out.masks.back()->execute_sparse(
          make_ref<SparseWeights>(out.masks.back()->keep(), 16, 1, false));
    }
    return out;
  };
  const Masked sparse = model("block_sparse");
  prune_every(sparse, 20);
  sparse.model->eval();
  const auto plan = StepPlan::make(*sparse.model, {1, 256, 8, 8}, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(count_of(*plan, "conv2d block_sparse"), 3) << plan->text();
  // The arena holds one masked weight at a time (first that of c1, then that of c2), some images,
  // and the kept blocks, which are a twentieth of the weights.
  constexpr std::size_t kWeight = sizeof(float) * 256 * 256 * 9;
  EXPECT_LT(plan->arena()->bytes, kWeight + kWeight / 2);
}

// The lists of blocks of the first compiled step are outdated after the mask has changed. The step
// must not count as current because another compiled step has built lists for the new mask.
TEST(SparseExecution, OfAnOldMaskIsNotCurrentWhenAnotherPlanHasReadTheNewOne) {
  const Masked sparse = network("block_sparse", true);
  prune_every(sparse, 3);
  const auto full = StepPlan::make(*sparse.model, kInput, PlanMode::training, nullptr);
  ASSERT_NE(full, nullptr);
  EXPECT_TRUE(full->is_current());
  prune_every(sparse, 10);
  const auto last = StepPlan::make(*sparse.model, {2, 20, 9, 9}, PlanMode::training, nullptr);
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(last->is_current());
  EXPECT_FALSE(full->is_current());
}

TEST(SparseExecution, AutoStaysDenseAndSaysWhyWhereAllIsKept) {
  const Masked sparse = network("auto", true);
  const auto plan = StepPlan::make(*sparse.model, kInput, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(count_of(*plan, "conv2d block_sparse"), 0) << plan->text();
  EXPECT_NE(plan->text().find("dense, because at density 1.00 block_sparse is estimated at"),
            std::string::npos)
      << plan->text();
}

TEST(SparseExecution, OfDenseGradientsKeepsBackwardWeightDense) {
  const Masked sparse = network("auto", true, /*dense_gradient=*/true);
  prune_every(sparse, 20);
  const auto plan = StepPlan::make(*sparse.model, kInput, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("dense, because pruned weights need their gradient"),
            std::string::npos)
      << plan->text();
}

TEST(SparseExecution, RefusesMasksOfPartsOfBlocks) {
  const Masked sparse = network("auto", true);
  const Tensor keep = sparse.masks[0]->keep().clone();
  keep.data<float>()[keep.numel() - 1] = 0;
  sparse.masks[0]->set_keep(keep);
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[conv2d] expected a mask of whole 16x1 blocks because the layer is executed from "
               "block-sparse weights, got one that keeps a part of block 179 in row 1 of blocks",
               StepPlan::make(*sparse.model, kInput, PlanMode::training, nullptr));
}

TEST(SparseExecution, OfBlocksThatDoNotDivideStaysDense) {
  Tensor keep = Tensor::full({6, 2, 3, 3}, 1.0);
  SparseWeights weights(keep, 16, 1, false);
  weights.refresh();
  EXPECT_EQ(weights.obstacle(), "blocks of 16x1 do not divide its 6x18 matrix of weights");
  EXPECT_TRUE(weights.is_current());
}

SparsityOptions options_of(const std::string& method) {
  Options options;
  for (const OptionField& field : sparsity_fields()) {
    if (!std::holds_alternative<std::monostate>(field.default_value)) {
      options.set(field.name, field.default_value);
    }
  }
  options.set("method", method);
  options.set("execute", std::string("sparse"));
  options.set("target", 0.7);
  options.set("every_steps", std::int64_t{2});
  options.set("end", 0.8);
  if (method == "n_m") {
    options.set("n", std::int64_t{1});
    options.set("m", std::int64_t{4});
  }
  if (method == "rigl") options.set("drop_fraction", 0.3);
  return parse_sparsity(options);
}

TEST(SparseExecution, OfWholeOutputsIsRefused) {
  EXPECT_ERROR(ErrorKind::kConfig,
               "[sparsity] expected execute masked with method filter or channel, because their "
               "outputs leave the network (remove, export --compact), got sparse with filter",
               options_of("filter"));
}

// Returns weights and masks after some training steps in which the masks change.
std::vector<Tensor> trained(const std::string& method, bool sparse) {
  constexpr std::int64_t kSteps = 10;
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [&](const std::string&) {
    const std::string word = sparse ? "block_sparse" : "auto";
    return Conv2dPolicy{word, word, word, "nchw16c"};
  };
  const auto model =
      build_layers({testing::layer("conv2d", "c1", 32), testing::layer("relu", "r1"),
                    testing::layer("conv2d", "c2", 16), testing::layer("flatten", "flat"),
                    testing::layer("linear", "f", 5)},
                   kInput, context);
  SparsityOptions options = options_of(method);
  if (!sparse) options.execute = SparseExecution::masked;
  Pruner pruner(*model, kInput, options, kSteps, 3);
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  std::unique_ptr<StepPlan> plan;
  int made = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    pruner.before_step(step);
    if (!plan || !plan->is_current()) {
      plan = StepPlan::make(*model, kInput, PlanMode::training, nullptr);
      ++made;
    }
    if (plan == nullptr) return {};
    plan->forward(testing::random_tensor(kInput, static_cast<std::uint64_t>(step)), labels);
    plan->backward();
    for (const auto& parameter : model->parameters()) {
      const Tensor w = parameter.variable.value(), dw = parameter.variable.grad();
      for (std::int64_t i = 0; i < w.numel(); ++i) {
        w.data<float>()[i] -= 0.02f * dw.data<float>()[i];
        dw.data<float>()[i] = 0;
      }
    }
    pruner.after_step(step + 1);
  }
  EXPECT_GT(made, sparse ? 2 : 0) << method;  // masks changed during training
  std::vector<Tensor> out = pruner.masks();
  for (const auto& parameter : model->parameters()) out.push_back(parameter.variable.value());
  return out;
}

// RigL grows pruned weights whose gradient is large. So the steps before such an update need the
// gradients of pruned weights, and compute a dense dw.
TEST(SparseExecution, OfChangingMasksTrainsAsMaskedStepsDo) {
  for (const char* method : {"magnitude", "n_m", "rigl"}) {
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
