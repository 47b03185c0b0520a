// SPDX-License-Identifier: Apache-2.0
// recorded_logits_test.cpp: compares logits of whole models with those of PyTorch for the same
// weights. experiments/baselines/recorded_logits.py prints the table (PyTorch 2.15, torchvision
// 0.29.2, float64).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/layers/layer_cases.h"

namespace convscope {
namespace {

struct Recorded {
  const char* model;
  std::int64_t size;  // of the images
  int classes;
  std::vector<double> logits;  // ten of them
};

const Recorded kRecorded[] = {
    {"resnet50",
     64,
     10,
     {1321.937, -1899.976, -4634.256, 873.0203, -2020.988, -3043.37, 1667.17, 2670.707, 841.1118,
      6027.33}},
    {"googlenet",
     64,
     10,
     {0.9689877, 2.35855, -3.730558, 3.270773, -3.940157, -7.525983, -2.303782, 0.6367969,
      -0.02615164, 1.71347}},
    {"densenet121",
     64,
     10,
     {-9.963565, -3.395703, -11.96369, -0.6804213, -0.2392751, -14.77623, -26.22867, 5.525979,
      22.01995, 0.6622835}},
    {"efficientnet_b0",
     64,
     10,
     {1.564349, 0.3781673, -0.1526396, -1.504818, -0.7155868, -0.3867566, 0.07058673, 0.3638053,
      -0.1531397, -0.3735474}},
    {"convnext_tiny",
     64,
     10,
     {-1.547839, -1.937515, -1.448553, 0.7838078, 2.049149, -1.475336, 1.999556, -0.6499316,
      3.608097, 2.012307}},
    {"mobilenet_v2",
     64,
     10,
     {3.808102, 5.719005, -1.600944, -4.043355, 0.8680423, 5.478052, -0.6508565, 4.965064,
      -0.1777909, 2.61164}},
    {"unet",
     32,
     3,
     {0.07887523, 0.07904302, 0.1508699, 0.07889122, 0.003321652, 0.07447281, 0.0432484, -0.0826615,
      -0.07340695, -0.2754084}},
};

// The function mixed() of the script.
double mixed(std::int64_t i, std::size_t seed) {
  std::uint64_t bits = static_cast<std::uint64_t>(i) * 2654435761u + seed * 97;
  for (int pass = 0; pass < 2; ++pass) {
    bits = ((bits ^ (bits >> 16)) * 0x45D9F3B) & 0xFFFFFFFF;
  }
  return static_cast<double>(bits) / 4294967296.0 - 0.5;
}

void set_weights(Module& network) {
  for (const NamedParameter& p : network.parameters()) {
    const Tensor& to = p.variable.value();
    const bool is_factor = p.name.ends_with("weight");
    const double width =
        to.rank() > 1 ? std::sqrt(24.0 / static_cast<double>(to.numel() / to.dim(0))) : 0.5;
    const double middle = to.rank() == 1 && is_factor ? 1 : 0;
    for (std::int64_t i = 0; i < to.numel(); ++i) {
      to.data<float>()[i] = static_cast<float>(middle + width * mixed(i, p.name.size()));
    }
  }
}

class RecordedLogits : public ::testing::TestWithParam<Recorded> {};

TEST_P(RecordedLogits, AreThoseOfPyTorch) {
  const auto& [name, size, classes, logits] = GetParam();
  const Tensor x = Tensor::empty({1, 3, size, size});
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(4 * mixed(i, 0));
  }
  const ModelType& type = model_types().get(name);
  const Options given =
      std::string_view(name) == "unet" ? testing::options({{"width", std::int64_t{4}}}) : Options();
  LayerContext context;
  const auto network =
      type.build(complete_options(type.fields, given, name), x.shape(), classes, context);
  set_weights(*network);
  network->eval();
  const NoGrad no_grad;
  const Tensor y = network->forward(Variable(x)).value();
  double largest = 0;
  for (const double logit : logits) largest = std::max(largest, std::abs(logit));
  for (std::int64_t i = 0; i < 10; ++i) {
    // The numbers have seven digits, and errors of f32 grow with the depth of the network.
    EXPECT_NEAR(y.at(i * y.numel() / 10), logits[static_cast<std::size_t>(i)], 2e-4 * largest) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedLogits, ::testing::ValuesIn(kRecorded),
                         [](const auto& one) { return std::string(one.param.model); });

}  // namespace
}  // namespace convscope
