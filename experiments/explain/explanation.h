// SPDX-License-Identifier: Apache-2.0
// explanation.h: the facts that `convscope explain` collects about a config: the algorithm that
// each policy chooses in each direction, the answers of all algorithms, and the kernels of the
// steps. No step is run, and no data are read.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/config/build.h"
#include "experiments/config/conv_layers.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/step_kernels.h"
#include "sparsity/pruner.h"

namespace convscope {

struct ExplainedDirection {
  std::string policy;  // as in the config
  Decision decision;   // the outcome of the policy
  std::vector<Verdict> verdicts;
  bool asked = true;               // false: no training step computes this direction
  std::optional<LayerKernel> ran;  // the kernel of the training step, if any

  bool is_refused() const { return asked && !decision.error.empty(); }
};

struct ExplainedLayer {
  ConvLayer conv;
  std::array<ExplainedDirection, 3> directions;

  const ExplainedDirection& of(Direction direction) const {
    return directions[static_cast<std::size_t>(direction)];
  }
  bool is_refused() const;
};

// The compiled training or inference step of the network, and its kernels.
struct ExplainedStep {
  const char* mode;
  std::unique_ptr<StepPlan> plan;  // null: kernels.why has the reason
  StepKernels kernels;
  std::string error;  // the refusal that prevents the step, or ""
};

struct Explanation {
  ExperimentConfig config;
  Shape input;  // of a batch
  std::shared_ptr<Module> model;
  std::unique_ptr<Pruner> pruner;  // its masks are in the model
  std::vector<ExplainedLayer> layers;
  std::vector<ExplainedStep> steps;  // training, inference
};

CONVSCOPE_API Explanation explain_config(const ExperimentConfig& config);
// Returns the explanation for images with the shape and classes of `sample`, instead of those of
// the data set.
CONVSCOPE_API Explanation explain_config(const ExperimentConfig& config, const SampleInfo& sample);

// Returns "accepted by a, b": the algorithms that accept the problem and that `auto` may choose.
CONVSCOPE_API std::string acceptance_text(const ExplainedDirection& of);

// Returns the names of `directions`, such as "forward, backward_weight". Returns "" when
// `directions` holds every direction that the layer needs.
CONVSCOPE_API std::string directions_text(const ExplainedLayer& layer,
                                          const std::vector<Direction>& directions);

}  // namespace convscope
