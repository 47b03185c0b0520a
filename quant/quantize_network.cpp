// SPDX-License-Identifier: Apache-2.0
// quantize_network.cpp: puts a quantiser in front of the input and the weight of every layer that
// has a weight (conv2d, linear).
#include "quant/quantize_network.h"

#include <cmath>

#include "framework/registry.h"
#include "layers/sequential.h"

namespace convscope {
namespace {

constexpr const char* kWeightName = "weight_quantizer";
constexpr const char* kInputName = "input_quantizer";

struct Target {
  std::string name;
  Module* layer;
  bool input_is_signed;
};

bool is_one_of(const std::string& kind, std::initializer_list<const char*> kinds) {
  for (const char* one : kinds) {
    if (kind == one) return true;
  }
  return false;
}

// Follows the sign of the numbers from layer to layer.
class Walk {
 public:
  explicit Walk(Module& network) {
    for (const NamedModule& part : network.modules()) names_.emplace(part.module, part.name);
    visit(network);
  }
  std::vector<Target> targets;

 private:
  void visit(Module& module) {
    if (auto* sequence = dynamic_cast<Sequential*>(&module)) {
      for (std::size_t i = 0; i < sequence->size(); ++i) visit(sequence->layer(i));
      return;
    }
    const std::string kind = module.kind();
    if (module.weight().defined()) {
      targets.push_back({names_.at(&module), &module, may_be_negative_});
    } else if (is_one_of(kind, {"max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "flatten",
                                "dropout"})) {
      return;  // keep the sign
    } else if (is_one_of(kind, {"relu", "relu6", "sigmoid"})) {
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

  std::map<const Module*, std::string> names_;
  bool may_be_negative_ = true;  // the images are normalised
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
  const std::vector<Target> targets = Walk(network).targets;
  check_names(config, targets);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Target& target = targets[i];
    const bool outer = i == 0 || i + 1 == targets.size();
    const auto own = config.per_layer.find(target.name);
    const LayerBits& given = own == config.per_layer.end() ? kNothing : own->second;
    const auto options = [&](std::int64_t bits, bool is_weight) {
      const std::optional<std::int64_t>& own_bits = is_weight ? given.w_bits : given.a_bits;
      QuantizerOptions out;
      out.bits = static_cast<int>(own_bits.value_or(outer ? config.first_last_bits : bits));
      out.is_signed = is_weight || target.input_is_signed;
      out.method = config.method;
      out.step = config.step;
      out.init = config.init.value_or(kAutoRule);
      out.percentile = config.percentile;
      out.calibration_batches = is_weight ? 1 : config.calibration_batches;
      out.channels = is_weight && config.per_channel ? target.layer->weight().dim(0) : 0;
      out.is_weight = is_weight;
      out.waits = config.begin > 0;
      out.device = device;
      return out;
    };
    target.layer->add_input_transform(kInputName,
                                      std::make_shared<Quantizer>(options(config.a_bits, false)));
    target.layer->add_weight_transform(kWeightName,
                                       std::make_shared<Quantizer>(options(config.w_bits, true)));
  }
}

std::vector<QuantizedTensor> quantized_tensors(Module& network) {
  std::vector<QuantizedTensor> out;
  for (const NamedModule& part : network.modules()) {
    auto* quantizer = dynamic_cast<Quantizer*>(part.module);
    if (quantizer == nullptr) continue;
    out.push_back(
        {part.name.substr(0, part.name.rfind('.')), quantizer->options().is_weight, quantizer});
  }
  return out;
}

void execute_on_integers(Module& network, bool on) {
  for (const QuantizedTensor& one : quantized_tensors(network)) {
    one.quantizer->execute_on_integers(on);
  }
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
  return tensor_name.find(std::string(kWeightName) + ".") != std::string_view::npos ||
         tensor_name.find(std::string(kInputName) + ".") != std::string_view::npos;
}

}  // namespace convscope
