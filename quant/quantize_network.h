// SPDX-License-Identifier: Apache-2.0
// quantize_network.h: adds quantisers before the input and the weight of every layer that has a
// weight (conv2d, linear), and before the operands of sums of residual blocks.
//
// Bits        w_bits and a_bits apply to weights and activations, first_last_bits to both in the
//             first and last layer. per_layer overrides them. residual_bits applies to sums
// Sums        a residual block (layers/residual.h) adds integers. Its input is rounded once, to
//             residual_bits, for body, shortcut and the addend x. The result of a shortcut with
//             layers is rounded, too. The result of the body is not rounded, because integer
//             execution keeps it in 32 bits. A layer that reads the block's input with the same
//             number of bits does not round again. With residual_bits 0 the sums stay f32, as
//             those of a LayerGraph always do
// Signs       weights are signed. An input is unsigned when its producer is never negative: relu,
//             relu6, sigmoid, a residual block that ends in relu or adds two such values, and
//             pooling, dropout or flatten after such layers. Other inputs, such as the images, are
//             signed. Signs pass through Sequential, LayerGraph and Residual, and through add, mul
//             and concat, whose result is unsigned if all inputs are. Inputs inside of other
//             modules are signed.
// Names       c1.weight_quantizer.log_step, c1.input_quantizer.log_step,
//             layer2.0.input_quantizer.log_step, layer2.0.shortcut_quantizer.log_step
// Beginning   with begin > 0 all quantisers wait (quantizer.h) until begin()
// Biases stay f32: integer execution adds them to the 32-bit sums.
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

// How evaluations and inference compute. `fake` computes in f32 on rounded numbers. `int8`
// multiplies integer codes where that is estimated to be faster, and `int8_always` wherever a
// kernel exists. Training always uses `fake`, because its gradients need the unrounded numbers.
enum class QuantExecute { fake, int8, int8_always };

struct QuantConfig {
  QuantMethod method = QuantMethod::lsq;
  std::int64_t w_bits = 8;
  std::int64_t a_bits = 8;
  std::int64_t first_last_bits = 8;
  std::int64_t residual_bits = 8;  // of the operands of residual sums; 0: f32
  // A step for each w[i] of a weight: for each output channel, or, in a conv_transpose2d, for each
  // input channel.
  bool per_channel = false;
  std::optional<StepRule> init = {};  // none: kAutoRule
  QuantStep step = QuantStep::log;
  double lr_scale = 1.0;     // of the steps' learning rate
  double percentile = 99.9;  // of method percentile
  std::int64_t calibration_batches = 1;
  double begin = 0;  // share of all training steps; f32 until then
  QuantExecute execute = QuantExecute::fake;
  std::string start_from = {};  // checkpoint with the initial weights; "": random weights
  std::map<std::string, LayerBits> per_layer = {};
};

// The rule of `init: auto`, for every number of bits. In the measurements of quant/README.md its
// accuracy was never lower than that of another rule by more than two seeds differ, and at 2 bits
// much higher than that of max_abs.
inline constexpr StepRule kAutoRule = StepRule::mse;

// Adds the quantisers. Throws an error of kind kConfig if per_layer names a layer without a weight,
// or if no layer has a weight.
CONVSCOPE_API void apply_quantization(Module& network, const QuantConfig& config, Device device);

struct QuantizedTensor {
  std::string layer;  // "c1"; for a sum the block: "layer2.0"
  bool is_weight = true;
  Quantizer* quantizer = nullptr;
  std::string tensor = {};  // "weight", "input" or, after a block's shortcut, "shortcut"
};
// Returns all quantisers of a network, in order.
CONVSCOPE_API std::vector<QuantizedTensor> quantized_tensors(Module& network);

// Sets whether inference computes with codes or rounds in f32 (lsq.h).
CONVSCOPE_API void execute_on_integers(Module& network, IntegerUse use);
// Returns a message if the network asks for codes where they are faster, but inference uses none
// (`codes` is false) because the CPU multiplies int8 slowly. Otherwise returns "".
CONVSCOPE_API std::string why_not_on_integers(Module& network, Device device, bool codes);

// Returns the training step at which the quantisers begin in a run of `total_steps`. Throws an
// error of kind kConfig if no training step would be left for them.
CONVSCOPE_API std::int64_t quant_begin_step(const QuantConfig& config, std::int64_t total_steps);

// Returns whether a parameter or buffer belongs to a quantiser: "c1.weight_quantizer.log_step".
CONVSCOPE_API bool belongs_to_quantizer(std::string_view tensor_name);

}  // namespace convscope
