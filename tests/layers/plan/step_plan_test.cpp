// SPDX-License-Identifier: Apache-2.0
// step_plan_test.cpp: tests, for every kind of layer, that a compiled step has the same bits as the
// dynamic graph, or reports why the network cannot be compiled.
#include "layers/plan/step_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/parallel.h"
#include "framework/random.h"
#include "framework/simd/cpu_isa.h"
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/sequential.h"
#include "layers/training_rule.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

LayerSpec layer(const char* type, const char* name, Options options = {}) {
  return {.type = type, .name = name, .options = std::move(options)};
}

Options options(std::initializer_list<std::pair<const char*, OptionValue>> pairs) {
  Options out;
  for (const auto& [name, value] : pairs) out.set(name, value);
  return out;
}

using Ints = std::vector<std::int64_t>;

LayerSpec conv(const char* name, std::int64_t k, std::int64_t r,
               std::initializer_list<std::pair<const char*, OptionValue>> more = {}) {
  Options o = options(more);
  o.set("out_channels", k);
  o.set("kernel_size", Ints{r});
  return layer("conv2d", name, o);
}

LayerSpec linear(const char* name, std::int64_t out) {
  return layer("linear", name, options({{"out_features", out}}));
}

// Compiled and dynamic steps use the same algorithm, because `auto` might choose two algorithms
// with different summation orders.
Conv2dPolicy direct(const std::string&) { return {"direct", "direct", "direct", "nchw"}; }

// A network twice, with the same weights.
std::shared_ptr<Module> network(const std::vector<LayerSpec>& specs, const Shape& input) {
  LayerContext context;
  context.seed = 5;
  context.conv_policy = direct;
  return build_layers(specs, input, context);
}

Tensor images(const Shape& shape, std::uint64_t stream) {
  const Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double u =
        std::sin(static_cast<double>(i * 12 + 7) * 0.317 + static_cast<double>(stream));
    x.data<float>()[i] = static_cast<float>(u * 1.7);
  }
  return x;
}

Tensor labels(std::int64_t n, std::int64_t classes) {
  const Tensor out = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) {
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>((i * 7 + 1) % classes);
  }
  return out;
}

void expect_same_bits(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.size_bytes())), 0)
      << what;
}

// Runs two training steps with different images, compiled and dynamic. Loss, gradients and running
// statistics must be equal.
void expect_same_steps(const std::vector<LayerSpec>& specs, const Shape& input) {
  const auto planned = network(specs, input);
  const auto dynamic = network(specs, input);
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  for (std::uint64_t step = 0; step < 2; ++step) {
    const Tensor x = images(input, step);
    planned->set_step(static_cast<std::int64_t>(step));
    dynamic->set_step(static_cast<std::int64_t>(step));
    planned->zero_grad();
    dynamic->zero_grad();
    const Variable logits = dynamic->forward(Variable(x));
    const Tensor y = labels(input[0], logits.dim(1));
    const Variable loss = softmax_cross_entropy(logits, y);
    const std::int64_t correct = count_correct(logits.value(), y);
    loss.backward();
    EXPECT_EQ(plan->forward(x, y), loss.value().item());
    EXPECT_EQ(plan->correct(), correct);
    plan->backward();
    const auto a = planned->parameters();
    const auto b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_same_bits(a[i].variable.grad(), b[i].variable.grad(), a[i].name);
    }
    const auto c = planned->buffers();
    const auto d = dynamic->buffers();
    for (std::size_t i = 0; i < c.size(); ++i)
      expect_same_bits(c[i].tensor, d[i].tensor, c[i].name);
  }
}

const Shape kImages{6, 20, 12, 12};  // too many channels for samples in the lanes

std::vector<LayerSpec> ending(std::vector<LayerSpec> specs) {
  specs.push_back(layer("flatten", "flat"));
  specs.push_back(linear("f", 7));
  return specs;
}

TEST(StepPlan, conv_relu_pool_and_linear_layers_give_the_bits_of_the_dynamic_graph) {
  expect_same_steps({conv("c1", 24, 3, {{"padding", Ints{1}}}), layer("relu", "r1"),
                     layer("max_pool2d", "p1", options({{"kernel_size", Ints{2}}})),
                     conv("c2", 32, 3), layer("relu", "r2"), layer("flatten", "flat"),
                     linear("f1", 20), layer("relu", "r3"), linear("f2", 10)},
                    kImages);
}

