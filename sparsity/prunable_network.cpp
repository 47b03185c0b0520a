// SPDX-License-Identifier: Apache-2.0
// prunable_network.cpp: describes a network for pruning: its convolutions and linear layers, each
// with a weight matrix [K, C R S], and, if they form a sequence, which layer reads which outputs.
#include "sparsity/prunable_network.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "framework/registry.h"
#include "layers/layer_graph/layer_graph.h"
#include "layers/sequential.h"

namespace convscope {
namespace {

// Layers in which every output channel depends only on the same input channel.
constexpr std::array<std::string_view, 19> kKeepsChannelsApart = {"relu",
                                                                  "relu6",
                                                                  "tanh",
                                                                  "sigmoid",
                                                                  "silu",
                                                                  "hard_swish",
                                                                  "gelu",
                                                                  "layer_scale",
                                                                  "max_pool2d",
                                                                  "avg_pool2d",
                                                                  "adaptive_avg_pool2d",
                                                                  "batch_norm2d",
                                                                  "dropout",
                                                                  "stochastic_depth",
                                                                  "upsample",
                                                                  "global_avg_pool2d",
                                                                  "global_max_pool2d",
                                                                  "adaptive_max_pool2d",
                                                                  "flatten"};

bool keeps_channels_apart(const std::string& kind) {
  return std::find(kKeepsChannelsApart.begin(), kKeepsChannelsApart.end(), kind) !=
         kKeepsChannelsApart.end();
}

PrunableLayer layer_of(const std::string& name, Module& module) {
  const Shape& shape = module.weight().shape();
  PrunableLayer layer{.name = name, .module = &module, .rows = shape[0]};
  layer.columns = shape.numel() / std::max<std::int64_t>(shape[0], 1);
  layer.channels_out = shape[0];
  layer.channels_in = shape[1];
  layer.inputs = shape[1];
  layer.span = layer.columns / layer.inputs;
  layer.groups = module.weight_groups();
  if (shape.rank() == 4) {
    layer.is_conv = true;
    layer.kernel_h = shape[2];
    layer.kernel_w = shape[3];
  }
  return layer;
}

bool has_weight_matrix(const Module& module) { return module.weight().defined(); }

class Walk {
 public:
  Walk(Module& model, const Shape& input, PrunableNetwork& out) : out_(out), shape_(input) {
    for (const NamedModule& part : model.modules()) names_.emplace(part.module, part.name);
    if (input.rank() >= 2) channels_ = input[1];
    pass(model);
    // The layers of a network that is not a sequence can still be pruned one by one.
    if (out_.in_line()) return;
    out_.layers.clear();
    std::set<const Module*> inner;  // parts of a layer with a weight are not visited
    for (const NamedModule& part : model.modules()) {
      if (!has_weight_matrix(*part.module) || inner.contains(part.module)) continue;
      out_.layers.push_back(layer_of(part.name, *part.module));
      for (const NamedModule& below : part.module->modules()) inner.insert(below.module);
    }
  }

 private:
  void pass(Module& module) {
    if (!out_.in_line()) return;
    if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
      for (std::size_t i = 0; i < sequence->size(); ++i) pass(sequence->layer(i));
      return;
    }
    if (dynamic_cast<LayerGraph*>(&module) != nullptr) {
      out_.no_sequence_reason = "branches (layers that read other layers than the one before)";
      return;
    }
    const std::string& name = names_.at(&module);
    if (!has_weight_matrix(module)) {
      if (!keeps_channels_apart(module.kind())) {
        out_.no_sequence_reason = cat("'", name, "' (", module.kind(), ") may mix channels");
        return;
      }
      shape_ = module.output_shape(shape_);
      return;
    }
    for (const NamedModule& part : module.modules()) {
      if (part.module == &module || !has_weight_matrix(*part.module)) continue;
      out_.no_sequence_reason =
          cat("'", part.name, "' of '", name, "' (", module.kind(), ") reads the same channels");
      return;
    }
    if (module.kind() == "conv_transpose2d") {
      out_.no_sequence_reason =
          cat("'", name, "' (conv_transpose2d) has its input channels in the rows of its weight");
      return;
    }
    PrunableLayer layer = layer_of(name, module);
    shape_ = module.output_shape(shape_);
    layer.positions = layer.is_conv ? shape_[2] * shape_[3] : 1;
    if (!layer.is_conv) {  // a flatten layer makes the pixels of each channel adjacent
      layer.inputs = channels_;
      layer.span = layer.columns / channels_;
    }
    channels_ = layer.rows;
    out_.layers.push_back(layer);
  }

  PrunableNetwork& out_;
  Shape shape_;
  std::int64_t channels_ = 1;
  std::map<const Module*, std::string> names_;
};

}  // namespace

std::size_t PrunableNetwork::index_of(const std::string& name) const {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name == name) return i;
    known.push_back(layers[i].name);
  }
  const std::string near = nearest_word(name, known);
  fail(ErrorKind::kConfig, "sparsity",
       cat("expected the name of a convolution or linear layer of the network, got '", name, "'",
           near.empty() ? "" : cat("; did you mean '", near, "'?"), " (known: ", join(known), ")"));
}

PrunableNetwork prunable_network(Module& model, const Shape& input) {
  PrunableNetwork out;
  Walk(model, input, out);
  return out;
}

}  // namespace convscope
