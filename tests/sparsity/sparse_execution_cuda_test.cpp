// SPDX-License-Identifier: Apache-2.0
// sparse_execution_cuda_test.cpp: tests compiled steps on `device cuda` that compute only from
// unpruned blocks of weights. For every mask the results agree with those of dense kernels on
// masked weights.
#include <cmath>
#include <map>

#include "layers/conv2d/conv2d.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::cuda;

using SparseExecutionOnCuda = testing::CudaTest;

const Shape kInput{4, 32, 9, 9};

struct Masked {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks;
  std::vector<Ref<SparseWeights>> blocks;

  // Keeps one of `every` blocks of 16 kernels. With 0, keeps only blocks of the first 16 kernels,
  // so that their list of blocks is longer than those of all other kernels.
  void prune_every(std::int64_t every) {
    for (std::size_t m = 0; m < masks.size(); ++m) {
      const Tensor keep = Tensor::zeros(masks[m]->keep().shape());
      const std::int64_t columns = keep.numel() / keep.dim(0);
      for (std::int64_t i = 0; i < keep.numel(); ++i) {
        const std::int64_t block = i / columns / 16 * columns + i % columns;
        keep.data<float>()[i] = (every == 0 ? block < columns : block % every == 0) ? 1.0f : 0.0f;
      }
      masks[m]->set_keep(keep.to(cuda()));
      if (!blocks.empty()) blocks[m]->mask_changed();
    }
  }
};

std::shared_ptr<Module> layers_of(const std::vector<LayerSpec>& specs, bool sparse) {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [sparse](const std::string&) {
    const std::string algorithm = sparse ? "block_sparse" : "auto";
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw"};
  };
  return build_layers(specs, kInput, context);
}

// Adds masks to all convolutions. With `sparse`, the network computes from 16x1 blocks in all
// directions.
Masked masked(std::shared_ptr<Module> model, bool sparse) {
  Masked out{.model = std::move(model), .masks = {}, .blocks = {}};
  out.model->to(cuda());
  for (const NamedModule& part : out.model->modules()) {
    auto* const conv = dynamic_cast<Conv2d*>(part.module);
    if (conv == nullptr) continue;
    out.masks.push_back(std::make_shared<Mask>(conv->weight().value()));
    conv->add_weight_transform("mask", out.masks.back(), /*first=*/true);
    if (!sparse) continue;
    out.blocks.push_back(
        make_ref<SparseWeights>(out.masks.back()->keep(), 16, 1, /*dense_gradient=*/false));
    out.masks.back()->execute_sparse(out.blocks.back());
  }
  return out;
}

// c1 32 -> 32, c2 32 -> 16; c2 computes dx.
Masked network(bool sparse) {
  return masked(layers_of({testing::layer("conv2d", "c1", 32), testing::layer("relu", "r1"),
                           testing::layer("conv2d", "c2", 16), testing::layer("flatten", "flat"),
                           testing::layer("linear", "f", 5)},
                          sparse),
                sparse);
}

// A module that applies an inner module twice. So the weights of the inner module get two
// gradients, which are added.
class Twice final : public Module {
 public:
  explicit Twice(std::shared_ptr<Module> inside) : inside_(add_child("inside", inside)) {}
  std::string kind() const override { return "twice"; }
  Variable forward(const Variable& x) override { return inside_->forward(inside_->forward(x)); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Module> inside_;
};

// Counts the calls of block_sparse in each direction. Any other convolution kernel is an error.
struct Calls {
  std::int64_t forward = 0, backward_data = 0, backward_weight = 0;
};
void expect_calls(const KernelCounter& counter, const Calls& want, const std::string& what) {
  std::map<std::string, std::int64_t> got;
  for (const auto& [run, count] : counter.runs()) {
    EXPECT_EQ(run.kernel, "block_sparse") << what << ": " << run.problem;
    EXPECT_NE(run.problem.find("weights=blocks16x1"), std::string::npos) << run.problem;
    got[run.direction] += count;
  }
  EXPECT_EQ(got["forward"], want.forward) << what;
  EXPECT_EQ(got["backward_data"], want.backward_data) << what;
  EXPECT_EQ(got["backward_weight"], want.backward_weight) << what;
}

std::unique_ptr<StepPlan> plan_of(const Masked& network, PlanMode mode) {
  std::string why;
  auto plan = StepPlan::make(*network.model, kInput, mode, &why);
  EXPECT_NE(plan, nullptr) << why;
  return plan;
}

// Sums of 196 to 1,296 products are added in another order, so each is off by less than 2^-20 of
// its size. A gradient passes through three such sums.
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

// Compares steps of the two networks with each mask. `want` is the number of calls in one step of
// the sparse network.
void expect_the_same_steps(Masked sparse, Masked dense, const Calls& want) {
  const Tensor x = testing::random_tensor(kInput, 3).to(cuda());
  const Tensor labels = Tensor::zeros({4}, DType::i32).to(cuda());
  std::unique_ptr<StepPlan> plan;
  for (const std::int64_t every : {1, 10, 0, 3}) {
    sparse.prune_every(every);
    dense.prune_every(every);
    EXPECT_FALSE(plan && plan->is_current());  // its lists are those of the previous mask
    plan = plan_of(sparse, PlanMode::training);
    const auto masked = plan_of(dense, PlanMode::training);
    const double loss = masked->forward(x, labels);
    masked->backward();
    {
      const KernelCounter counter;
      EXPECT_NEAR(plan->forward(x, labels), loss, 1e-5);
      plan->backward();
      expect_calls(counter, want, cat("one in ", every));
    }
    const auto a = sparse.model->parameters(), b = dense.model->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_near(a[i].variable.grad(), b[i].variable.grad(), cat(a[i].name, " one in ", every));
    }
    EXPECT_TRUE(plan->is_current());
  }
}

