// SPDX-License-Identifier: Apache-2.0
// integer_sparse_cuda_test.cpp: tests integer graphs on `device cuda` that compute only from the
// unpruned blocks of weights. Their logits have the same bits as dense integer graphs, also after
// step sizes or masks change.
#include "layers/conv2d/conv2d.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;

using IntegerSparseOnCuda = testing::CudaTest;

const Shape kInput{5, 48, 20, 20};

struct Masked {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks;
  std::vector<Ref<SparseWeights>> blocks;

  // Keeps one block of 16 kernels in `every`.
  void prune_every(std::int64_t every, Device device) {
    for (std::size_t m = 0; m < masks.size(); ++m) {
      const Tensor keep = Tensor::zeros(masks[m]->keep().shape());
      const std::int64_t columns = keep.numel() / keep.dim(0);
      for (std::int64_t i = 0; i < keep.numel(); ++i) {
        const std::int64_t block = i / columns / 16 * columns + i % columns;
        keep.data<float>()[i] = block * 7 % every == 0 ? 1.0f : 0.0f;
      }
      masks[m]->set_keep(keep.to(device));
      if (m < blocks.size()) blocks[m]->mask_changed();
    }
  }
};

// Returns a quantised and calibrated network on the GPU: convolution c1 with 48 -> 160 channels,
// convolution c2 with 160 -> 64, then 5 classes. The masks keep one of `every` blocks. With
// `sparse`, the network computes only from kept 16x1 blocks.
Masked network(bool sparse, std::int64_t every, const std::string& policy = "auto") {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [&](const std::string&) { return Conv2dPolicy{.forward = policy}; };
  Masked out;
  out.model = build_layers({testing::layer("conv2d", "c1", 160), testing::layer("relu", "r1"),
                            testing::layer("conv2d", "c2", 64), testing::layer("relu", "r2"),
                            testing::layer("flatten", "flat"), testing::layer("linear", "f", 5)},
                           kInput, context);
  std::vector<Conv2d*> convs;
  for (const NamedModule& part : out.model->modules()) {
    if (auto* const conv = dynamic_cast<Conv2d*>(part.module)) convs.push_back(conv);
  }
  for (Conv2d* const conv : convs) {
    out.masks.push_back(std::make_shared<Mask>(conv->weight().value()));
    conv->add_weight_transform("mask", out.masks.back(), /*first=*/true);
  }
  out.prune_every(every, {});
  QuantConfig quant;
  quant.w_bits = quant.a_bits = 8;
  quant.per_channel = true;
  quant.execute = QuantExecute::int8;
  apply_quantization(*out.model, quant, {});
  out.model->train();
  const NoGrad no_grad;
  for (int i = 0; i < 2; ++i) out.model->forward(Variable(testing::random_tensor(kInput, 3)));
  out.model->eval();
  out.model->to(cuda());
  for (std::size_t i = 0; sparse && i < convs.size(); ++i) {
    out.blocks.push_back(
        make_ref<SparseWeights>(out.masks[i]->keep(), 16, 1, /*dense_gradient=*/false));
    out.masks[i]->execute_sparse(out.blocks.back());
  }
  return out;
}

std::unique_ptr<StepPlan> plan_of(const Masked& network) {
  std::string why;
  auto plan = StepPlan::make(*network.model, kInput, PlanMode::inference, &why);
  EXPECT_NE(plan, nullptr) << why;
  plan->prepare();
  EXPECT_EQ(plan->why_not_recordable(), "");
  return plan;
}

Tensor images() { return testing::random_tensor(kInput, 4).to(cuda()); }

Tensor logits(StepPlan& plan) { return plan.infer(images()).to(Device{}).clone(); }

int count(const std::string& text, const std::string& word) {
  int out = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++out;
  return out;
}

testing::FavouredKernel favoured_blocks() {
  return {{"conv2d", "int8_block_sparse", Direction::forward},
          {"7 groups", "4 groups", "2 groups", "1 group"}};
}

