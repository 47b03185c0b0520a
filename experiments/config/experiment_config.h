// SPDX-License-Identifier: Apache-2.0
// experiment_config.h: one experiment for the trainer: every key resolved, typed and in range. The
// YAML file is read strictly. All mistakes of a file are reported together as
//   mnist.yaml:12:3: error: unknown key 'train.epohcs'; did you mean 'epochs'?
//   error: override 'train.epohcs=3': unknown key 'train.epohcs'; did you mean 'train.epochs'?
// in one Error of kind kConfig. The keys of layers, models, data sets, optimisers and schedules
// come from their own tables (layer_types.h, dataset.h, ...); schema.cpp has type, default and
// meaning of the keys below. `convscope config keys` lists all keys.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/device.h"
#include "framework/options.h"
#include "framework/precision.h"
#include "layers/conv2d/policy.h"
#include "layers/layer_types.h"
#include "layers/losses/loss.h"
#include "quant/quantize_network.h"

namespace convscope {

struct AugmentConfig {
  std::int64_t crop_padding = 0;  // pixels of zero padding before a random crop; 0 = no crop
  bool mirror = false;            // flips half of the samples horizontally
  bool operator==(const AugmentConfig&) const = default;
};

struct DataConfig {
  std::string set;  // a name in dataset_types()
  Options options;  // the set's own keys: root, ...
  std::int64_t batch_size = 64;
  bool shuffle = true;
  std::int64_t val_split = 0;  // training images set aside for validation
  std::int64_t limit = 0;      // training images used; 0 = all
  bool prefetch = true;
  AugmentConfig augment;
};

// A network is either `type` with its options, or `layers`.
struct ModelConfig {
  std::string type;  // a name in model_types(); "" with `layers`
  Options options;
  std::vector<LayerSpec> layers;  // names filled in: conv2d_1, ...
};

struct ConvConfig {
  Conv2dPolicy policy;                            // for every layer that per_layer does not name
  std::map<std::string, Conv2dPolicy> per_layer;  // whole policies, by layer name
  std::string layout = "auto";                    // layout of images between layers, for all layers
  const Conv2dPolicy& of(const std::string& layer) const {
    const auto it = per_layer.find(layer);
    return it == per_layer.end() ? policy : it->second;
  }
};

struct ScheduleConfig {
  std::string type = "constant";  // a name in schedule_types()
  Options options;
  double warmup_epochs = 0;  // the rate rises linearly from 0; for a warm-up, set one of the two
  std::int64_t warmup_steps = 0;
};

// Settings for the parameters whose name matches `match` ("*.bias", "c?.weight"). If several groups
// match, the first one wins.
struct GroupConfig {
  std::string match;
  double lr_scale = 1.0;
  std::optional<double> weight_decay;  // none: the optimiser's value
  bool operator==(const GroupConfig&) const = default;
};

// Moving average of the weights (optim/slow_weights.h).
struct EmaConfig {
  double decay = 0;      // 0: no average
  bool evaluate = true;  // evaluations and exports use the average
  bool operator==(const EmaConfig&) const = default;
};

// Lookahead (optim/slow_weights.h).
struct LookaheadConfig {
  std::int64_t k = 0;  // updates between two syncs; 0: off
  double alpha = 0.5;
  bool operator==(const LookaheadConfig&) const = default;
};

struct OptimConfig {
  std::string type = "sgd";  // a name in optimizer_types()
  Options options;
  double lr = 0.05;                // default: the optimiser's (OptimizerType::lr)
  std::int64_t lr_batch_size = 0;  // the batch size that lr is meant for; 0 = lr for every size
  double lr_batch_power = 1;       // lr grows with (batch size / lr_batch_size) to this power
  double weight_decay = 0.0;
  double clip_grad_norm = 0.0;  // joint L2 norm of all gradients; 0 = no clipping
  ScheduleConfig schedule;
  EmaConfig ema;
  LookaheadConfig lookahead;
  std::vector<GroupConfig> groups;
};

struct TrainConfig {
  std::int64_t epochs = 10;
  std::int64_t eval_every = 1;  // epochs between evaluations; the last epoch is always evaluated
  std::vector<LossTerm> loss = {{}};  // a loss, or a weighted sum
  bool plan = true;             // steps are compiled once and replayed where the network allows it
  std::int64_t accumulate = 1;  // micro-batches of a batch
  // Options for training on several processes (trainer/ranks/share.h).
  bool deterministic_ranks = false;
  std::int64_t rank_parts = 4;
  double bucket_mib = 4;
};

struct CheckpointConfig {
  std::int64_t every_epochs = 1;  // 0 = only the last one
  bool best = true;               // also keeps the weights with the best accuracy
  bool operator==(const CheckpointConfig&) const = default;
};

struct LogConfig {
  std::int64_t every_steps = 50;  // steps between lines of metrics.jsonl
  bool tensorboard = false;       // also writes an event file for TensorBoard
  bool layers = true;             // times single layers in some of the steps
  bool operator==(const LogConfig&) const = default;
};

// Ends a run whose validation results stop improving.
struct EarlyStopConfig {
  std::optional<std::int64_t> patience;  // evaluations without improvement; none: never
  std::string metric = "val_loss";       // or val_acc
  double min_delta = 0;                  // smallest improvement that counts, in nats or %
  bool operator==(const EarlyStopConfig&) const = default;
};

// Gates: a run that misses one ends with exit code 1.
struct ExpectConfig {
  std::optional<double> test_acc_min;   // percent, after the last epoch
  std::optional<double> test_iou_min;   // mean over the classes in percent, after the last epoch
  std::optional<double> test_loss_max;  // after the last epoch
  bool operator==(const ExpectConfig&) const = default;
};

struct ExperimentConfig {
  std::int64_t schema = 1;
  std::string name;
  std::int64_t seed = 1;
  std::vector<std::string> tags;  // words of the user, for tables
  std::string note;
  std::vector<std::string> plugins;  // absolute paths; already opened
  Device device;
  ComputePrecision precision = ComputePrecision::f32;
  std::int64_t threads = 0;  // 0 = all cores
  DataConfig data;
  ModelConfig model;
  ConvConfig conv;
  std::optional<QuantConfig> quant;  // none: weights and activations stay f32
  Options sparsity;                  // all keys of sparsity_fields(); empty: no pruning
  OptimConfig optim;
  TrainConfig train;
  CheckpointConfig checkpoint;
  LogConfig log;
  EarlyStopConfig early_stop;
  ExpectConfig expect;

