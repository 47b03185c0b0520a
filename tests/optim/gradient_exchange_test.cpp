// SPDX-License-Identifier: Apache-2.0
// gradient_exchange_test.cpp: gradients sent in buckets: their order, and sums over chunks.
#include "optim/gradient_exchange.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "framework/autograd/leaf_watch.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"

namespace convscope {
namespace {

Tensor filled(const Shape& shape, double value) { return Tensor::full(shape, value, DType::f32); }

// A reducer that records the requested sums. It multiplies each tensor by the number of processes,
// as if all processes had the same gradients.
class NotingReducer final : public Reducer {
 public:
  NotingReducer(std::vector<std::int64_t>& sizes, float factor) : sizes_(sizes), factor_(factor) {}
  void sum(const Tensor& data, float weight) override {
    sizes_.push_back(data.numel());
    for (std::int64_t i = 0; i < data.numel(); ++i) data.data<float>()[i] *= weight * factor_;
  }
  void join() override {}
  std::string text() const override { return "a test"; }

 private:
  std::vector<std::int64_t>& sizes_;
  float factor_;
};

struct Network {
  std::vector<OptimParameter> parameters;
  Tensor average = filled({3}, 1);

  explicit Network(const std::vector<std::int64_t>& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      parameters.push_back({cat("p", i), Variable(filled({sizes[i]}, 0), true)});
    }
  }
  // Assigns a gradient as a backward pass does.
  void assign(std::size_t i, float value) {
    Variable::State& state = *parameters[i].variable.state();
    for (std::int64_t k = 0; k < state.grad.numel(); ++k) state.grad.data<float>()[k] = value;
    state.grad_is_zero = false;
  }
  float gradient(std::size_t i) { return parameters[i].variable.grad().data<float>()[0]; }
};

TEST(GradientBuckets, GoFromTheLastParameterToTheFirst) {
  const Network net({1000, 10, 1000, 10});
  const auto buckets = gradient_buckets(net.parameters, 4000);
  // A bucket reserves a multiple of 16 elements for each gradient. So p3 and p2 together fill a
  // bucket of 4000 bytes.
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0], (std::vector<std::size_t>{3, 2}));
  EXPECT_EQ(buckets[1], (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(gradient_buckets(net.parameters, 1 << 20).size(), 1u);
  EXPECT_EQ(gradient_buckets(net.parameters, 1).size(), 4u);
}

TEST(GradientExchange, BucketsTravelInTheirOrderWhenTheyAreComplete) {
  Network net({100, 200, 300});
  std::vector<std::int64_t> sizes;
  GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), net.parameters,
                            {net.average}, {.bucket_bytes = 1});
  exchange.begin_step();
  exchange.begin_backward(0.5f);
  ASSERT_EQ(sizes, (std::vector<std::int64_t>{3}));  // the averages
  net.assign(0, 1);
  exchange.ready(net.parameters[0].variable);
  EXPECT_EQ(sizes.size(), 1u) << "the first parameter travels last, in all processes";
  net.assign(2, 3);
  exchange.ready(net.parameters[2].variable);
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 304}));
  net.assign(1, 2);
  exchange.ready(net.parameters[1].variable);
  exchange.end_backward();
  exchange.finish();
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{3, 304, 208, 112}));
  EXPECT_EQ(net.gradient(0), 0.5f);
  EXPECT_EQ(net.gradient(1), 1.0f);
  EXPECT_EQ(net.gradient(2), 1.5f);
  EXPECT_EQ(net.average.data<float>()[0], 0.5f);
}

TEST(GradientExchange, AGradientThatLiesElsewhereIsTakenOver) {
  Network net({4});
  std::vector<std::int64_t> sizes;
  GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), net.parameters, {}, {});
  const void* const place = net.parameters[0].variable.grad().raw_data();
  exchange.begin_step();
  exchange.begin_backward(1);
  net.parameters[0].variable.state()->grad = filled({4}, 7);  // as a dynamic graph may do
  net.parameters[0].variable.state()->grad_is_zero = false;
  exchange.ready(net.parameters[0].variable);
  exchange.end_backward();
  exchange.finish();
  EXPECT_EQ(net.gradient(0), 7);
  EXPECT_EQ(net.parameters[0].variable.grad().raw_data(), place);
}

TEST(GradientExchange, NoGradientStaysNone) {
  Network net({4, 4});
  std::vector<std::int64_t> sizes;
  GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), net.parameters, {}, {});
  exchange.begin_step();
  exchange.begin_backward(1);
  net.assign(0, 1);
  exchange.ready(net.parameters[0].variable);
  exchange.end_backward();
  exchange.finish();
  EXPECT_FALSE(net.parameters[0].variable.state()->grad_is_zero);
  EXPECT_TRUE(net.parameters[1].variable.state()->grad_is_zero);
  // A process that has no images in a step must get the gradients of the other processes.
  exchange.begin_step();
  exchange.no_images();
  exchange.finish();
  EXPECT_FALSE(net.parameters[0].variable.state()->grad_is_zero);
  EXPECT_TRUE(net.parameters[1].variable.state()->grad_is_zero);
  EXPECT_EQ(net.gradient(0), 0);
}

