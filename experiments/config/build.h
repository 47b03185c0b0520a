// SPDX-License-Identifier: Apache-2.0
// build.h: builds the network, its optimiser and its masks from a config, by the tables of models,
// layers and optimisers.
#pragma once

#include <memory>
#include <string_view>

#include "experiments/config/experiment_config.h"
#include "layers/module.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "sparsity/pruner.h"

namespace convscope {

// Fails when the device cannot compute in the config's precision: CPU kernels compute only in
// f32 (and f64).
CONVSCOPE_API void check_precision(const ExperimentConfig& config);

// Returns the network for images of `sample_shape` [C,H,W]. Fails when conv.per_layer names a
// convolution that the network does not have.
CONVSCOPE_API std::shared_ptr<Module> build_model(const ExperimentConfig& config,
                                                  const Shape& sample_shape, int classes);

// Returns whether a buffer of a network is a running statistic of batch norm.
CONVSCOPE_API bool is_running_statistic(std::string_view buffer);

// Returns the optimiser of all parameters of `model`. Each parameter goes to the first group of
// config.optim.groups whose `match` fits its name. Other parameters go to the default group, or, if
// their layer requests another learning rate (Module::scale_learning_rate), to a group with that
// rate. Fails when a group of the config stays empty.
// Averages and Lookahead of the config are part of the optimiser.
CONVSCOPE_API std::unique_ptr<Optimizer> build_optimizer(const ExperimentConfig& config,
                                                         const Module& model);

// Returns the pruner, or null when the config prunes nothing. Adds the masks to `model`.
// `optimizer` may be null without training; `sample_shape` is [C,H,W]; `total_steps` counts the
// steps of the whole run.
CONVSCOPE_API std::unique_ptr<Pruner> build_pruner(const ExperimentConfig& config, Module& model,
                                                   Optimizer* optimizer, const Shape& sample_shape,
                                                   std::int64_t total_steps);

// Tells the pruner which optimiser tensors belong to its weights; does nothing for null.
CONVSCOPE_API void bind_pruner(Pruner* pruner, Optimizer& optimizer);

// Returns the learning rate at a point of the run. It depends on the batch size, the schedule and
// the warm-up of the config.
CONVSCOPE_API double learning_rate(const ExperimentConfig& config, const SchedulePoint& point);

// Facts about a sample of the config's data set. They come from the entry of the set in
// dataset_types(), or else from the loaded set.
struct SampleInfo {
  Shape shape;  // [C,H,W]
  int classes = 0;
  Shape labels = {};  // Dataset::label_shape()
};
CONVSCOPE_API SampleInfo sample_info(const ExperimentConfig& config);

// Returns the shape of a batch: the number of samples, then the sizes of a sample.
Shape batch_shape(std::int64_t count, const Shape& sample);

// Fails unless the model gives classes where the data set has labels: one for each image, or one
// for each pixel. Also fails if the config expects an IoU of a data set without labels of pixels.
void check_labels_fit(const ExperimentConfig& config, const Module& model,
                      const SampleInfo& sample);

}  // namespace convscope