// A batch norm over a single value cannot be trained. Compiling a training step fails with the same
// message as forward(), while an inference can be compiled.
TEST(StepPlan, batch_norm_of_one_value_is_refused_by_every_path) {
  const Shape one{1, 20, 3, 3};
  const auto net = network(ending({conv("c1", 24, 3), layer("batch_norm2d", "b1")}), one);
  std::string why;
  EXPECT_EQ(StepPlan::make(*net, one, PlanMode::training, &why), nullptr);
  EXPECT_NE(why.find("expected more than one value for each channel while training"),
            std::string::npos)
      << why;
  EXPECT_NE(why.find("got x [1,24,1,1]"), std::string::npos) << why;
  EXPECT_ERROR(ErrorKind::kInvalid, why.substr(why.find("expected")),
               (void)net->forward(Variable(images(one, 0))));
  const TrainingRefusal refusal = training_refusal(*net, one);
  EXPECT_EQ(refusal.kind, "batch_norm2d");
  EXPECT_EQ(refusal.layer, "b1");
  EXPECT_EQ(refusal.why, why.substr(why.find("expected")));
  EXPECT_EQ(training_refusal(*net, {2, 20, 3, 3}).why, "");
  const Shape two{1, 20, 4, 3};
  const auto wider = network(ending({conv("c1", 24, 3), layer("batch_norm2d", "b1")}), two);
  EXPECT_EQ(training_refusal(*wider, two).why, "");
  net->eval();
  EXPECT_NE(StepPlan::make(*net, one, PlanMode::inference, &why), nullptr) << why;
}

TEST(StepPlan, every_other_layer_does_too) {
  expect_same_steps(ending({conv("c1", 24, 3, {{"stride", Ints{2}}, {"bias", false}}),
                            layer("batch_norm2d", "b1"), layer("tanh", "t1")}),
                    kImages);
  expect_same_steps(ending({conv("c1", 20, 3, {{"groups", std::int64_t{20}}, {"padding", Ints{1}}}),
                            layer("batch_norm2d", "b1"), layer("relu", "r1"),
                            layer("dropout", "d1", options({{"p", 0.4}})),
                            layer("avg_pool2d", "a1", options({{"kernel_size", Ints{2}}}))}),
                    kImages);
  expect_same_steps(
      ending(
          {conv("c1", 24, 3, {{"padding", Ints{1, 2}}, {"padding_mode", std::string("reflect")}}),
           layer("sigmoid", "s1"),
           layer("adaptive_avg_pool2d", "a1", options({{"output_size", Ints{3, 3}}}))}),
      kImages);
}

TEST(StepPlan, a_batch_of_one_and_odd_batches_are_planned) {
  for (const std::int64_t n : {1, 3, 17}) {
    expect_same_steps(ending({conv("c1", 18, 3), layer("relu", "r1")}), {n, 20, 7, 7});
  }
}

TEST(StepPlan, gives_the_same_bits_with_any_number_of_threads) {
  const int before = num_threads();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    expect_same_steps(ending({conv("c1", 24, 3), layer("batch_norm2d", "b"), layer("relu", "r1")}),
                      kImages);
  }
  set_num_threads(before);
}

TEST(StepPlan, frozen_parameters_get_no_gradient) {
  const auto model = network(ending({conv("c1", 24, 3), layer("relu", "r1")}), kImages);
  for (NamedParameter& p : model->parameters()) {
    if (p.name.rfind("c1", 0) == 0) p.variable.set_requires_grad(false);
  }
  const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  plan->forward(images(kImages, 0), labels(6, 7));
  plan->backward();
  for (const NamedParameter& p : model->parameters()) {
    EXPECT_EQ(p.variable.grad().defined(), p.name.rfind("c1", 0) != 0) << p.name;
  }
}

// x + conv(x) is built as a residual block. The gradients of its two branches are added.
class Block final : public Module {
 public:
  explicit Block(std::shared_ptr<Module> body) : body_(add_child("body", std::move(body))) {}
  std::string kind() const override { return "block"; }
  Variable forward(const Variable& x) override { return body_->forward(x) + x; }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Module> body_;
};

