// SPDX-License-Identifier: Apache-2.0
// deform_network.h: small networks with deformable convolutions, for tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/ops/elementwise.h"
#include "layers/layer_types.h"
#include "layers/sequential.h"
#include "optim/optimizer.h"
#include "tests/support/numbers.h"

namespace convscope::testing {

using Ints = std::vector<std::int64_t>;
using Pairs = std::vector<std::pair<const char*, OptionValue>>;

inline LayerSpec layer(const char* type, const char* name, const Pairs& keys = {}) {
  LayerSpec out{.type = type, .name = name, .options = {}};
  for (const auto& [key, value] : keys) out.options.set(key, value);
  return out;
}

inline LayerSpec deform(const char* name, std::int64_t k, Pairs keys = {}) {
  keys.emplace_back("out_channels", k);
  keys.emplace_back("kernel_size", Ints{3});
  keys.emplace_back("padding", Ints{1});
  return layer("deform_conv2d", name, keys);
}

inline std::shared_ptr<Sequential> network(const std::vector<LayerSpec>& specs, const Shape& input,
                                           Device device = {},
                                           ComputePrecision precision = ComputePrecision::f32,
                                           const char* layout = "nchw") {
  LayerContext context;
  context.seed = 5;
  context.device = device;
  context.precision = precision;
  // All layers use the same algorithm, because `auto` might choose one with another summation
  // order.
  context.conv_policy = [on_cpu = device.type == DeviceType::cpu, layout](const std::string&) {
    const char* const name = on_cpu ? "direct_nchw16c,direct" : "im2col_gemm";
    return Conv2dPolicy{name, name, name, layout};
  };
  return std::dynamic_pointer_cast<Sequential>(build_layers(specs, input, context));
}

// Changes the weights of the offset branches, as if they had been trained: offsets are about one
// pixel.
inline void move_branches(Module& model) {
  std::uint64_t stream = 40;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.name.find(".branch.") == std::string::npos) continue;
    const Tensor& to = parameter.variable.value();
    to.copy_from(scale(Variable(normal(to.shape(), DType::f32, stream++)), 0.2).value());
  }
}

inline std::vector<LayerSpec> ending(std::vector<LayerSpec> specs) {
  specs.push_back(layer("flatten", "flat"));
  specs.push_back(layer("linear", "f", {{"out_features", std::int64_t{7}}}));
  return specs;
}

inline Tensor labels(std::int64_t n) {
  const Tensor out = Tensor::empty({n}, DType::i32);
  for (std::int64_t i = 0; i < n; ++i) {
    out.data<std::int32_t>()[i] = static_cast<std::int32_t>((i * 5 + 1) % 7);
  }
  return out;
}

// Returns the loss after some steps of Adam on eight images of noise with random labels. The loss
// is small only if the network fits each image.
template <class Step>
double loss_after(int steps, Module& model, const Step& step) {
  const OptimizerType& adam = optimizer_types().get("adam");
  ParameterGroup group;
  for (const NamedParameter& parameter : model.parameters()) {
    group.parameters.push_back({parameter.name, parameter.variable});
  }
  const auto optimizer = adam.build({group}, Options(adam.fields));
  double loss = 0;
  for (int i = 0; i < steps; ++i) {
    model.zero_grad();
    loss = step();
    optimizer->step(0.01);
  }
  return loss;
}

}  // namespace convscope::testing