TEST_F(SparseExecutionOnCuda, TrainingMakesTheNumbersOfMaskedStepsAtEachMask) {
  expect_the_same_steps(network(true), network(false),
                        {.forward = 2, .backward_data = 1, .backward_weight = 2});
}

// The layer runs twice: its weight gets two gradients, and dx of the second call is dy of the first
// call.
TEST_F(SparseExecutionOnCuda, GradientsOfALayerThatIsPassedTwiceAreAdded) {
  const auto twice = [](bool sparse) {
    LayerSpec conv = testing::layer("conv2d", "c", kInput[1]);
    conv.options.set("padding", std::int64_t{1});
    auto model = std::make_shared<Sequential>();
    model->add("first", layers_of({conv}, sparse));
    model->add("twice", std::make_shared<Twice>(layers_of({conv}, sparse)));
    model->add(
        "last",
        layers_of({testing::layer("flatten", "flat"), testing::layer("linear", "f", 5)}, sparse));
    return masked(std::move(model), sparse);
  };
  expect_the_same_steps(twice(true), twice(false),
                        {.forward = 3, .backward_data = 2, .backward_weight = 3});
}

TEST_F(SparseExecutionOnCuda, InferenceIsThatOfTheMasksAndCanBeRecorded) {
  Masked sparse = network(true), dense = network(false);
  const Tensor x = testing::random_tensor(kInput, 3).to(cuda());
  for (const std::int64_t every : {7, 2}) {
    Tensor y[2];
    int i = 0;
    for (Masked* one : {&sparse, &dense}) {
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

TEST_F(SparseExecutionOnCuda, BlocksGoOutOfADenseWeightAndBack) {
  const Shape shape{48, 5, 3, 3};
  const Tensor w = testing::random_tensor(shape, 5), keep = Tensor::zeros(shape);
  const std::int64_t columns = 45;
  for (std::int64_t i = 0; i < keep.numel(); ++i) {
    const std::int64_t block = i / columns / 16 * columns + i % columns;
    keep.data<float>()[i] = block % 4 == 1 ? 1.0f : 0.0f;
  }
  SparseWeights blocks(keep.to(cuda()), 16, 1, /*dense_gradient=*/false);
  blocks.refresh();
  const Tensor on_gpu = w.to(cuda());
  const Tensor values = Tensor::zeros({keep.numel()}, DType::f32, cuda());
  blocks.gather(on_gpu.data<float>(), values.data<float>());
  for (const bool accumulate : {false, true}) {
    const Tensor back = Tensor::full(shape, 7.0).to(cuda());
    blocks.scatter(values.data<float>(), back.data<float>(), accumulate);
    const std::vector<float> got = testing::values_of<float>(back);
    for (std::int64_t i = 0; i < w.numel(); ++i) {
      const float kept = keep.at(i) != 0 ? w.data<float>()[i] : 0.0f;
      ASSERT_EQ(got[static_cast<std::size_t>(i)], kept + (accumulate ? 7.0f : 0.0f)) << i;
    }
  }
}

}  // namespace
}  // namespace convscope