std::shared_ptr<Module> residual_network(std::uint64_t seed) {
  LayerContext context;
  context.seed = seed;
  context.conv_policy = direct;
  auto net = std::make_shared<Sequential>();
  const Shape& in = kImages;
  net->add("stem", build_layers({conv("c0", 20, 3, {{"padding", Ints{1}}})}, in, context));
  net->add("block", std::make_shared<Block>(build_layers(
                        {conv("c1", 20, 3, {{"padding", Ints{1}}}), layer("batch_norm2d", "b1"),
                         layer("relu", "r"), conv("c2", 20, 3, {{"padding", Ints{1}}}),
                         layer("batch_norm2d", "b2")},
                        in, context)));
  net->add("rest", build_layers({layer("relu", "r"), layer("flatten", "flat"), linear("f", 7)}, in,
                                context));
  return net;
}

TEST(StepPlan, a_residual_block_gives_the_bits_of_the_dynamic_graph) {
  const auto planned = residual_network(3);
  const auto dynamic = residual_network(3);
  const auto plan = StepPlan::make(*planned, kImages, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("batch_norm2d + residual + relu"), std::string::npos) << plan->text();
  const Tensor x = images(kImages, 1);
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels(6, 7));
  loss.backward();
  EXPECT_EQ(plan->forward(x, labels(6, 7)), loss.value().item());
  plan->backward();
  for (std::size_t i = 0; i < planned->parameters().size(); ++i) {
    const NamedParameter a = planned->parameters()[i];
    // If a gradient has several terms, the dynamic graph may add them in another order.
    const Tensor& b = dynamic->parameters()[i].variable.grad();
    for (std::int64_t j = 0; j < b.numel(); ++j) {
      ASSERT_NEAR(a.variable.grad().at(j), b.at(j), 1e-6 + 1e-5 * std::abs(b.at(j))) << a.name;
    }
  }
}

// Folding multiplies the weights by the factor of the batch norm, so each product has one more
// rounding.
TEST(StepPlan, inference_folds_batch_norm_residual_and_relu_into_the_convolution) {
  const auto model = residual_network(4);
  for (int i = 0; i < 3; ++i)
    model->forward(Variable(images(kImages, 20 + i)));  // changes the statistics
  model->eval();
  const auto plan = StepPlan::make(*model, kImages, PlanMode::inference, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("+ batch_norm2d + residual + relu"), std::string::npos)
      << plan->text();
  const Tensor x = images(kImages, 9);
  const NoGrad no_grad;
  const Tensor expected = model->forward(Variable(x)).value();
  plan->prepare();
  const Tensor y = plan->infer(x);
  double largest = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    largest = std::max(largest, std::abs(expected.at(i)));
  }
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    EXPECT_NEAR(y.at(i), expected.at(i), 64 * 1.2e-7 * largest * 4);
  }
  // With other weights prepare() folds again.
  model->parameters().front().variable.value().fill(0.01);
  const Tensor other = model->forward(Variable(x)).value();
  plan->prepare();
  const Tensor again = plan->infer(x);
  for (std::int64_t i = 0; i < again.numel(); ++i) {
    EXPECT_NEAR(again.at(i), other.at(i), 64 * 1.2e-7 * (std::abs(other.at(i)) + largest) * 4);
  }
}

// A third-party layer that reads the numbers of its input.
class Scale final : public Module {
 public:
  Scale() { factor_ = add_parameter("factor", Tensor::full({1}, 1.5)); }
  std::string kind() const override { return "scale"; }
  Variable forward(const Variable& x) override {
    return std::isnan(x.value().at(0)) ? x : x * factor_;
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  Variable factor_;
};

TEST(StepPlan, a_layer_that_reads_numbers_runs_as_a_dynamic_graph_inside_the_plan) {
  const auto make = [] {
    LayerContext context;
    context.seed = 3;
    context.conv_policy = direct;
    auto net = std::make_shared<Sequential>();
    net->add("stem", build_layers({conv("c0", 20, 3, {{"padding", Ints{1}}}), layer("relu", "r")},
                                  kImages, context));
    net->add("scale", std::make_shared<Scale>());
    net->add("rest", build_layers(ending({}), kImages, context));
    return net;
  };
  const auto planned = make();
  const auto dynamic = make();
  const auto plan = StepPlan::make(*planned, kImages, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan->text().find("scale as a dynamic graph"), std::string::npos) << plan->text();
  EXPECT_NE(plan->text().find("conv2d direct + relu"), std::string::npos) << plan->text();
  EXPECT_EQ(plan->why_not_recordable(), "'scale' runs as scale as a dynamic graph");
  for (std::uint64_t step = 0; step < 2; ++step) {
    dynamic->zero_grad();
    const Tensor x = images(kImages, step);
    const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels(6, 7));
    loss.backward();
    EXPECT_EQ(plan->forward(x, labels(6, 7)), loss.value().item());
    plan->backward();
    EXPECT_TRUE(plan->is_current());
    const auto a = planned->parameters();
    const auto b = dynamic->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      expect_same_bits(a[i].variable.grad(), b[i].variable.grad(), a[i].name);
    }
  }
}

