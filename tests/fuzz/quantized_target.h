// SPDX-License-Identifier: Apache-2.0
// quantized_target.h: a fuzz target that reads a quantised model file of arbitrary bytes into a
// network. The network is reused: after a file that is refused half-way, it must still read the
// next file.
#pragma once

#include "layers/layer_types.h"
#include "quant/quantized_file.h"
#include "tests/fuzz/target.h"

namespace convscope::testing {

// The network has a residual block and a linear layer, which are quantised to 2 to 8 bits.
inline Module& quantized_network() {
  static const std::shared_ptr<Module> network = [] {
    LayerContext context;
    Options block, linear;
    block.set("out_channels", std::int64_t{2});
    block.set("stride", std::int64_t{2});
    linear.set("out_features", std::int64_t{3});
    const Shape input{2, 1, 4, 4};
    const auto out = build_layers({{.type = "residual", .name = "block", .options = block},
                                   {.type = "flatten", .name = "flat", .options = {}},
                                   {.type = "linear", .name = "f1", .options = linear}},
                                  input, context);
    QuantConfig config{.w_bits = 3, .a_bits = 4, .first_last_bits = 8, .per_channel = true};
    config.per_layer["block.conv2"] = {.w_bits = 2, .a_bits = {}};
    config.per_layer["f1"] = {.w_bits = 5, .a_bits = {}};
    for (const NamedParameter& p : out->parameters()) {  // a weight with zeros that are not stored
      const Tensor& values = p.variable.value();
      for (std::int64_t i = 0; p.name == "f1.weight" && i < values.numel(); ++i) {
        if (i % 8 != 3) values.data<float>()[i] = 0;
      }
    }
    apply_quantization(*out, config, Device{});
    out->forward(Variable(Tensor::full(input, 1.0)));
    return out;
  }();
  return *network;
}

inline std::vector<FuzzTarget> quantized_targets() {
  return {{"quantised",
           [](Bytes bytes) {
             load_quantized_file(parse_safetensors(bytes, "fuzz"), "fuzz", quantized_network());
           },
           [] {
             static const std::string sound = written([](const std::string& path) {
               const SafetensorsFile file =
                   to_quantized_file(quantized_network(), [](std::string_view) { return false; });
               write_safetensors(path, file.tensors, file.metadata);
             });
             return std::vector<std::string>{sound};
           }}};
}

}  // namespace convscope::testing
