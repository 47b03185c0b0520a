// SPDX-License-Identifier: Apache-2.0
// quantize_network.cpp: adds quantisers before the input and the weight of every layer that has a
// weight (conv2d, linear), and before the operands of sums of residual blocks.
#include "quant/quantize_network.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "framework/registry.h"
#include "framework/simd/cpu_isa.h"
#include "layers/layer_graph/layer_graph.h"
#include "layers/residual.h"

namespace convscope {
namespace {

constexpr const char* kWeightName = "weight_quantizer";
constexpr const char* kInputName = "input_quantizer";
constexpr const char* kShortcutName = "shortcut_quantizer";

struct Target {
  std::string name;
  Module* layer;
  bool input_is_signed;
  bool reads_a_sum = false;  // reads the input of a residual block, which may round it
};

struct Block {
  Residual* module;
  bool input_is_signed, shortcut_is_signed;
};

bool is_one_of(const std::string& kind, std::initializer_list<const char*> kinds) {
  for (const char* one : kinds) {
    if (kind == one) return true;
  }
  return false;
}

// Tracks the sign of values from layer to layer.
class Walk {
 public:
  explicit Walk(Module& network) {
    for (const NamedModule& part : network.modules()) names_.emplace(part.module, part.name);
    visit(network);
  }
  std::vector<Target> targets;
  std::vector<Block> blocks;
  bool has_branches = false;

 private:
  void visit(Module& module) {
    if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
      for (std::size_t i = 0; i < sequence->size(); ++i) visit(sequence->layer(i));
      return;
    }
    if (auto* graph = dynamic_cast<LayerGraph*>(&module)) return visit_graph(*graph);
    if (auto* block = dynamic_cast<Residual*>(&module)) return visit_block(*block);
    const std::string kind = module.kind();
    const bool reads_a_sum = std::exchange(at_block_input_, false);
    if (module.weight().defined()) {
      targets.push_back({names_.at(&module), &module, may_be_negative_, reads_a_sum});
    } else if (is_one_of(kind, {"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "flatten",
                                "dropout", "stochastic_depth", "upsample", "channel_shuffle",
                                "global_avg_pool2d", "global_max_pool2d", "adaptive_max_pool2d",
                                "add", "mul", "concat", "split"})) {
      return;  // keep the sign
    } else if (is_one_of(kind, {"relu", "relu6", "sigmoid", "softmax"})) {
      may_be_negative_ = false;
      return;
    } else {
      for (const NamedModule& part : module.modules()) {
        if (part.module == &module || !part.module->weight().defined()) continue;
        targets.push_back({names_.at(part.module), part.module, true});
      }
    }
    may_be_negative_ = true;
  }

  // A layer may read negative values if one of its inputs may be negative.
  void visit_graph(const LayerGraph& graph) {
    has_branches = true;
    struct Sign {
      bool may_be_negative;
    };
    graph.pass<Sign>({{may_be_negative_}}, [&](const auto& entry, const std::vector<Sign>& inputs) {
      may_be_negative_ = std::ranges::any_of(inputs, &Sign::may_be_negative);
      visit(*entry.layer);
      return std::vector<Sign>(entry.results, Sign{may_be_negative_});
    });
  }

  void visit_block(Residual& block) {
    const bool input = may_be_negative_;
    at_block_input_ = true;
    visit(block.body());
    const bool sum = may_be_negative_;
    may_be_negative_ = input;
    if (block.shortcut() != nullptr) {
      at_block_input_ = true;
      visit(*block.shortcut());
    }
    at_block_input_ = false;
    const bool beside = may_be_negative_;
    blocks.push_back({&block, input, beside});
    may_be_negative_ = block.end() == Residual::End::sum && (sum || beside);
  }

  std::map<const Module*, std::string> names_;
  bool may_be_negative_ = true;  // the images are normalised
  bool at_block_input_ = false;  // the next layer reads the input of its block
};

void check_names(const QuantConfig& config, const std::vector<Target>& targets) {
  std::vector<std::string> known;
  for (const Target& target : targets) known.push_back(target.name);
  if (known.empty()) {
    fail(ErrorKind::kConfig, "quant",
         "expected a network with at least one layer that has a weight (conv2d, linear), got none");
  }
  for (const auto& [layer, bits] : config.per_layer) {
    bool found = false;
    for (const std::string& name : known) found = found || name == layer;
    if (found) continue;
    const std::string near = nearest_word(layer, known);
    fail(ErrorKind::kConfig, "quant.per_layer",
         cat("expected the name of a layer with a weight, got '", layer, "'",
             near.empty() ? "" : cat("; did you mean '", near, "'?"), " (known: ", join(known),
             ")"));
  }
}

}  // namespace

