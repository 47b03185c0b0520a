// SPDX-License-Identifier: Apache-2.0
// build.cpp: builds the network and its optimiser from a config, by the tables of models, layers
// and optimisers.
#include "experiments/config/build.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "datasets/dataset.h"
#include "framework/error_phase.h"
#include "framework/registry.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/policy_text.h"
#include "optim/slow_weights.h"

namespace convscope {
namespace {

// Matches * with any text and ? with any one letter.
bool fits_glob(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {  // extend the last star by one letter
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

void check_per_layer(const ConvConfig& conv, const ModelConfig& model,
                     const std::set<std::string>& asked) {
  const std::vector<std::string> known(asked.begin(), asked.end());
  for (const auto& [layer, policy] : conv.per_layer) {
    if (asked.contains(layer)) continue;
    for (const LayerSpec& spec : model.layers) {
      if (spec.name != layer || !spec.options.has("algorithm")) continue;
      if (spec.type != "conv2d" && spec.type != "conv1d") {
        fail(ErrorKind::kConfig, "conv.per_layer",
             cat("expected the name of a conv2d, got '", layer, "', a ", spec.type,
                 ", whose algorithm is a separate key: layers.<number>.algorithm"));
      }
      fail(ErrorKind::kConfig, "conv.per_layer",
           cat("expected the algorithm of layer '", layer,
               "' in one place, got it here and as 'algorithm' of the layer"));
    }
    if (finds_itself(layer) || conv2d_algorithms(DeviceType::cpu).find(layer) != nullptr) {
      fail(ErrorKind::kConfig, "conv.per_layer",
           cat("expected the name of a convolution of the network, got the algorithm '", layer,
               "'; write a list of algorithms with brackets, [a, b], or in quotes, 'a,b'"));
    }
    std::string near = nearest_word(layer, known);
    // Names of layers may contain dots, so the mistyped direction in c1.forwrd looks like a part of
    // a layer's name.
    const std::size_t dot = layer.rfind('.');
    if (dot != std::string::npos && std::ranges::count(known, layer.substr(0, dot)) > 0) {
      const std::string key =
          nearest_word(layer.substr(dot + 1), {"forward", "backward_data", "backward_weight"});
      if (!key.empty()) near = cat(layer.substr(0, dot), ".", key);
    }
    fail(ErrorKind::kConfig, "conv.per_layer",
         cat("expected the name of a convolution of the network, got '", layer, "'",
             near.empty() ? "" : cat("; did you mean '", near, "'?"),
             known.empty() ? " (the network has none)" : cat(" (known: ", join(known), ")")));
  }
}

// Reports every error about sizes as an error of the config, whatever function throws it.
std::shared_ptr<Module> network_of(const ModelConfig& model, const Shape& input, int classes,
                                   LayerContext& context) {
  try {
    if (!model.layers.empty()) return build_layers(model.layers, input, context);
    if (!context.point_grid.empty()) {
      fail(ErrorKind::kConfig, "model",
           cat("expected 'layers' that begin with 'sparse_points', because the samples of the data "
               "set are points, got model '",
               model.type, "', which takes images"));
    }
    return model_types().get(model.type).build(model.options, input, classes, context);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalid) throw;
    fail(ErrorKind::kConfig, "model", error.what());
  }
}

// A batch that is B times larger makes 1/B of the steps, each with a less noisy gradient. Goyal et
// al. 2017 (arXiv:1706.02677) multiply the learning rate by B, other authors by the square root of
// B.
double base_learning_rate(const ExperimentConfig& config) {
  const OptimConfig& optim = config.optim;
  if (optim.lr_batch_size == 0) return optim.lr;
  const double ratio =
      static_cast<double>(config.data.batch_size) / static_cast<double>(optim.lr_batch_size);
  return optim.lr * std::pow(ratio, optim.lr_batch_power);
}

}  // namespace

void check_precision(const ExperimentConfig& config) {
  if (config.device.type != DeviceType::cpu || config.precision == ComputePrecision::f32) return;
  fail(ErrorKind::kUnavailable, "precision",
       cat("expected precision f32 because the CPU multiplies in f32 only, got ",
           name_of(config.precision), "; use device: cuda"));
}

namespace {

// Fails when quant.execute requests integer arithmetic but the network cannot use it. Only compiled
// steps use integer arithmetic. Half precision is refused, because a layer without an integer
// implementation would then compute in half precision: neither in the trained f32 nor in integers.
void check_execution(const ExperimentConfig& config, bool has_rows) {
  if (config.quant->execute == QuantExecute::fake) return;
  if (has_rows) {
    fail(ErrorKind::kConfig, "quant.execute",
         "expected fake for a network on sites, because int8 runs in planned steps and sites "
         "change from batch to batch, got int8");
  }
  if (is_half(factor_type(config.precision))) {
    fail(ErrorKind::kConfig, "quant.execute",
         cat("expected precision f32 or tf32, because int8 replaces f32 products, got ",
             name_of(config.precision)));
  }
  if (!config.train.plan) {
    fail(ErrorKind::kConfig, "quant.execute",
         "expected train.plan true, because int8 runs in planned steps, got false");
  }
}

// Fails when an option of a loss does not have one number for each class.
void check_losses(const ExperimentConfig& config, int classes) {
  for (const LossTerm& term : config.train.loss) {
    for (const auto& [name, value] : term.options.values()) {
      const auto* const numbers = std::get_if<std::vector<double>>(&value);
      if (numbers == nullptr || std::ssize(*numbers) == classes) continue;
      fail(ErrorKind::kConfig, term.place.empty() ? "train.loss" : "config",
           cat(term.place, term.place.empty() ? "" : "train.loss: ", "expected ", classes,
               " numbers of ", name, " because the data set has ", classes, " classes, got ",
               numbers->size()));
    }
  }
}

}  // namespace

std::shared_ptr<Module> build_model(const ExperimentConfig& config, const Shape& sample_shape,
                                    int classes) {
  backend_of(config.device);  // fails when the device is not available
  check_precision(config);
  check_losses(config, classes);
  if (sample_shape.rank() != 3 && sample_shape.rank() != 2) {
    fail(ErrorKind::kData, "model",
         cat("expected images [C,H,W] or points [M,D+C], got ", sample_shape));
  }
  const Shape input = batch_shape(1, sample_shape);

  std::set<std::string> asked;  // every convolution requests its policy
  LayerContext context;
  context.seed = static_cast<std::uint64_t>(config.seed);
  context.device = config.device;
  context.precision = config.precision;
  const DatasetType& data = dataset_types().get(config.data.set);
  if (data.point_grid) context.point_grid = data.point_grid(config.data.options);
  context.conv_policy = [&config, &asked](const std::string& layer) {
    asked.insert(layer);
    Conv2dPolicy policy = config.conv.of(layer);
    policy.layout = config.conv.layout;
    return policy;
  };
  const std::shared_ptr<Module> network = network_of(config.model, input, classes, context);
  check_per_layer(config.conv, config.model, asked);
  if (config.quant) {
    check_execution(config, context.had_rows);
    in_phase(ErrorKind::kConfig,
             [&] { apply_quantization(*network, *config.quant, config.device); });
  }
  const Shape output = in_phase(ErrorKind::kConfig, [&] { return network->output_shape(input); });
  const bool has_pixels = output.rank() == 4;  // a class for each pixel
  if ((!has_pixels && output.rank() != 2) || output[0] != 1 || output[1] != classes) {
    fail(ErrorKind::kConfig, "model",
         cat("expected an output of shape ", Shape{1, classes}, " because the data set has ",
             classes, " classes, got ", output));
  }
  return network;
}

void check_labels_fit(const ExperimentConfig& config, const Module& model,
                      const SampleInfo& sample) {
  const Shape output = model.output_shape(batch_shape(1, sample.shape));
  Shape wanted{1, sample.classes};
  for (const std::int64_t size : sample.labels) wanted.push_back(size);
  const bool has_pixels = sample.labels.rank() > 0;
  if (output != wanted) {
    fail(ErrorKind::kConfig, "model",
         cat("expected an output of shape ", wanted, " because the data set '", config.data.set,
             "' has a class for each ", has_pixels ? "pixel" : "image", ", got ", output,
             output.rank() != 4 ? "; the model unet has such an output"
             : has_pixels       ? ", another number of pixels"
                                : ", a class for each pixel; use another model"));
  }
  if (config.expect.test_iou_min && !has_pixels) {
    fail(ErrorKind::kConfig, "expect.test_iou_min",
         cat("expected a data set with a class for each pixel, such as synthetic_segmentation, got "
             "'",
             config.data.set, "', which has a class for each image; use expect.test_acc_min"));
  }
}

bool is_running_statistic(std::string_view buffer) {
  return buffer.ends_with("running_mean") || buffer.ends_with("running_var");
}

namespace {

// Returns the names of the first and the last weight with two or more axes.
std::pair<std::string, std::string> end_weights(const Module& model) {
  std::pair<std::string, std::string> out;
  for (const NamedParameter& parameter : model.parameters()) {
    if (parameter.variable.value().rank() < 2) continue;
    if (out.first.empty()) out.first = parameter.name;
    out.second = parameter.name;
  }
  return out;
}

}  // namespace

std::unique_ptr<Optimizer> build_optimizer(const ExperimentConfig& config, const Module& model) {
  const OptimConfig& optim = config.optim;
  std::vector<ParameterGroup> groups;
  for (const GroupConfig& group : optim.groups) {
    groups.push_back({.name = group.match,
                      .parameters = {},
                      .lr_scale = group.lr_scale,
                      .weight_decay = group.weight_decay.value_or(optim.weight_decay)});
  }
  // Step sizes of quantisers get their own group, with another learning rate and no weight decay,
  // unless a group of the config matches them.
  const std::size_t steps = groups.size();
  groups.push_back({.name = "quantiser steps",
                    .parameters = {},
                    .lr_scale = config.quant ? config.quant->lr_scale : 1.0,
                    .weight_decay = 0.0});
  groups.push_back(
      {.name = "default", .parameters = {}, .lr_scale = 1.0, .weight_decay = optim.weight_decay});

  // Layers may request another rate for some parameters (Module::scale_learning_rate).
  const std::size_t rest = groups.size() - 1;
  const auto group_of_scale = [&](double scale) {
    for (std::size_t i = rest; i < groups.size(); ++i) {
      if (groups[i].lr_scale == scale) return i;
    }
    groups.push_back({.name = cat("lr_scale ", scale),
                      .parameters = {},
                      .lr_scale = scale,
                      .weight_decay = optim.weight_decay});
    return groups.size() - 1;
  };

  std::vector<OptimParameter> all;
  std::vector<std::string> names;
  const auto [first, last] = end_weights(model);
  for (const NamedParameter& parameter : model.parameters()) {
    const bool is_end = parameter.name == first || parameter.name == last;
    all.push_back({parameter.name, parameter.variable, is_end});
    names.push_back(parameter.name);
    std::size_t i = 0;
    while (i < optim.groups.size() && !fits_glob(optim.groups[i].match, parameter.name)) ++i;
    if (i == steps && !belongs_to_quantizer(parameter.name)) i = group_of_scale(parameter.lr_scale);
    groups[i].parameters.push_back(all.back());
  }
  for (std::size_t i = 0; i < optim.groups.size(); ++i) {
    if (!groups[i].parameters.empty()) continue;
    fail(ErrorKind::kConfig, "optim.groups",
         cat("expected group '", groups[i].name,
             "' to match a parameter that no earlier group has, "
             "it matches none of ",
             join(names)));
  }
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  check_groups_cover(groups, all);
  std::vector<OptimState> statistics;
  for (const NamedTensor& buffer : model.buffers()) {
    if (is_running_statistic(buffer.name)) statistics.push_back({buffer.name, buffer.tensor});
  }
  return in_phase(ErrorKind::kConfig, [&] {
    return with_slow_weights(
        optimizer_types().get(optim.type).build(std::move(groups), optim.options),
        std::move(statistics),
        {.decay = optim.ema.decay, .k = optim.lookahead.k, .alpha = optim.lookahead.alpha});
  });
}

double learning_rate(const ExperimentConfig& config, const SchedulePoint& point) {
  const ScheduleConfig& schedule = config.optim.schedule;
  std::int64_t warmup_steps = schedule.warmup_steps;
  if (schedule.warmup_epochs > 0) {
    warmup_steps =
        std::llround(schedule.warmup_epochs * static_cast<double>(point.steps_per_epoch));
  }
  return scheduled_rate(schedule.type, schedule.options, base_learning_rate(config), warmup_steps,
                        point);
}

SampleInfo sample_info(const ExperimentConfig& config) {
  const DatasetType& type = dataset_types().get(config.data.set);
  if (type.sample_shape && type.classes > 0) {
    return {type.sample_shape(config.data.options), type.classes,
            type.label_shape ? type.label_shape(config.data.options) : Shape{}};
  }
  const Dataset train =
      in_phase(ErrorKind::kData, [&] { return type.load(config.data.options).train; });
  return {train.sample_shape(), train.classes, train.label_shape()};
}

std::unique_ptr<Pruner> build_pruner(const ExperimentConfig& config, Module& model,
                                     Optimizer* optimizer, const Shape& sample_shape,
                                     std::int64_t total_steps) {
  if (config.sparsity.values().empty()) return nullptr;
  const SparsityOptions options = parse_sparsity(config.sparsity);
  if (options.method == PruneMethod::none) return nullptr;
  const Shape input = batch_shape(1, sample_shape);
  auto pruner = in_phase(ErrorKind::kConfig, [&] {
    return std::make_unique<Pruner>(model, input, options, total_steps,
                                    static_cast<std::uint64_t>(config.seed));
  });
  if (optimizer != nullptr) bind_pruner(pruner.get(), *optimizer);
  return pruner;
}

void bind_pruner(Pruner* pruner, Optimizer& optimizer) {
  if (pruner == nullptr) return;
  std::vector<NamedTensor> state;
  for (const OptimState& entry : optimizer.state()) state.push_back({entry.name, entry.tensor});
  pruner->bind_optimizer_state(state);
}

Shape batch_shape(std::int64_t count, const Shape& sample) {
  Shape out = {count};
  for (const std::int64_t size : sample) out.push_back(size);
  return out;
}

}  // namespace convscope
