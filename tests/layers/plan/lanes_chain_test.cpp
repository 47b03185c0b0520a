// SPDX-License-Identifier: Apache-2.0
// lanes_chain_test.cpp: tests chains of convolutions with one sample per vector lane. Loss and
// gradients agree with the dynamic graph, for any batch size, number of threads and instruction
// set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::normal;
using testing::options;

std::shared_ptr<Module> lenet5(std::int64_t kernel, const Shape& input, const char* algorithm) {
  LayerContext context;
  context.seed = 2;
  context.conv_policy = [algorithm](const std::string&) {
    return Conv2dPolicy{algorithm, algorithm, algorithm, "nchw"};
  };
  const ModelType& type = model_types().get("lenet5");
  return type.build(complete_options(type.fields, options({{"kernel_size", kernel}}), "lenet5"),
                    input, 10, context);
}

Tensor labels(std::int64_t n) {
  const Tensor out = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) out.data<std::int32_t>()[i] = static_cast<int>(i * 3 % 10);
  return out;
}

// max|a - b| / max|b|
double difference(const Tensor& a, const Tensor& b) {
  double most = 0;
  double scale = 1e-30;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    most = std::max(most, std::abs(a.at(i) - b.at(i)));
    scale = std::max(scale, std::abs(b.at(i)));
  }
  return most / scale;
}

// Gradients are sums of products over the batch and over pixels. Two orders of summing up to 64 x
// 576 terms of mixed sign differ by a few hundred eps of the largest gradient (random-walk growth,
// sqrt(36864) = 192). If a tie or a rounding error moved a maximum within a pooling window, the
// difference would be of order 1 / terms.
constexpr double kBound = 200 * 1.2e-7;

// If memory is slow, layout conversions are expensive. A chain needs no conversions between its
// layers, so it is chosen.
TEST(LanesChain, HoldsBothConvolutionsWhereMemoryIsSlow) {
  if (current_isa() < Isa::avx2) GTEST_SKIP() << "expects kernels with wide vectors";
  set_machine_peaks(
      {.flops_per_second = 177e9 * num_threads(), .bytes_per_second = 7e9 * num_threads()});
  const Shape input{64, 1, 28, 28};
  std::string why;
  const auto plan = StepPlan::make(*lenet5(5, input, "auto"), input, PlanMode::training, &why);
  set_machine_peaks({});
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("; c2 conv2d direct_batch_lanes"), std::string::npos) << plan->text();
}

void expect_same_as_dynamic(std::int64_t n, std::int64_t kernel, const Shape& image) {
  const Shape input{n, image[0], image[1], image[2]};
  const auto planned = lenet5(kernel, input, "direct_batch_lanes");
  const auto dynamic = lenet5(kernel, input, "direct");
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  ASSERT_NE(plan->text().find("c1 conv2d direct_batch_lanes + relu + max_pool2d; c2 conv2d"),
            std::string::npos)
      << plan->text();
  EXPECT_EQ(plan->conversions(), 3);  // images in, p2 out, the gradient of p2 in
  const Tensor x = normal(input, DType::f32);
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels(n));
  loss.backward();
  for (int run = 0; run < 2; ++run) {  // the second run reuses memory
    EXPECT_NEAR(plan->forward(x, labels(n)), loss.value().item(), 1e-5);
    plan->backward();
    const auto a = planned->parameters();
    const auto b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_LE(difference(a[i].variable.grad(), b[i].variable.grad()), kBound)
          << a[i].name << " batch " << n << " kernel " << kernel;
    }
  }
}

TEST(LanesChain, gives_the_gradients_of_the_dynamic_graph_for_any_batch) {
  for (const std::int64_t n : {1, 3, 4, 5, 8, 16, 17, 64}) {
    expect_same_as_dynamic(n, 5, {1, 28, 28});
  }
}

TEST(LanesChain, does_so_for_every_kernel_size_and_instruction_set) {
  const testing::MachineScope scope;
  for (int i = 0; i < kIsaCount; ++i) {
    const Isa isa = static_cast<Isa>(i);
    if (!supports_isa(isa)) continue;
    SCOPED_TRACE(std::string(name_of(isa)));
    set_isa(isa);
    for (const std::int64_t kernel : {3, 5, 7}) expect_same_as_dynamic(20, kernel, {3, 32, 32});
  }
}