  // Origins of the values ("mnist.yaml:12", "override") by dotted path ("train.epochs"). Values
  // that are not listed are defaults.
  std::map<std::string, std::string> origins;
};

// Reads a file (or a shipped config: find_config()) and its base files; overrides are
// "dotted.path=YAML value", applied in order.
CONVSCOPE_API ExperimentConfig load_config(const std::string& path,
                                           const std::vector<std::string>& overrides = {});

// Returns the text of a file that `extends` names; throws Error when there is none.
using ConfigReader = std::function<std::string(const std::string& path)>;
// Parses a text in memory. Never crashes, whatever the text.
CONVSCOPE_API ExperimentConfig parse_config_text(std::string_view yaml, std::string_view file_name,
                                                 const ConfigReader& reader = {},
                                                 const std::vector<std::string>& overrides = {});

// Returns the resolved config as YAML that loads to the same config. With `with_origins`, a comment
// after each value that is not a default says where the value comes from.
CONVSCOPE_API std::string to_yaml(const ExperimentConfig& config, bool with_origins = false);

// One line of `convscope config keys`.
struct ConfigKey {
  std::string path;  // "optim.lr", "layers[conv2d].kernel", "data[mnist].root"
  OptionField field;
};
CONVSCOPE_API std::vector<ConfigKey> config_keys();

}  // namespace convscope
