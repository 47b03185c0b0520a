// SPDX-License-Identifier: Apache-2.0
// explained_kernels_cuda_test.cpp: tests that on `device cuda` a step runs exactly the kernels that
// `explain` names. The cases have single algorithms, chains of layers, and dynamic graphs.
#include <algorithm>

#include "experiments/config/build.h"
#include "experiments/config/conv_layers.h"
#include "experiments/explain/explanation.h"
#include "experiments/run_folder/step_kernels.h"
#include "layers/losses/cross_entropy.h"
#include "tests/support/cuda.h"
#include "tests/support/kernel_tally.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::differences;
using testing::KernelTally;
using ExplainedKernelsOnCuda = testing::CudaTest;

const Shape kInput = {2, 1, 28, 28};

std::shared_ptr<Module> lenet(const std::string& algorithm) {
  const ExperimentConfig config = parse_config_text(
      "data: {set: synthetic_digits}\nmodel: {type: lenet5}\ndevice: cuda\n"
      "conv: {algorithm: " +
          algorithm + "}\n",
      "lenet.yaml");
  return build_model(config, {1, 28, 28}, 10);
}

KernelTally said_by(const StepKernels& kernels, Module& model) {
  KernelTally tally;
  for (const ConvLayer& conv : conv_layers(model, kInput)) {
    for (const Direction direction : kDirections) {
      const LayerKernel* const kernel = kernels.find(conv.name, direction);
      if (kernel == nullptr) continue;
      testing::add_said(tally, kernel->kernel, std::string(name_of(direction)), conv.use->problem(),
                        1);
    }
  }
  return tally;
}

TEST_F(ExplainedKernelsOnCuda, APlannedStepRunsWhatItNames) {
  const Tensor x = Tensor::zeros(kInput, DType::f32, cuda());
  const Tensor labels = Tensor::zeros({kInput[0]}, DType::i32);
  for (const char* algorithm : {"auto", "direct", "im2col_gemm"}) {
    SCOPED_TRACE(algorithm);
    const auto model = lenet(algorithm);
    std::string why;
    const auto plan = StepPlan::make(*model, kInput, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    const StepKernels kernels = planned_kernels(*plan);
    const bool chained = kernels.name_of("c1", Direction::forward).starts_with("few_channel_chain");
    EXPECT_EQ(chained, std::string(algorithm) == "auto");  // a named algorithm runs itself
    const KernelCounter counter;
    plan->forward(x, labels);
    plan->backward();
    for (const std::string& sentence : differences(said_by(kernels, *model), counter.runs())) {
      ADD_FAILURE() << sentence;
    }
  }
}

TEST_F(ExplainedKernelsOnCuda, TheReasonAgainstARecordingIsNamed) {
  const ExperimentConfig config = parse_config_text(
      "data: {set: synthetic_digits}\nmodel: {type: lenet5}\ndevice: cuda\n"
      "train: {accumulate: 2, loss: {class_weights: [1, 2, 1, 1, 1, 1, 1, 1, 1, 1]}}\n",
      "weighted.yaml");
  EXPECT_EQ(explain_config(config).steps.at(0).kernels.why,
            "the host counts the labels of the whole batch, by which class weights are divided");
}

TEST_F(ExplainedKernelsOnCuda, ADynamicStepRunsWhatItNames) {
  const auto model = lenet("auto");
  const StepKernels kernels =
      dynamic_kernels(*model, kInput, cuda(), PlanMode::training, "the test says so");
  const Tensor labels = Tensor::zeros({kInput[0]}, DType::i32).to(cuda());
  const KernelCounter counter;
  softmax_cross_entropy(model->forward(Variable(Tensor::zeros(kInput, DType::f32, cuda()))), labels)
      .backward();
  for (const std::string& sentence : differences(said_by(kernels, *model), counter.runs())) {
    ADD_FAILURE() << sentence;
  }
}

// `explain` describes a layer in NCHW. In fp16/bf16 the layer runs in NHWC; so does a tf32 layer
// whose algorithm accepts only NHWC. `explain` must not report such an algorithm as refused.
TEST_F(ExplainedKernelsOnCuda, ANhwcOnlyAlgorithmIsNotSaidToRefuse) {
  for (const char* precision : {"bf16", "tf32"}) {
    SCOPED_TRACE(precision);
    const ExperimentConfig config = parse_config_text(
        cat("data: {set: synthetic_digits, batch_size: 2}\nprecision: ", precision,
            "\ndevice: cuda\nmodel: {type: resnet18, stem: cifar, widths: [8, 8, 8, 8]}\n"
            "conv: {algorithm: implicit_gemm_tma}\n"),
        "resnet.yaml");
    const Explanation explanation = explain_config(config);
    for (const ExplainedLayer& layer : explanation.layers) {
      for (const ExplainedDirection& of : layer.directions) {
        EXPECT_FALSE(of.is_refused()) << layer.conv.name;
        if (!of.asked) continue;
        ASSERT_TRUE(of.ran) << layer.conv.name;
        EXPECT_EQ(of.ran->kernel, "implicit_gemm_tma") << layer.conv.name;
      }
    }
  }
}

}  // namespace
}  // namespace convscope