TEST(StepPlan, an_algorithm_that_is_checked_costs_its_own_layer_only) {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [](const std::string& name) {
    const std::string word = name == "c1" ? "check:direct,reference" : "direct";
    return Conv2dPolicy{word, word, word, "nchw"};
  };
  const auto model = build_layers(
      ending({conv("c1", 20, 3), layer("relu", "r1"), conv("c2", 24, 3)}), kImages, context);
  const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  ASSERT_NE(plan, nullptr);
  for (const RanKernel& ran : plan->kernels()) {
    EXPECT_EQ(ran.dynamic, ran.layer == "c1") << ran.layer;
    if (ran.layer == "c2") {
      EXPECT_EQ(ran.kernel, "direct");
    }
  }
}

// The first layer needs no gradient of the images, so an algorithm that cannot compute dx may be
// chosen.
TEST(StepPlan, selects_for_the_directions_that_run) {
  LayerContext context;
  context.seed = 3;
  std::string refusing = "c1";
  context.conv_policy = [&](const std::string& name) {
    return Conv2dPolicy{.forward = "direct",
                        .backward_data = name == refusing ? "gemm_1x1" : "direct",
                        .backward_weight = "direct"};
  };
  const auto plan_of = [&] {
    const auto model = build_layers(
        ending({conv("c1", 20, 3), layer("relu", "r1"), conv("c2", 24, 3)}), kImages, context);
    return StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  };
  const auto plan = plan_of();
  ASSERT_NE(plan, nullptr);
  for (const RanKernel& ran : plan->kernels()) {
    if (ran.layer == "c1" || ran.layer == "c2") {
      EXPECT_EQ(ran.kernel, "direct");
    }
  }
  refusing = "c2";
  EXPECT_ERROR(ErrorKind::kUnavailable, "[conv2d] layer c2: expected an algorithm that can compute",
               plan_of());
}

TEST(StepPlan, notices_weights_that_moved_other_threads_and_another_instruction_set) {
  const auto model = network(ending({conv("c1", 24, 3)}), kImages);
  const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  EXPECT_TRUE(plan->is_current());
  const Isa before = current_isa();
  set_isa(Isa::scalar);
  EXPECT_EQ(plan->is_current(), before == Isa::scalar);
  set_isa(before);
  const int threads = num_threads();
  set_num_threads(threads + 1);  // workspaces have a slice for each thread
  EXPECT_FALSE(plan->is_current());
  set_num_threads(threads);
  EXPECT_TRUE(plan->is_current());
  NamedParameter weight = model->parameters().front();
  weight.variable.set_value(weight.variable.value().clone());
  EXPECT_FALSE(plan->is_current());
}

TEST(StepPlan, refuses_images_and_labels_that_it_was_not_made_for) {
  const auto model = network(ending({conv("c1", 24, 3)}), kImages);
  const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  EXPECT_THROW(plan->forward(images({5, 20, 12, 12}, 0), labels(5, 7)), Error);
  EXPECT_THROW(plan->forward(images(kImages, 0), labels(5, 7)), Error);
  EXPECT_THROW(plan->forward(images(kImages, 0), labels(6, 9)), Error);  // a label of 8
}

TEST(StepPlan, memory_is_one_block_close_to_the_least_that_is_possible) {
  const auto model = residual_network(1);
  const auto plan = StepPlan::make(*model, kImages, PlanMode::training, nullptr);
  const PlanMemory& memory = plan->memory();
  EXPECT_GE(memory.arena_bytes, memory.lower_bound_bytes);
  EXPECT_LE(memory.arena_bytes, memory.lower_bound_bytes * 5 / 4);
  EXPECT_GT(memory.kept_bytes, 0);
  EXPECT_LT(memory.kept_bytes, memory.arena_bytes);
  // A plan for fewer images takes the same block.
  const auto small =
      StepPlan::make(*model, {2, 20, 12, 12}, PlanMode::training, nullptr, plan->arena());
  EXPECT_EQ(small->arena().get(), plan->arena().get());
}

}  // namespace
}  // namespace convscope
