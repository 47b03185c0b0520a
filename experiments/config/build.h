// SPDX-License-Identifier: Apache-2.0
// build.h: from a config to the network and its optimiser, through the tables of models, layers
// and optimisers.
#pragma once

#include <memory>

#include "experiments/config/experiment_config.h"
#include "layers/module.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"

namespace convscope {

// An error when the device does not multiply in the config's precision: the kernels of the CPU
// multiply in f32 (and f64) only.
CONVSCOPE_API void check_precision(const ExperimentConfig& config);

// The network for images of `sample_shape` [C,H,W]. An error when conv.per_layer names a
// convolution that the network does not have.
CONVSCOPE_API std::shared_ptr<Module> build_model(const ExperimentConfig& config,
                                                  const Shape& sample_shape, int classes);

// The optimiser over all parameters of `model`. Each parameter goes to the first group of
// config.optim.groups whose `match` fits, the rest to the default group, or to one for the rate
// that their layer asks for (Module::scale_learning_rate); a group of the config that gets nothing
// is an error.
CONVSCOPE_API std::unique_ptr<Optimizer> build_optimizer(const ExperimentConfig& config,
                                                         const Module& model);

// Learning rate at a point of the run: batch size, schedule and warm-up of the config.
CONVSCOPE_API double learning_rate(const ExperimentConfig& config, const SchedulePoint& point);

// Shape [C,H,W] of one image of the config's data set and its number of classes, from the data
// set's table entry when it knows them without loading, else by loading it.
struct SampleInfo {
  Shape shape;
  int classes = 0;
};
CONVSCOPE_API SampleInfo sample_info(const ExperimentConfig& config);

}  // namespace convscope