TEST(LanesChain, gives_the_same_bits_with_any_number_of_threads) {
  const Shape input{70, 1, 28, 28};
  const Tensor x = normal(input, DType::f32);
  const int before = num_threads();
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const auto model = lenet5(5, input, "direct_batch_lanes");
    const auto plan = StepPlan::make(*model, input, PlanMode::training, nullptr);
    plan->forward(x, labels(70));
    plan->backward();
    const auto parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& gradient = parameters[i].variable.grad();
      if (threads == 1) {
        first.push_back(gradient);
      } else {
        EXPECT_EQ(std::memcmp(first[i].raw_data(), gradient.raw_data(),
                              static_cast<std::size_t>(gradient.size_bytes())),
                  0)
            << parameters[i].name << " with " << threads << " threads";
      }
    }
  }
  set_num_threads(before);
}

TEST(LanesChain, stands_in_the_middle_of_a_network_and_passes_gradients_on) {
  LayerContext context;
  context.seed = 8;
  const Shape input{6, 2, 12, 12};
  const auto make = [&](const char* algorithm) {
    LayerContext fresh = context;
    const std::string word = algorithm;
    const auto conv = [&](const char* name, std::int64_t k, const std::string& choice) {
      return LayerSpec{"conv2d", name,
                       options({{"out_channels", k},
                                {"kernel_size", std::vector<std::int64_t>{3}},
                                {"padding", std::vector<std::int64_t>{1}},
                                {"algorithm", choice}})};
    };
    return build_layers({conv("c0", 5, "direct"),
                         {"tanh", "t0", {}},
                         conv("c1", 6, word),
                         {"relu", "r1", {}},
                         conv("c2", 4, word),
                         {"flatten", "flat", {}},
                         {"linear", "f", options({{"out_features", std::int64_t{10}}})}},
                        input, fresh);
  };
  const auto planned = make("direct_batch_lanes");
  const auto dynamic = make("direct");
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  const Tensor x = normal(input, DType::f32);
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels(6));
  loss.backward();
  EXPECT_NEAR(plan->forward(x, labels(6)), loss.value().item(), 1e-5);
  plan->backward();
  for (std::size_t i = 0; i < planned->parameters().size(); ++i) {
    EXPECT_LE(difference(planned->parameters()[i].variable.grad(),
                         dynamic->parameters()[i].variable.grad()),
              kBound)
        << planned->parameters()[i].name;
  }
}

TEST(LanesChain, is_used_for_inference_too) {
  const Shape input{10, 1, 28, 28};
  const auto model = lenet5(5, input, "direct_batch_lanes");
  model->eval();
  const auto plan = StepPlan::make(*model, input, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("in the layout"), std::string::npos);
  const Tensor x = normal(input, DType::f32);
  const NoGrad no_grad;
  EXPECT_LE(difference(plan->infer(x), model->forward(Variable(x)).value()), kBound);
}

TEST(LanesChain, leaves_wide_layers_and_named_algorithms_alone) {
  const auto named = lenet5(5, {8, 1, 28, 28}, "im2col_gemm");
  const auto plan = StepPlan::make(*named, {8, 1, 28, 28}, PlanMode::training, nullptr);
  EXPECT_EQ(plan->text().find("in the layout"), std::string::npos) << plan->text();
}

// A policy may be a list of algorithms. The algorithm that is selected from the list decides
// whether the layer joins the chain. Winograd refuses 5x5 kernels, so here it is the next one in
// the list.
TEST(LanesChain, follows_the_chosen_algorithm_of_a_list) {
  const Shape input{8, 1, 28, 28};
  const auto is_chain = [&](const char* policy, PlanMode mode) {
    const auto model = lenet5(5, input, policy);
    std::string why;
    const auto plan = StepPlan::make(*model, input, mode, &why);
    EXPECT_NE(plan, nullptr) << why;
    return plan != nullptr && plan->text().find("in the layout") != std::string::npos;
  };
  for (const PlanMode mode : {PlanMode::training, PlanMode::inference}) {
    EXPECT_TRUE(is_chain("winograd_f4x3,direct_batch_lanes", mode));
    EXPECT_FALSE(is_chain("winograd_f4x3,im2col_gemm", mode));
    EXPECT_FALSE(is_chain("im2col_gemm,direct_batch_lanes", mode));
    EXPECT_EQ(is_chain("winograd_f4x3,auto", mode), is_chain("auto", mode));
  }
}

}  // namespace
}  // namespace convscope
