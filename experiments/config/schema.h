// SPDX-License-Identifier: Apache-2.0
// schema.h: the keys of each block of a config: name, type, default, range, meaning, and the member
// that holds the value. These tables are used to read configs, to write them, and for `convscope
// config keys`. A new key needs a member in experiment_config.h and a line in schema.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/config/experiment_config.h"

namespace convscope::config {

template <class Block>
struct Key {
  OptionField field;
  std::function<void(Block&, const OptionValue&)> set;  // throws Error when the text is wrong
  std::function<OptionValue(const Block&)> get;
};

template <class Block>
using Keys = std::vector<Key<Block>>;

const Keys<ExperimentConfig>& top_keys();  // schema, name, seed, device, threads
const Keys<DataConfig>& data_keys();
const Keys<AugmentConfig>& augment_keys();
const Keys<ModelConfig>& model_keys();
const Keys<OptimConfig>& optim_keys();
const Keys<ScheduleConfig>& schedule_keys();
const Keys<EmaConfig>& ema_keys();
const Keys<LookaheadConfig>& lookahead_keys();
const Keys<GroupConfig>& group_keys();
const Keys<TrainConfig>& train_keys();
// Returns the keys of one loss: `type` and `weight`.
const Keys<LossTerm>& loss_keys();
const OptionField& loss_field();  // of train.loss as a single word
const Keys<CheckpointConfig>& checkpoint_keys();
const Keys<LogConfig>& log_keys();
const Keys<EarlyStopConfig>& early_stop_keys();
const Keys<ExpectConfig>& expect_keys();
// Returns the keys of the three directions of a convolution. The key `algorithm`, which sets all
// three, is not among them.
const Keys<Conv2dPolicy>& policy_keys();
const Keys<ConvConfig>& conv_keys();  // for all layers
const OptionField& algorithm_field();
// Returns the keys of the block `quant:` and of an entry of its `per_layer` (quant_block.cpp).
// Without the block, or with `quant: null`, weights and activations stay f32.
const Keys<QuantConfig>& quant_keys();
const Keys<LayerBits>& layer_bits_keys();
// Returns the keys `type` and `name` of one entry of `layers`.
const Keys<LayerSpec>& layer_keys();

}  // namespace convscope::config
