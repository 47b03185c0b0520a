// SPDX-License-Identifier: Apache-2.0
// schema.cpp: the keys of each block of a config: name, type, default, range, meaning, and the
// member that holds the value.
#include "experiments/config/schema.h"

#include <type_traits>

#include "experiments/run_folder/user_words.h"
#include "framework/ops/update_rules/settings.h"
#include "optim/optimizer.h"

namespace convscope::config {
namespace {

constexpr double kMaxCount = 1e12;

template <class T>
constexpr OptionType kTypeOf = OptionType::text;
template <class T>
constexpr OptionType kTypeOf<std::optional<T>> = kTypeOf<T>;
template <>
constexpr OptionType kTypeOf<bool> = OptionType::boolean;
template <>
constexpr OptionType kTypeOf<std::int64_t> = OptionType::integer;
template <>
constexpr OptionType kTypeOf<double> = OptionType::number;
template <>
constexpr OptionType kTypeOf<std::vector<std::string>> = OptionType::texts;

template <class T>
void store(T& member, const OptionValue& value) {
  member = std::get<T>(value);
}
void store(double& member, const OptionValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  member = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}
void store(std::vector<std::string>& member, const OptionValue& value) {
  const auto* words = std::get_if<std::vector<std::string>>(&value);
  member = words != nullptr ? *words : std::vector<std::string>();
}
template <class T>
void store(std::optional<T>& member, const OptionValue& value) {
  member.reset();
  if (!std::holds_alternative<std::monostate>(value)) store(member.emplace(), value);
}

template <class T>
OptionValue load(const T& member) {
  return member;
}
template <class T>
OptionValue load(const std::optional<T>& member) {
  return member ? OptionValue(*member) : OptionValue();
}
// An empty list counts as a missing value, so that resolved configs do not contain it.
OptionValue load(const std::vector<std::string>& member) {
  return member.empty() ? OptionValue() : OptionValue(member);
}

struct Limits {
  double min = -1e300, max = 1e300;
  bool required = false;
};

// The default of a key is the value that its member has in a new Block.
template <class Block, class T>
Key<Block> key(const char* name, T Block::*member, const char* doc, Limits limits = {}) {
  Key<Block> out;
  out.field = {.name = name,
               .type = kTypeOf<T>,
               .default_value = limits.required ? OptionValue() : load(Block{}.*member),
               .doc = doc,
               .required = limits.required,
               .min = limits.min,
               .max = limits.max};
  out.set = [member](Block& block, const OptionValue& value) { store(block.*member, value); };
  out.get = [member](const Block& block) { return load(block.*member); };
  return out;
}

// Adds a check of the value to a key.
template <class Block, class Check>
Key<Block> checked(Key<Block> key, const Check& check) {
  key.set = [set = key.set, check](Block& block, const OptionValue& value) {
    set(block, value);
    check(block);
  };
  return key;
}

void check_schema(std::int64_t schema) {
  CONVSCOPE_CHECK(schema == 1, "config",
                  "expected schema 1, the only format of configs that this version reads, got ",
                  schema);
}

}  // namespace

const Keys<ExperimentConfig>& top_keys() {
  static const Keys<ExperimentConfig> keys = [] {
    Keys<ExperimentConfig> out;
    out.push_back(
        checked(key("schema", &ExperimentConfig::schema, "format version of this file; always 1"),
                [](const ExperimentConfig& config) { check_schema(config.schema); }));
    out.push_back(
        checked(key("name", &ExperimentConfig::name,
                    "name of the experiment and of its folder (default: the file's name)"),
                [](const ExperimentConfig& config) {
                  check_word(config.name, "._-", "because the folder of the runs gets this name");
                }));
    out.push_back(key("seed", &ExperimentConfig::seed, "seed of all random numbers", {.min = 0}));
    out.push_back(checked(key("tags", &ExperimentConfig::tags, "free words for `report --tag`"),
                          [](const ExperimentConfig& config) { check_tags(config.tags); }));
    out.push_back(key("note", &ExperimentConfig::note, "one line about this experiment"));
    out.back().set = [](ExperimentConfig& config, const OptionValue& value) {
      const auto* note = std::get_if<std::string>(&value);
      config.note = note != nullptr ? *note : "";
      check_note(config.note);
    };
    out.back().get = [](const ExperimentConfig& config) {
      return config.note.empty() ? OptionValue() : OptionValue(config.note);
    };
    out.push_back(key("plugins", &ExperimentConfig::plugins,
                      "custom algorithms: plug-in files or folders of them, relative to this file; "
                      "--plugin adds more"));
    Key<ExperimentConfig> device;
    device.field = {.name = "device",
                    .type = OptionType::text,
                    .default_value = std::string("cpu"),
                    .doc = "cpu, cuda or cuda:<index>"};
    device.set = [](ExperimentConfig& config, const OptionValue& value) {
      config.device = Device::parse(std::get<std::string>(value));
    };
    device.get = [](const ExperimentConfig& config) -> OptionValue { return config.device.str(); };
    out.push_back(device);
    Key<ExperimentConfig> precision;
    precision.field = {
        .name = "precision",
        .type = OptionType::text,
        .default_value = std::string("f32"),
        .doc =
            "precision of the operands of convolutions and linear layers; accumulators, weights "
            "and all else stay f32. tf32, bf16 and f16 need device: cuda"};
    for (const ComputePrecision one : kComputePrecisions) {
      precision.field.choices.emplace_back(name_of(one));
    }
    precision.set = [](ExperimentConfig& config, const OptionValue& value) {
      for (const ComputePrecision one : kComputePrecisions) {
        if (std::get<std::string>(value) == name_of(one)) config.precision = one;
      }
    };
    precision.get = [](const ExperimentConfig& config) -> OptionValue {
      return std::string(name_of(config.precision));
    };
    out.push_back(precision);
    out.push_back(key("threads", &ExperimentConfig::threads, "number of CPU threads; 0 = all cores",
                      {.min = 0, .max = 1024}));
    return out;
  }();
  return keys;
}

const Keys<DataConfig>& data_keys() {
  static const Keys<DataConfig> keys = {
      key("set", &DataConfig::set, "the data set", {.required = true}),
      key("batch_size", &DataConfig::batch_size, "batch size: images in one step",
          {.min = 1, .max = 1e6}),
      key("shuffle", &DataConfig::shuffle, "shuffle the training images before each epoch"),
      key("val_split", &DataConfig::val_split, "number of training images set aside for validation",
          {.min = 0, .max = kMaxCount}),
      key("limit", &DataConfig::limit, "number of training images used; 0 = all",
          {.min = 0, .max = kMaxCount}),
      key("prefetch", &DataConfig::prefetch, "prepare the next batches in a background thread"),
  };
  return keys;
}

const Keys<AugmentConfig>& augment_keys() {
  static const Keys<AugmentConfig> keys = {
      key("crop_padding", &AugmentConfig::crop_padding,
          "pixels of zero padding before a random crop; 0 = no crop", {.min = 0, .max = 1024}),
      key("mirror", &AugmentConfig::mirror, "flip half of the images horizontally"),
  };
  return keys;
}

const Keys<ModelConfig>& model_keys() {
  static const Keys<ModelConfig> keys = {
      key("type", &ModelConfig::type, "the network; or give 'layers'", {.required = true}),
  };
  return keys;
}

const Keys<LayerSpec>& layer_keys() {
  static const Keys<LayerSpec> keys = {
      key("type", &LayerSpec::type, "the kind of layer", {.required = true}),
      checked(
          key("name", &LayerSpec::name, "unique name (default: type and number, such as conv2d_1)"),
          [](const LayerSpec& layer) {
            check_word(layer.name, "_-.", "because parameters are named <layer>.<parameter>");
          }),
      key("from", &LayerSpec::from,
          "its inputs: a layer or a list of layers; s.1 = the second result of s, "
          "input = the image (default: the layer before it)"),
  };
  return keys;
}

const Keys<OptimConfig>& optim_keys() {
  static const Keys<OptimConfig> keys = [] {
    Keys<OptimConfig> out = {
        key("type", &OptimConfig::type, "the optimiser"),
        key("lr", &OptimConfig::lr, "learning rate", {.min = 0, .max = 1e6}),
        key("lr_batch_size", &OptimConfig::lr_batch_size,
            "batch size that lr is meant for: data.batch_size scales it; 0 = lr for every size",
            {.min = 0, .max = 1e6}),
        key("lr_batch_power", &OptimConfig::lr_batch_power,
            "lr times (data.batch_size / lr_batch_size) to this power: 1 (Goyal et al. 2017), 0.5",
            {.min = 0, .max = 2}),
        key("weight_decay", &OptimConfig::weight_decay,
            "weight decay: pull of the weights towards 0", {.min = 0, .max = 1e6}),
        key("clip_grad_norm", &OptimConfig::clip_grad_norm,
            "largest L2 norm of all gradients together; 0 = no clipping", {.min = 0}),
    };
    std::vector<std::string> rates;
    for (const auto& [name, type] : optimizer_types().entries()) {
      rates.push_back(cat(name, " ", type.lr));
    }
    out[1].field.default_value = OptionValue();  // resolve.cpp uses the optimiser's
    out[1].field.doc += "; default: " + join(rates);
    return out;
  }();
  return keys;
}

const Keys<ScheduleConfig>& schedule_keys() {
  static const Keys<ScheduleConfig> keys = {
      key("type", &ScheduleConfig::type, "learning rate over time"),
      key("warmup_epochs", &ScheduleConfig::warmup_epochs,
          "warm-up in epochs, during which the rate rises from 0; fractions are allowed",
          {.min = 0, .max = 1e6}),
      key("warmup_steps", &ScheduleConfig::warmup_steps,
          "warm-up in steps; give this key or warmup_epochs", {.min = 0, .max = kMaxCount}),
  };
  return keys;
}

const Keys<EmaConfig>& ema_keys() {
  static const Keys<EmaConfig> keys = {
      key("decay", &EmaConfig::decay,
          "decay of the exponential moving average of the weights, such as 0.999; 0 = no average",
          {.min = 0, .max = kBelowOne}),
      key("evaluate", &EmaConfig::evaluate,
          "evaluations, best.safetensors, model files, eval and export use the average; false: "
          "the trained weights"),
  };
  return keys;
}

const Keys<LookaheadConfig>& lookahead_keys() {
  static const Keys<LookaheadConfig> keys = {
      key("k", &LookaheadConfig::k,
          "Lookahead: updates of the fast weights between two updates of the slow weights, such "
          "as 5; 0 = off",
          {.min = 0, .max = kMaxCount}),
      key("alpha", &LookaheadConfig::alpha,
          "Lookahead: how far the slow weights move towards the fast weights, from 0 to 1",
          {.min = 0, .max = 1}),
  };
  return keys;
}

const Keys<GroupConfig>& group_keys() {
  static const Keys<GroupConfig> keys = {
      key("match", &GroupConfig::match,
          "parameter names; * matches any text, ? any letter: '*.bias'", {.required = true}),
      key("lr_scale", &GroupConfig::lr_scale, "factor on the learning rate",
          {.min = 0, .max = 1e6}),
      key("weight_decay", &GroupConfig::weight_decay,
          "weight decay of this group (default: the optimiser's)", {.min = 0, .max = 1e6}),
  };
  return keys;
}

const Keys<TrainConfig>& train_keys() {
  static const Keys<TrainConfig> keys = {
      key("epochs", &TrainConfig::epochs, "number of passes over the training images",
          {.min = 1, .max = 1e6}),
      key("eval_every", &TrainConfig::eval_every,
          "epochs between evaluations; the last epoch is always evaluated", {.min = 1, .max = 1e6}),
      key("plan", &TrainConfig::plan,
          "compile the step once and replay it; false: a dynamic graph in every step"),
      key("accumulate", &TrainConfig::accumulate,
          "gradient accumulation: compute each batch as this many micro-batches, one after the "
          "other, then update once",
          {.min = 1, .max = 4096}),
      key("deterministic_ranks", &TrainConfig::deterministic_ranks,
          "same bits for 1, 2, 4, .. processes: each batch is computed in rank_parts parts; "
          "slower"),
      key("rank_parts", &TrainConfig::rank_parts,
          "with deterministic_ranks: parts of a batch, a power of two; also the largest number "
          "of "
          "processes",
          {.min = 1, .max = 1024}),
      key("bucket_mib", &TrainConfig::bucket_mib,
          "bucket size in MiB: gradients that are sent together during the backward pass",
          {.min = 0.01, .max = 1024}),
  };
  return keys;
}

const Keys<LossTerm>& loss_keys() {
  static const Keys<LossTerm> keys = [] {
    Keys<LossTerm> out = {
        key("type", &LossTerm::type, "the loss"),
        key("weight", &LossTerm::weight, "factor of the loss in the sum", {.min = 0, .max = 1e6}),
    };
    out[0].field.choices = loss_types().names();
    return out;
  }();
  return keys;
}

const OptionField& loss_field() {
  static const OptionField field = {
      .name = "loss",
      .type = OptionType::text,
      .default_value = std::string(kDefaultLoss),
      .doc =
          "what training minimises: a name, a map {type: NAME, options}, or a list of such maps "
          "for a weighted sum",
      .choices = loss_types().names()};
  return field;
}

const Keys<CheckpointConfig>& checkpoint_keys() {
  static const Keys<CheckpointConfig> keys = {
      key("every_epochs", &CheckpointConfig::every_epochs,
          "epochs between checkpoints; 0 = only the last one", {.min = 0, .max = 1e6}),
      key("best", &CheckpointConfig::best, "also keep the weights with the best accuracy"),
  };
  return keys;
}

const Keys<LogConfig>& log_keys() {
  static const Keys<LogConfig> keys = {
      key("every_steps", &LogConfig::every_steps, "steps between lines of metrics.jsonl",
          {.min = 1, .max = kMaxCount}),
      key("tensorboard", &LogConfig::tensorboard, "write an event file for TensorBoard"),
      key("layers", &LogConfig::layers,
          "time each layer in some of the steps, for layers.csv; costs less than 1 %"),
  };
  return keys;
}

const Keys<EarlyStopConfig>& early_stop_keys() {
  static const Keys<EarlyStopConfig> keys = [] {
    Keys<EarlyStopConfig> out = {
        key("patience", &EarlyStopConfig::patience,
            "number of evaluations without improvement after which training stops; needs "
            "data.val_split",
            {.min = 1, .max = 1e6}),
        key("metric", &EarlyStopConfig::metric, "monitored quantity: val_loss or val_acc"),
        key("min_delta", &EarlyStopConfig::min_delta,
            "smallest improvement that counts: of the loss, or in percentage points",
            {.min = 0, .max = 100}),
    };
    out[1].field.choices = {"val_loss", "val_acc"};
    return out;
  }();
  return keys;
}

const Keys<ExpectConfig>& expect_keys() {
  static const Keys<ExpectConfig> keys = {
      key("test_acc_min", &ExpectConfig::test_acc_min,
          "gate: lowest accuracy on the test images after the last epoch, in percent",
          {.min = 0, .max = 100}),
      key("test_iou_min", &ExpectConfig::test_iou_min,
          "gate: lowest mean IoU on the test images after the last epoch, in percent; needs a "
          "class "
          "for each pixel",
          {.min = 0, .max = 100}),
      key("test_loss_max", &ExpectConfig::test_loss_max,
          "gate: highest loss on the test images after the last epoch", {.min = 0}),
  };
  return keys;
}

const Keys<Conv2dPolicy>& policy_keys() {
  static const Keys<Conv2dPolicy> keys = {
      key("forward", &Conv2dPolicy::forward, "algorithm of y = x * w"),
      key("backward_data", &Conv2dPolicy::backward_data, "algorithm of dx"),
      key("backward_weight", &Conv2dPolicy::backward_weight, "algorithm of dw"),
  };
  return keys;
}

const Keys<ConvConfig>& conv_keys() {
  static const Keys<ConvConfig> keys = [] {
    Keys<ConvConfig> out = {
        key("layout", &ConvConfig::layout,
            "layout of images between layers of a compiled step: nchw; nchw16c (CPU: NCHW16c, "
            "where a layer supports it); auto (CPU: NCHW16c where it is faster; GPU with "
            "fp16/bf16: NHWC)"),
    };
    out[0].field.choices = {"auto", "nchw", "nchw16c"};
    return out;
  }();
  return keys;
}

const OptionField& algorithm_field() {
  static const OptionField field = {
      .name = "algorithm",
      .type = OptionType::text,
      .default_value = std::string("auto"),
      .doc =
          "algorithm of all directions: a name, auto (least estimated time), measure, check:a,b, "
          "or a list a,b,auto (the first that accepts)"};
  return field;
}

}  // namespace convscope::config
