// SPDX-License-Identifier: Apache-2.0
// networks.h: small networks and helpers for the tests of sparsity/.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/layer_types.h"
#include "sparsity/pruner.h"

namespace convscope::testing {

// Networks this small are slower on several threads.
inline const bool on_one_thread = [] {
  set_num_threads(1);
  return true;
}();

inline LayerSpec layer(const std::string& type, const std::string& name, std::int64_t outputs = 0) {
  LayerSpec spec{.type = type, .name = name, .options = {}};
  if (type == "conv2d" || type == "conv_transpose2d") {
    spec.options.set("out_channels", outputs);
    spec.options.set("kernel_size", std::int64_t{3});
  } else if (type == "linear") {
    spec.options.set("out_features", outputs);
  } else if (type == "max_pool2d") {
    spec.options.set("kernel_size", std::int64_t{2});
  }
  return spec;
}

inline const Shape kImage = {1, 2, 10, 10};

// Returns a network of c1 (4 filters), an optional batch norm, c2 (6 filters, 2x2 outputs), f3 (8
// units) and f4 (3 classes).
inline std::shared_ptr<Module> small_network(std::uint64_t seed = 1, bool batch_norm = false) {
  LayerContext context;
  context.seed = seed;
  std::vector<LayerSpec> specs = {layer("conv2d", "c1", 4)};
  if (batch_norm) specs.push_back(layer("batch_norm2d", "bn1"));
  for (const LayerSpec& spec :
       {layer("relu", "r1"), layer("max_pool2d", "p1"), layer("conv2d", "c2", 6),
        layer("relu", "r2"), layer("flatten", "flat"), layer("linear", "f3", 8),
        layer("relu", "r3"), layer("linear", "f4", 3)}) {
    specs.push_back(spec);
  }
  return build_layers(specs, kImage, context);
}

inline Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Tensor out = Tensor::empty(shape);
  Generator random(seed, 77);
  for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = random.normal();
  return out;
}

inline std::int64_t zeros_in(const Tensor& mask) {
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < mask.numel(); ++i) zeros += mask.data<float>()[i] == 0 ? 1 : 0;
  return zeros;
}

// Returns options from the keys of a `sparsity:` block.
inline SparsityOptions options_of(const std::map<std::string, OptionValue>& given) {
  Options options;
  for (const auto& [name, value] : given) options.set(name, value);
  return parse_sparsity(complete_options(sparsity_fields(), options, "sparsity"));
}

inline std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

}  // namespace convscope::testing
