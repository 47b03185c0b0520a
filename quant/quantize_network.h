// SPDX-License-Identifier: Apache-2.0
// quantize_network.h: puts a quantiser in front of the input and the weight of every layer that has
// a weight (conv2d, linear), and in front of what residual blocks add.
//
// Bits        w_bits and a_bits everywhere, first_last_bits for both of the first and of the last
//             layer, and what per_layer says, which beats all; residual_bits of sums
// Sums        a residual block (layers/residual.h) adds integers: its input is rounded once, to
//             residual_bits, for body and shortcut and as the addend x itself; what a shortcut of
//             layers gives is rounded too. What the body gives stays as it is, because integer
//             execution has it in 32 bits. A layer that reads the block's input itself and has as
//             many bits rounds nothing more. With residual_bits 0 the sums stay f32
// Signs       weights are signed. An input is unsigned when its producer never gives negative
//             numbers: relu, relu6, sigmoid, a residual block that ends in relu or adds two such
//             values, and pooling, dropout or flatten of those; else signed, as the images.
//             Followed through Sequential and Residual; inside other modules inputs are signed.
// Names       c1.weight_quantizer.log_step, c1.input_quantizer.log_step,
//             layer2.0.input_quantizer.log_step, layer2.0.shortcut_quantizer.log_step
// Beginning   with begin > 0 all quantisers wait (quantizer.h) until begin()
// Biases stay f32: in integer execution they are added to the 32-bit sums.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quant/quantizer.h"

namespace convscope {

struct LayerBits {
  std::optional<std::int64_t> w_bits = {}, a_bits = {};
  bool operator==(const LayerBits&) const = default;
};

// What evaluations and inference compute with: int8 multiplies codes where that is estimated to be
// faster than the f32 of the rounded numbers, int8_always wherever there is a kernel. Training
// always rounds in f32: its gradients need the real numbers.
enum class QuantExecute { fake, int8, int8_always };

struct QuantConfig {
  QuantMethod method = QuantMethod::lsq;
  std::int64_t w_bits = 8;
  std::int64_t a_bits = 8;
  std::int64_t first_last_bits = 8;
  std::int64_t residual_bits = 8;     // of what residual blocks add; 0: f32
  bool per_channel = false;           // a step for each output channel of a weight
  std::optional<StepRule> init = {};  // none: kAutoRule
  QuantStep step = QuantStep::log;
  double lr_scale = 1.0;     // of the steps' learning rate
  double percentile = 99.9;  // of method percentile
  std::int64_t calibration_batches = 1;
  double begin = 0;  // share of all training steps; f32 until then
  QuantExecute execute = QuantExecute::fake;
  std::string start_from = {};  // checkpoint with the weights to begin with; "": from scratch
  std::map<std::string, LayerBits> per_layer = {};
};

// The rule of `init: auto`, for every number of bits: never worse than the others by more than the
// spread of seeds, and much better than max_abs at 2 bits (measured: quant/README.md).
inline constexpr StepRule kAutoRule = StepRule::mse;

// An error of kind kConfig when per_layer names no layer with a weight, or the network has none.
CONVSCOPE_API void apply_quantization(Module& network, const QuantConfig& config, Device device);

struct QuantizedTensor {
  std::string layer;  // "c1"; of a sum the block: "layer2.0"
  bool is_weight = true;
  Quantizer* quantizer = nullptr;
  std::string tensor = {};  // "weight", "input" or, behind a block's shortcut, "shortcut"
};
// All quantisers of a network, in its order.
CONVSCOPE_API std::vector<QuantizedTensor> quantized_tensors(Module& network);

// Whether plans for inference compute with codes, or round in f32 (lsq.h).
CONVSCOPE_API void execute_on_integers(Module& network, IntegerUse use);
// A sentence when inference was to compute with codes where they are faster, and no kernel of it
// does (`codes` is false), because the CPU multiplies bytes slowly; else "".
CONVSCOPE_API std::string why_not_on_integers(Module& network, Device device, bool codes);

// The step number with which quantisers begin in a run of `total_steps`; an error of kind kConfig
// when no step would be left.
CONVSCOPE_API std::int64_t quant_begin_step(const QuantConfig& config, std::int64_t total_steps);

// True for parameters and buffers that belong to a quantiser: "c1.weight_quantizer.log_step".
CONVSCOPE_API bool belongs_to_quantizer(std::string_view tensor_name);

}  // namespace convscope