TEST_F(IntegerSparseOnCuda, BlocksGiveTheLogitsOfDenseCodes) {
  const testing::FavouredKernel blocks = favoured_blocks();
  for (const std::int64_t every : {20, 60}) {
    const auto sparse = plan_of(network(true, every)), dense = plan_of(network(false, every));
    EXPECT_EQ(count(sparse->text(), "conv2d int8_block_sparse"), 2) << sparse->text();
    EXPECT_EQ(count(dense->text(), "conv2d int8_gemm"), 2) << dense->text();
    const Tensor got = logits(*sparse), want = logits(*dense);
    EXPECT_TRUE(testing::same_bits(got, want));
    double size = 0;
    for (std::int64_t i = 0; i < want.numel(); ++i) size += std::abs(want.at(i));
    EXPECT_GT(size, 0);
  }
}

// Runs only on the emulation. On a large GPU both layers are so small that sparse and dense take
// equal times.
TEST_F(IntegerSparseOnCuda, StaysDenseAndSaysWhyWhereMuchIsKept) {
  if (!testing::is_emulated()) GTEST_SKIP() << "the emulated device alone has a known size";
  const auto plan = plan_of(network(true, 1));
  EXPECT_GE(count(plan->text(), "conv2d int8_gemm"), 1) << plan->text();
  EXPECT_EQ(count(plan->text(), "conv2d int8_gemm"),
            count(plan->text(), "dense, because at density 1.00 int8_block_sparse is estimated at"))
      << plan->text();
}

TEST_F(IntegerSparseOnCuda, ANamedAlgorithmIsAnOrder) {
  const auto plan = plan_of(network(true, 1, "int8_block_sparse,auto"));
  EXPECT_EQ(count(plan->text(), "conv2d int8_block_sparse"), 2) << plan->text();
  const auto dense = plan_of(network(false, 1));
  EXPECT_TRUE(testing::same_bits(logits(*plan), logits(*dense)));
}

// A recorded CUDA graph reads the blocks of weights and their codes from device memory. So its
// results stay right when the step sizes, and with them the codes, change.
TEST_F(IntegerSparseOnCuda, ARecordingStaysRightWhenStepsChange) {
  const DeviceBackend& backend = backend_of(cuda());
  if (backend.begin_recording == nullptr) GTEST_SKIP() << "this device records nothing";
  const Masked sparse = network(true, 20), dense = network(false, 20);
  const auto plan = plan_of(sparse);
  const Tensor x = images(), result = plan->infer(x);
  backend.begin_recording(0);
  plan->infer(x);
  void* const recording = backend.end_recording(0);
  const Tensor before = result.to(Device{}).clone();
  for (const Masked* const one : {&sparse, &dense}) {
    for (const QuantizedTensor& quantized : quantized_tensors(*one->model)) {
      const Tensor steps = quantized.quantizer->steps();
      for (std::int64_t i = 0; i < steps.numel(); ++i) steps.data<float>()[i] *= 1.25f;
      quantized.quantizer->set_steps(steps);
    }
  }
  ASSERT_TRUE(plan->is_current());
  plan->prepare();
  backend.replay(0, recording);
  const Tensor after = result.to(Device{}).clone();
  backend.free_recording(0, recording);
  EXPECT_FALSE(testing::near(after, before, 0, 1e-3));
  EXPECT_TRUE(testing::same_bits(after, logits(*plan_of(dense))));
}

// A compiled step contains the lists of the blocks that its mask keeps. After the mask has changed,
// is_current() must be false for the old step.
TEST_F(IntegerSparseOnCuda, FollowsTheMask) {
  const testing::FavouredKernel blocks = favoured_blocks();
  Masked sparse = network(true, 60), dense = network(false, 60);
  const auto old = plan_of(sparse);
  EXPECT_TRUE(old->is_current());
  sparse.prune_every(25, cuda());
  dense.prune_every(25, cuda());
  EXPECT_FALSE(old->is_current());
  const auto plan = plan_of(sparse);
  EXPECT_EQ(count(plan->text(), "conv2d int8_block_sparse"), 2) << plan->text();
  EXPECT_TRUE(testing::same_bits(logits(*plan), logits(*plan_of(dense))));
}

}  // namespace
}  // namespace convscope