// The terms have such magnitudes that each summation order gives different bits.
TEST(GradientExchange, ChunksAreAddedAsATree) {
  const std::vector<float> terms = {1.0f, 3e7f, -2.7e7f, 0.1f, 5.5f, -3e6f, 1e-3f, 77.7f};
  Network net({4});
  std::vector<std::int64_t> sizes;
  GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), net.parameters,
                            {net.average}, {.order = SumOrder::tree, .chunks = 8});
  exchange.begin_step();
  for (const float term : terms) {
    EXPECT_EQ(net.average.data<float>()[0], 1.0f) << "each chunk begins with those of the step";
    net.average.data<float>()[0] = term;
    net.parameters[0].variable.zero_grad();
    exchange.begin_backward(0.125f);
    net.assign(0, term);
    exchange.ready(net.parameters[0].variable);
    exchange.end_backward();
  }
  exchange.finish();
  std::vector<float> sums;
  for (const float term : terms) sums.push_back(term * 0.125f);
  float in_order = 0;
  for (const float term : sums) in_order += term;
  while (sums.size() > 1) {
    std::vector<float> pairs;
    for (std::size_t i = 0; i < sums.size(); i += 2) pairs.push_back(sums[i] + sums[i + 1]);
    sums = pairs;
  }
  ASSERT_NE(sums[0], in_order) << "these terms show nothing";
  EXPECT_EQ(net.gradient(0), sums[0]);
  EXPECT_EQ(net.average.data<float>()[0], sums[0]);
  EXPECT_EQ(sizes.size(), 2u) << "one sum travels for the averages, one for the bucket";
}

// Three micro-batches of 1, 2 and 1 images.
TEST(GradientExchange, ChunksInAnyOrderAreAddedInSequence) {
  const std::vector<float> terms = {15.0f, 3e7f, -2.7e7f};
  const std::vector<float> weights = {0.25f, 0.5f, 0.25f};
  Network net({4});
  std::vector<std::int64_t> sizes;
  GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), net.parameters,
                            {net.average}, {.chunks = 3});
  for (int step = 0; step < 2; ++step) {
    sizes.clear();
    exchange.begin_step();
    float sum = 0;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      net.average.data<float>()[0] = terms[i];
      net.parameters[0].variable.zero_grad();
      exchange.begin_backward(weights[i]);
      net.assign(0, terms[i]);
      exchange.ready(net.parameters[0].variable);
      exchange.end_backward();
      sum += weights[i] * terms[i];
    }
    exchange.finish();
    EXPECT_EQ(net.gradient(0), sum);
    EXPECT_EQ(net.average.data<float>()[0], sum);
    EXPECT_EQ(sizes.size(), 2u) << "one sum travels for the averages, one for the bucket";
  }
}

TEST(GradientExchange, RefusesWhatItCannotSum) {
  std::vector<std::int64_t> sizes;
  const auto make = [&](std::vector<OptimParameter> parameters, int chunks) {
    GradientExchange exchange(std::make_unique<NotingReducer>(sizes, 1.0f), std::move(parameters),
                              {}, {.order = SumOrder::tree, .chunks = chunks});
  };
  EXPECT_THROW(make({}, 1), Error);
  EXPECT_THROW(make(Network({4}).parameters, 3), Error);
  EXPECT_THROW(make({{"d", Variable(Tensor::zeros({4}, DType::f64), true)}}, 1), Error);
}

TEST(LeafWatch, TellsOfALeafWhenItsLastUseHasRun) {
  Variable a(filled({2}, 2), true), b(filled({2}, 3), true), c(filled({2}, 5), true);
  // a is used twice: first and last in the forward pass.
  const Variable y = sum(mul(add(mul(a, b), c), a));
  std::vector<const Variable::State*> told;
  std::vector<float> seen;
  {
    const LeafWatch watch([&](const Variable& leaf) {
      told.push_back(leaf.state());
      seen.push_back(leaf.grad().data<float>()[0]);
    });
    y.backward();
  }
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(told[0], c.state());
  EXPECT_EQ(seen[0], 2.0f);                             // dc = a
  EXPECT_EQ(a.grad().data<float>()[0], 3.0f * 2 + 11);  // b a + (a b + c)
  for (std::size_t i = 0; i < 3; ++i) {
    if (told[i] != a.state()) continue;
    EXPECT_EQ(seen[i], 17.0f) << "told before its gradient was complete";
  }
}

}  // namespace
}  // namespace convscope
