// SPDX-License-Identifier: Apache-2.0
// sparse_linear_cuda_test.cpp: tests compiled steps on a GPU in which pruned linear layers multiply
// only their unpruned blocks of weights. The results must agree with those of dense kernels on
// masked weights. Layers that run dense must keep their fused kernels.
#include <algorithm>
#include <cmath>

#include "framework/machine/peaks.h"
#include "layers/linear/linear.h"
#include "layers/plan/step_plan.h"
#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"

namespace convscope {
namespace {

using testing::cuda;

constexpr std::int64_t kBatch = 12, kInputs = 37, kUnits = 48;
const Shape kInput{kBatch, kInputs};

// By estimate such small layers would run dense. The test sets a low f32 peak, so that sparse
// layers are chosen.
class SparseLinearOnCuda : public testing::CudaTest {
 protected:
  void SetUp() override {
    testing::CudaTest::SetUp();
    set_machine_peaks({.flops_per_second = 1e6,
                       .bytes_per_second = 1e15,
                       .tf32_flops_per_second = 1e15,
                       .half_flops_per_second = 1e15},
                      DeviceType::cuda);
  }
  void TearDown() override {
    set_machine_peaks({}, DeviceType::cuda);
    testing::CudaTest::TearDown();
  }
};

struct Network {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks = {};
  std::vector<Ref<SparseWeights>> blocks = {};

  // Keeps one block of 16 rows in `every`.
  void prune_every(std::int64_t every) {
    for (std::size_t m = 0; m < masks.size(); ++m) {
      const Tensor keep = Tensor::zeros(masks[m]->keep().shape());
      const std::int64_t columns = keep.dim(1);
      for (std::int64_t i = 0; i < keep.numel(); ++i) {
        const std::int64_t block = i / columns / 16 * columns + i % columns;
        keep.data<float>()[i] = block % every == 0 ? 1.0f : 0.0f;
      }
      masks[m]->set_keep(keep.to(cuda()));
      if (!blocks.empty()) blocks[m]->mask_changed();
    }
  }
};

// Returns a network with linear layers f1 37 -> 48, a ReLU, f2 -> 32 and f3 -> `classes`. The first
// `pruned` layers have masks.
Network perceptron(bool sparse, std::int64_t classes, std::size_t pruned,
                   bool dense_gradient = false) {
  LayerContext context;
  context.seed = 7;
  Network out{.model = build_layers(
                  {testing::layer("linear", "f1", kUnits), testing::layer("relu", "r1"),
                   testing::layer("linear", "f2", 32), testing::layer("linear", "f3", classes)},
                  kInput, context)};
  out.model->to(cuda());
  for (const NamedModule& part : out.model->modules()) {
    auto* const linear = dynamic_cast<Linear*>(part.module);
    if (linear == nullptr || out.masks.size() == pruned) continue;
    out.masks.push_back(std::make_shared<Mask>(linear->weight().value()));
    out.masks.back()->set_dense_gradient(dense_gradient);
    linear->add_weight_transform("mask", out.masks.back(), /*first=*/true);
    if (!sparse) continue;
    out.blocks.push_back(make_ref<SparseWeights>(out.masks.back()->keep(), 16, 1, dense_gradient));
    out.masks.back()->execute_sparse(out.blocks.back());
  }
  return out;
}

std::unique_ptr<StepPlan> plan_of(const Network& network, PlanMode mode) {
  std::string why;
  auto plan = StepPlan::make(*network.model, kInput, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  return plan;
}

void expect_near(const Tensor& a, const Tensor& b, const std::string& what) {
  const std::vector<float> got = testing::values_of<float>(a), want = testing::values_of<float>(b);
  ASSERT_EQ(got.size(), want.size());
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    errors += std::pow(got[i] - want[i], 2);
    squares += std::pow(want[i], 2);
  }
  EXPECT_GT(squares, 0) << what;
  EXPECT_LE(std::sqrt(errors), 1e-5 * std::sqrt(squares)) << what;
}

TEST_F(SparseLinearOnCuda, TrainingMakesTheNumbersOfMaskedStepsAtEachMask) {
  const testing::FavouredKernel blocks({{"conv2d", "block_sparse", Direction::forward},
                                        {"conv2d", "block_sparse", Direction::backward_data},
                                        {"conv2d", "block_sparse", Direction::backward_weight}},
                                       {"f32", "f32 shared", "f32 4 tiles"});
  const Tensor x = testing::random_tensor(kInput, 3).to(cuda());
  const Tensor labels = Tensor::zeros({kBatch}, DType::i32).to(cuda());
  // Three cases: only the last layer is dense; all layers are pruned; all layers are pruned and all
  // weights, even pruned ones, need their gradients.
  for (const int form : {0, 1, 2}) {
    const std::size_t pruned = form == 0 ? 2 : 3;
    Network sparse = perceptron(true, 16, pruned, form == 2);
    Network dense = perceptron(false, 16, pruned, form == 2);
    std::unique_ptr<StepPlan> plan;
    for (const std::int64_t every : {5, 2}) {
      sparse.prune_every(every);
      dense.prune_every(every);
      EXPECT_FALSE(plan && plan->is_current());  // its lists are those of the previous mask
      plan = plan_of(sparse, PlanMode::training);
      const auto masked = plan_of(dense, PlanMode::training);
      ASSERT_TRUE(plan && masked);
      EXPECT_NE(plan->text().find("linear block_sparse + relu"), std::string::npos) << plan->text();
      EXPECT_EQ(plan->text().find("linear + softmax_cross_entropy") != std::string::npos,
                pruned == 2)
          << plan->text();
      EXPECT_NEAR(plan->forward(x, labels), masked->forward(x, labels), 1e-5);
      EXPECT_EQ(plan->correct(), masked->correct());
      plan->backward();
      masked->backward();
      EXPECT_EQ(plan->why_not_recordable(), "");
      const auto a = sparse.model->parameters(), b = dense.model->parameters();
      for (std::size_t i = 0; i < a.size(); ++i) {
        expect_near(a[i].variable.grad(), b[i].variable.grad(), cat(a[i].name, " one in ", every));
      }
    }
  }
}

TEST_F(SparseLinearOnCuda, InferenceIsThatOfTheMasksAndCanBeRecorded) {
  Network sparse = perceptron(true, 10, 2), dense = perceptron(false, 10, 2);
  const Tensor x = testing::random_tensor(kInput, 3).to(cuda());
  for (const std::int64_t every : {7, 2}) {
    Tensor y[2];
    int i = 0;
    for (Network* one : {&sparse, &dense}) {
      one->prune_every(every);
      one->model->eval();
      const auto plan = plan_of(*one, PlanMode::inference);
      plan->prepare();
      EXPECT_EQ(plan->why_not_recordable(), "");
      y[i++] = plan->infer(x).clone();
    }
    expect_near(y[0], y[1], cat("one in ", every));
  }
}

TEST_F(SparseLinearOnCuda, StaysDenseWhereThatIsFaster) {
  set_machine_peaks({}, DeviceType::cuda);
  Network sparse = perceptron(true, 10, 2);
  sparse.prune_every(2);
  const auto plan = plan_of(sparse, PlanMode::training);
  EXPECT_EQ(plan->text().find("linear block_sparse"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("forward linear, dense, because at density 0.5"), std::string::npos)
      << plan->text();
  EXPECT_NE(plan->text().find("linear + softmax_cross_entropy"), std::string::npos);
}

}  // namespace
}  // namespace convscope
