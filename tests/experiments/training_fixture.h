// SPDX-License-Identifier: Apache-2.0
// training_fixture.h: a small problem for tests of the trainer. Images have one bright column,
// whose index is the class; the network has two linear layers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "experiments/trainer/evaluation/evaluator.h"
#include "experiments/trainer/trainer.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"
#include "framework/random.h"
#include "layers/linear/linear.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {

inline constexpr int kClasses = 4;

inline Dataset bright_columns(std::int64_t count, std::uint64_t seed) {
  constexpr std::int64_t kSide = 4;
  Dataset data;
  data.name = "bright_columns";
  data.images = Tensor::empty({count, 1, kSide, kSide}, DType::u8);
  data.labels = Tensor::empty({count}, DType::i32);
  data.classes = kClasses;
  data.class_names = {"0", "1", "2", "3"};
  data.mean = {0.3};
  data.std = {0.3};
  Generator random(seed, 99);
  for (std::int64_t n = 0; n < count; ++n) {
    const auto label = static_cast<std::int32_t>(random.below(kClasses));
    data.labels.data<std::int32_t>()[n] = label;
    for (std::int64_t i = 0; i < kSide * kSide; ++i) {
      const std::uint32_t noise = random.below(60);
      data.images.data<std::uint8_t>()[n * kSide * kSide + i] =
          static_cast<std::uint8_t>(noise + (i % kSide == label ? 150 : 0));
    }
  }
  return data;
}

class TwoLinear final : public Module {
 public:
  explicit TwoLinear(std::uint64_t seed) {
    constexpr std::int64_t kHidden = 16;
    w1_ = add_parameter("f1.weight", drawn({kHidden, 16}, seed, 1));
    b1_ = add_parameter("f1.bias", Tensor::zeros({kHidden}));
    w2_ = add_parameter("f2.weight", drawn({kClasses, kHidden}, seed, 2));
    b2_ = add_parameter("f2.bias", Tensor::zeros({kClasses}));
  }
  std::string kind() const override { return "two_linear"; }
  Variable forward(const Variable& x) override {
    const Variable flat(x.value().reshape({x.dim(0), 16}));  // so it runs in each step
    if (before_forward) before_forward();
    return linear(relu(linear(flat, w1_, b1_)), w2_, b2_);
  }
  Shape output_shape(const Shape& input) const override { return {input[0], kClasses}; }
  std::function<void()> before_forward;

 private:
  static Tensor drawn(const Shape& shape, std::uint64_t seed, std::uint64_t stream) {
    Tensor out = Tensor::empty(shape);
    Generator random(seed, stream);
    for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = 0.3f * random.normal();
    return out;
  }
  Variable w1_, b1_, w2_, b2_;
};

// Returns a setup that trains by SGD with momentum on 200 images in batches of 16. An epoch has 13
// steps, the last one with 8 images.
inline TrainingSetup small_setup(std::uint64_t seed, double lr = 0.05) {
  TrainingSetup setup;
  setup.model = std::make_shared<TwoLinear>(seed);
  ParameterGroup group;
  for (const NamedParameter& parameter : setup.model->parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const OptimizerType& sgd = optimizer_types().get("sgd");
  Options options(sgd.fields);
  options.set("momentum", 0.9);
  setup.optimizer = sgd.build({group}, options);
  const LoaderOptions training{.batch_size = 16, .seed = seed, .prefetch = true};
  setup.train = std::make_unique<Loader>(bright_columns(200, 1), training);
  setup.test = std::make_unique<Loader>(bright_columns(50, 2),
                                        LoaderOptions{.batch_size = 16, .shuffle = false});
  setup.learning_rate = [lr](const SchedulePoint&) { return lr; };
  setup.epochs = 3;
  setup.log_every = 5;
  setup.config_yaml = "name: small\n";
  setup.facts.name = "small";
  return setup;
}

inline std::vector<float> weights_of(const Module& model) {
  std::vector<float> out;
  for (const NamedParameter& parameter : model.parameters()) {
    const float* values = parameter.variable.value().data<float>();
    out.insert(out.end(), values, values + parameter.variable.value().numel());
  }
  return out;
}

inline Evaluation evaluation_of(Module& model, Loader& loader, bool plans = true) {
  return Evaluator(model, loader, Device{}, plans).run();
}

}  // namespace convscope::testing
