// SPDX-License-Identifier: Apache-2.0
// quant_block.cpp: the keys of the block `quant:` and of an entry of its `per_layer`. schema.h
// explains key tables.
#include <utility>

#include "experiments/config/schema.h"

namespace convscope::config {
namespace {

double number_of(const OptionValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

Key<QuantConfig> bits(const char* name, std::int64_t QuantConfig::*member, const char* doc) {
  return {
      .field = {.name = name,
                .type = OptionType::integer,
                .default_value = QuantConfig{}.*member,
                .doc = doc,
                .min = kMinBits,
                .max = kMaxBits},
      .set = [member](QuantConfig& block,
                      const OptionValue& value) { block.*member = std::get<std::int64_t>(value); },
      .get = [member](const QuantConfig& block) -> OptionValue { return block.*member; }};
}

Key<QuantConfig> number(const char* name, double QuantConfig::*member, const char* doc, double min,
                        double max) {
  return {.field = {.name = name,
                    .type = OptionType::number,
                    .default_value = QuantConfig{}.*member,
                    .doc = doc,
                    .min = min,
                    .max = max},
          .set = [member](QuantConfig& block,
                          const OptionValue& value) { block.*member = number_of(value); },
          .get = [member](const QuantConfig& block) -> OptionValue { return block.*member; }};
}

// Returns a key whose value is a word, one word for each value of T. `member` returns the value in
// the block.
template <class T>
Key<QuantConfig> word(const char* name, const char* doc,
                      std::vector<std::pair<std::string, T>> words,
                      std::function<T&(QuantConfig&)> member) {
  std::vector<std::string> choices;
  for (const auto& [text, value] : words) choices.push_back(text);
  const auto text_of = [words, member](const QuantConfig& block) -> OptionValue {
    QuantConfig copy = block;
    for (const auto& [text, value] : words) {
      if (value == member(copy)) return text;
    }
    return {};
  };
  return {.field = {.name = name,
                    .type = OptionType::text,
                    .default_value = text_of(QuantConfig{}),
                    .doc = doc,
                    .choices = choices},
          .set =
              [words, member](QuantConfig& block, const OptionValue& given) {
                for (const auto& [text, value] : words) {
                  if (text == std::get<std::string>(given)) member(block) = value;
                }
              },
          .get = text_of};
}

// Returns a key that accepts 0 or the values of bits().
Key<QuantConfig> residual_bits() {
  Key<QuantConfig> key = bits(
      "residual_bits", &QuantConfig::residual_bits,
      "bits of the two operands of a residual addition: input and shortcut; 0: additions stay f32");
  key.field.min = 0;
  key.set = [](QuantConfig& block, const OptionValue& value) {
    const auto given = std::get<std::int64_t>(value);
    if (given > 0 && given < kMinBits) {
      fail(ErrorKind::kConfig, "quant",
           cat("expected 0 or ", kMinBits, " to ", kMaxBits, " bits, got ", given));
    }
    block.residual_bits = given;
  };
  return key;
}

Key<QuantConfig> per_channel() {
  return {.field = {.name = "per_channel",
                    .type = OptionType::boolean,
                    .default_value = QuantConfig{}.per_channel,
                    .doc = "one step per output channel of a weight; false: one step for all"},
          .set = [](QuantConfig& block,
                    const OptionValue& value) { block.per_channel = std::get<bool>(value); },
          .get = [](const QuantConfig& block) -> OptionValue { return block.per_channel; }};
}

Key<QuantConfig> calibration_batches() {
  return {
      .field = {.name = "calibration_batches",
                .type = OptionType::integer,
                .default_value = QuantConfig{}.calibration_batches,
                .doc = "number of training batches that calibrate the first step of an activation",
                .min = 1,
                .max = 1e6},
      .set =
          [](QuantConfig& block, const OptionValue& value) {
            block.calibration_batches = std::get<std::int64_t>(value);
          },
      .get = [](const QuantConfig& block) -> OptionValue { return block.calibration_batches; }};
}

Key<QuantConfig> start_from() {
  return {.field = {.name = "start_from",
                    .type = OptionType::text,
                    .doc = "checkpoint or run folder with the initial weights; null: none"},
          .set = [](QuantConfig& block,
                    const OptionValue& value) { block.start_from = std::get<std::string>(value); },
          .get = [](const QuantConfig& block) -> OptionValue {
            if (block.start_from.empty()) return {};
            return block.start_from;
          }};
}

Key<LayerBits> layer_bits(const char* name, std::optional<std::int64_t> LayerBits::*member,
                          const char* doc) {
  return {
      .field =
          {.name = name, .type = OptionType::integer, .doc = doc, .min = kMinBits, .max = kMaxBits},
      .set = [member](LayerBits& block,
                      const OptionValue& value) { block.*member = std::get<std::int64_t>(value); },
      .get = [member](const LayerBits& block) -> OptionValue {
        if (!(block.*member)) return {};
        return *(block.*member);
      }};
}

}  // namespace

const Keys<QuantConfig>& quant_keys() {
  static const Keys<QuantConfig> keys = {
      word<QuantMethod>("method",
                        "lsq: steps are learned; minmax, percentile: steps stay as calibrated",
                        {{"lsq", QuantMethod::lsq},
                         {"minmax", QuantMethod::minmax},
                         {"percentile", QuantMethod::percentile}},
                        [](QuantConfig& block) -> QuantMethod& { return block.method; }),
      bits("w_bits", &QuantConfig::w_bits, "bits of a weight"),
      bits("a_bits", &QuantConfig::a_bits, "bits of an activation"),
      bits("first_last_bits", &QuantConfig::first_last_bits,
           "bits of weights and activations of the first and the last layer"),
      residual_bits(),
      per_channel(),
      word<std::optional<StepRule>>(
          "init",
          "calibration of lsq's first step; auto: mse, the best or equal at 2, 4 and 8 bits",
          {{"auto", std::nullopt},
           {"max_abs", StepRule::max_abs},
           {"mean_abs", StepRule::mean_abs},
           {"mse", StepRule::mse}},
          [](QuantConfig& block) -> std::optional<StepRule>& { return block.init; }),
      word<QuantStep>("step", "what lsq learns: log s, or s itself with a lower limit",
                      {{"log", QuantStep::log}, {"floored", QuantStep::floored}},
                      [](QuantConfig& block) -> QuantStep& { return block.step; }),
      number("lr_scale", &QuantConfig::lr_scale, "factor on the learning rate of the steps", 0,
             1e6),
      number("percentile", &QuantConfig::percentile,
             "percent of |x| that method percentile does not clip", 1, 100),
      calibration_batches(),
      number("begin", &QuantConfig::begin,
             "begin of quantisation, as a fraction of all training steps; f32 before", 0, 1),
      word<QuantExecute>("execute",
                         "execution of evaluations: fake (rounded values, f32 products); int8 "
                         "(integer products in compiled steps, unless they are estimated to be "
                         "slower on a CPU without VNNI); int8_always (integer products always)",
                         {{"fake", QuantExecute::fake},
                          {"int8", QuantExecute::int8},
                          {"int8_always", QuantExecute::int8_always}},
                         [](QuantConfig& block) -> QuantExecute& { return block.execute; }),
      start_from(),
  };
  return keys;
}

const Keys<LayerBits>& layer_bits_keys() {
  static const Keys<LayerBits> keys = {
      layer_bits("w_bits", &LayerBits::w_bits, "bits of this layer's weight"),
      layer_bits("a_bits", &LayerBits::a_bits, "bits of this layer's input"),
  };
  return keys;
}

}  // namespace convscope::config
