// SPDX-License-Identifier: Apache-2.0
// export_forms.h: the formats of `convscope export`, and the comparison of networks that checks a
// written file.
#pragma once

#include <memory>
#include <string>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/training_state.h"
#include "layers/module.h"
#include "sparsity/pruner.h"

namespace convscope {

struct ExportArguments {
  std::string run, compact, quantised, sparse, onnx, weights = "last";
  bool fold_batch_norm = false;  // for the ONNX file
  bool reduce_range = false;     // for the ONNX file
};

// Writes the smaller dense network of a pruned run, as a checkpoint with its config, and prints
// what it saves.
void export_compact(const ExportArguments& arguments);

// The network of a run with its masks, from its checkpoint.
struct TrainedNetwork {
  std::string run, checkpoint;
  ExperimentConfig config;  // config of the network in the checkpoint
  std::shared_ptr<Module> model;
  std::unique_ptr<Pruner> pruner;  // null: no masks
  TrainingState state;
  Shape sample;  // [C,H,W]
  int classes = 0;
};
TrainedNetwork trained_network(const ExportArguments& arguments);

inline constexpr int kExportChecks = 4;  // number of batches of random images

Tensor random_images(const Shape& shape, std::uint64_t seed);

struct OutputDifference {
  double largest = 0, largest_output = 0;
};
// Returns the difference between the outputs of two networks in eval mode on random images.
OutputDifference difference(Module& a, Module& b, const Shape& batch, Device device);

}  // namespace convscope