void apply_quantization(Module& network, const QuantConfig& config, Device device) {
  static const LayerBits kNothing;
  const Walk walk(network);
  const std::vector<Target>& targets = walk.targets;
  check_names(config, targets);
  const std::int64_t usual = QuantConfig{}.residual_bits;
  if (walk.has_branches && walk.blocks.empty() && config.residual_bits != 0 &&
      config.residual_bits != usual) {
    fail(ErrorKind::kConfig, "quant.residual_bits",
         cat("expected ", usual, " (the default) or 0 because the sums of branches stay f32, got ",
             config.residual_bits));
  }
  const auto quantizer = [&](std::int64_t bits, bool is_signed, std::int64_t channels = -1) {
    const bool is_weight = channels >= 0;
    QuantizerOptions out;
    out.bits = static_cast<int>(bits);
    out.is_signed = is_signed;
    out.method = config.method;
    out.step = config.step;
    out.init = config.init.value_or(kAutoRule);
    out.percentile = config.percentile;
    out.calibration_batches = is_weight ? 1 : config.calibration_batches;
    out.channels = is_weight ? channels : 0;
    out.is_weight = is_weight;
    out.waits = config.begin > 0;
    out.device = device;
    return std::make_shared<Quantizer>(out);
  };
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    const bool outer = i == 0 || i + 1 == targets.size();
    const auto own = config.per_layer.find(target.name);
    const LayerBits& given = own == config.per_layer.end() ? kNothing : own->second;
    const std::int64_t a_bits =
        given.a_bits.value_or(outer ? config.first_last_bits : config.a_bits);
    const std::int64_t w_bits =
        given.w_bits.value_or(outer ? config.first_last_bits : config.w_bits);
    if (!target.reads_a_sum || a_bits != config.residual_bits) {
      target.layer->add_input_transform(kInputName, quantizer(a_bits, target.input_is_signed));
    }
    const std::int64_t channels = config.per_channel ? target.layer->weight().dim(0) : 0;
    target.layer->add_weight_transform(kWeightName, quantizer(w_bits, true, channels));
  }
  for (const Block& block : walk.blocks) {
    if (config.residual_bits == 0) break;
    block.module->add_input_transform(kInputName,
                                      quantizer(config.residual_bits, block.input_is_signed));
    if (block.module->shortcut() == nullptr) continue;
    block.module->add_shortcut_transform(kShortcutName,
                                         quantizer(config.residual_bits, block.shortcut_is_signed));
  }
  execute_on_integers(network, config.execute == QuantExecute::fake   ? IntegerUse::never
                               : config.execute == QuantExecute::int8 ? IntegerUse::where_faster
                                                                      : IntegerUse::always);
}

std::vector<QuantizedTensor> quantized_tensors(Module& network) {
  std::vector<QuantizedTensor> out;
  for (const NamedModule& part : network.modules()) {
    auto* quantizer = dynamic_cast<Quantizer*>(part.module);
    if (quantizer == nullptr) continue;
    // "c1.weight_quantizer"; for a network that is one layer "weight_quantizer"
    const std::size_t dot = part.name.rfind('.');
    const std::string own = dot == std::string::npos ? part.name : part.name.substr(dot + 1);
    out.push_back({.layer = dot == std::string::npos ? "" : part.name.substr(0, dot),
                   .is_weight = quantizer->options().is_weight,
                   .quantizer = quantizer,
                   .tensor = own.substr(0, own.find('_'))});
  }
  return out;
}

void execute_on_integers(Module& network, IntegerUse use) {
  for (const QuantizedTensor& one : quantized_tensors(network)) {
    one.quantizer->execute_on_integers(use);
  }
}

std::string why_not_on_integers(Module& network, Device device, bool codes) {
  if (codes || device.type != DeviceType::cpu || uses_vnni()) return "";
  const std::vector<QuantizedTensor> tensors = quantized_tensors(network);
  const bool asked = std::ranges::any_of(tensors, [](const QuantizedTensor& one) {
    return one.quantizer->integers() == IntegerUse::where_faster;
  });
  if (!asked) return "";
  return "int8 is not used: without VNNI (the CPU's instruction for bytes, or CONVSCOPE_VNNI=off) "
         "this network is estimated to be faster in f32 on rounded numbers; "
         "quant.execute=int8_always uses int8 all the same";
}

std::int64_t quant_begin_step(const QuantConfig& config, std::int64_t total_steps) {
  const std::int64_t step = std::llround(config.begin * static_cast<double>(total_steps));
  if (step > 0 && step >= total_steps) {
    fail(ErrorKind::kConfig, "quant.begin",
         cat("expected a share that leaves a step to quantise, got ", config.begin, ", which is ",
             step, " of ", total_steps, " steps"));
  }
  return step;
}

bool belongs_to_quantizer(std::string_view tensor_name) {
  return std::ranges::any_of(
      std::array{kWeightName, kInputName, kShortcutName}, [&](const char* quantizer) {
        return tensor_name.find(cat(quantizer, ".")) != std::string_view::npos;
      });
}

}  // namespace convscope
