// SPDX-License-Identifier: Apache-2.0
// integer_sparse_test.cpp: tests integer graphs that compute only from the unpruned blocks of
// weights. Their logits have the same bits as dense integer graphs.
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/conv2d.h"
#include "layers/linear/linear.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "sparsity/mask.h"
#include "tests/sparsity/networks.h"

namespace convscope {
namespace {

const Shape kInput{3, 48, 12, 12};

struct Masked {
  std::shared_ptr<Module> model;
  std::vector<std::shared_ptr<Mask>> masks;
};

// Returns a quantised and calibrated network: convolution c1 with 48 -> 64 channels, convolution c2
// with 64 -> 32, linear layer f3 with 64 outputs, then 5 classes. The masks of all layers except
// the last keep one of `every` blocks of 16 rows. With `sparse`, the network computes only from
// kept 16x1 blocks.
Masked network(bool sparse, std::int64_t every, const std::string& policy = "auto") {
  LayerContext context;
  context.seed = 7;
  context.conv_policy = [&](const std::string&) { return Conv2dPolicy{.forward = policy}; };
  Masked out;
  out.model = build_layers({testing::layer("conv2d", "c1", 64), testing::layer("relu", "r1"),
                            testing::layer("conv2d", "c2", 32), testing::layer("relu", "r2"),
                            testing::layer("flatten", "flat"), testing::layer("linear", "f3", 64),
                            testing::layer("relu", "r3"), testing::layer("linear", "f", 5)},
                           kInput, context);
  for (const NamedModule& part : out.model->modules()) {
    auto* const conv = dynamic_cast<Conv2d*>(part.module);
    auto* const linear = dynamic_cast<Linear*>(part.module);
    if ((conv == nullptr && linear == nullptr) || part.name == "f") continue;
    const auto mask = std::make_shared<Mask>(part.module->weight().value());
    const Tensor keep = Tensor::zeros(mask->keep().shape());
    const std::int64_t columns = keep.numel() / keep.dim(0);
    for (std::int64_t i = 0; i < keep.numel(); ++i) {
      const std::int64_t block = i / columns / 16 * columns + i % columns;
      keep.data<float>()[i] = block * 7 % every == 0 ? 1.0f : 0.0f;
    }
    mask->set_keep(keep);
    out.masks.push_back(mask);
    part.module->add_weight_transform("mask", mask, /*first=*/true);
    if (!sparse) continue;
    mask->execute_sparse(make_ref<SparseWeights>(mask->keep(), 16, 1, /*dense_gradient=*/false));
  }
  QuantConfig quant;
  quant.w_bits = quant.a_bits = 8;
  quant.per_channel = true;
  quant.execute = QuantExecute::int8_always;
  apply_quantization(*out.model, quant, {});
  out.model->train();
  const NoGrad no_grad;
  for (int i = 0; i < 3; ++i) out.model->forward(Variable(testing::random_tensor(kInput, 3)));
  out.model->eval();
  return out;
}

struct Result {
  Tensor logits;
  std::string text;
};

Result infer(const Masked& network) {
  std::string why;
  const auto plan = StepPlan::make(*network.model, kInput, PlanMode::inference, &why);
  EXPECT_NE(plan, nullptr) << why;
  plan->prepare();
  return {plan->infer(testing::random_tensor(kInput, 4)).clone(), plan->text()};
}

int count(const std::string& text, const std::string& word) {
  int out = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++out;
  return out;
}

TEST(IntegerSparse, BlocksGiveTheLogitsOfDenseCodes) {
  for (const std::int64_t every : {10, 30}) {
    // The policy forces block-sparse convolutions. For the linear layer the cost estimate decides.
    // With AVX-512 a vector holds a whole block, so the estimate selects the block-sparse kernel.
    const Result sparse = infer(network(true, every, "int8_block_sparse,auto"));
    const Result dense = infer(network(false, every));
    EXPECT_EQ(count(sparse.text, "conv2d int8_block_sparse"), 2) << sparse.text;
    if (current_isa() == Isa::avx512) {
      EXPECT_EQ(count(sparse.text, "linear int8_block_sparse"), 1) << sparse.text;
      EXPECT_EQ(count(infer(network(true, every)).text, "conv2d int8_block_sparse"), 2);
    }
    EXPECT_EQ(count(dense.text, "int8_block_sparse"), 0) << dense.text;
    double size = 0;
    for (std::int64_t i = 0; i < dense.logits.numel(); ++i) {
      ASSERT_EQ(sparse.logits.at(i), dense.logits.at(i)) << i;
      size += std::abs(dense.logits.at(i));
    }
    EXPECT_GT(size, 0);
  }
}

TEST(IntegerSparse, StaysDenseAndSaysWhyWhereMuchIsKept) {
  const Result result = infer(network(true, 1));
  EXPECT_EQ(count(result.text, "conv2d int8_block_sparse"), 0) << result.text;
  // The linear layer of three images is near the limit: its estimates depend on the processor.
  EXPECT_GE(count(result.text, "dense, because at density 1.00 int8_block_sparse is estimated at"),
            2)
      << result.text;
}

TEST(IntegerSparse, ANamedAlgorithmIsAnOrder) {
  EXPECT_EQ(
      count(infer(network(true, 1, "int8_block_sparse,auto")).text, "conv2d int8_block_sparse"), 2);
  const Result direct = infer(network(true, 30, "int8_direct,auto"));
  EXPECT_EQ(count(direct.text, "conv2d int8_block_sparse"), 0) << direct.text;
  EXPECT_EQ(count(direct.text, "dense, because the config says so"), 2) << direct.text;
}

// A compiled step contains the list of the blocks that its mask keeps. After the mask has changed,
// is_current() must be false for the old step.
TEST(IntegerSparse, OfAnOldMaskIsNotCurrent) {
  const Masked masked = network(true, 30);
  const auto plan = StepPlan::make(*masked.model, kInput, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_TRUE(plan->is_current());
  masked.masks[0]->set_keep(Tensor::full(masked.masks[0]->keep().shape(), 1.0));
  EXPECT_FALSE(plan->is_current());
}

}  // namespace
}  // namespace convscope
