// SPDX-License-Identifier: Apache-2.0
// net_bench.h: times a whole network on random images, or on points of a data set, in a steady
// state: the forward pass of inference, or a training step of forward, loss, backward and update.
//
// Each case (mode and batch size) begins with uncounted runs, in which quantisers are calibrated,
// graphs are compiled and memory is allocated. All later runs count. The allocator's peak is that
// of the counted runs; the process's peak includes the uncounted runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "experiments/bench/statistics.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/step_kernels.h"
#include "layers/module.h"
#include "sparsity/pruner.h"

namespace convscope {

enum class NetMode { inference, train };
CONVSCOPE_API const char* name_of(NetMode mode);

struct NetBenchOptions {
  double min_seconds = 2;  // counted time of each case
  int least_samples = 10;
  int most_samples = 5000;
  int warm_up = 3;  // uncounted runs
  // Measures the CPU time of the process instead of wall time, for one thread on a busy machine.
  // The times of layers and of parts of a step remain wall times.
  bool cpu_clock = false;
  std::uint64_t seed = 1;
  Pruner* pruner = nullptr;  // for a network with masks: sets pruned weights to 0 after each update
  // The batch is the first samples of this data set, repeated if the set has fewer. Without a set,
  // the batch is images of normal random numbers. A network on points needs a set, because random
  // numbers cannot be positions.
  const Dataset* samples = nullptr;
};

// Median milliseconds of the parts of a training step.
struct StepParts {
  double forward_ms = 0, backward_ms = 0, update_ms = 0;
};

struct NetBenchRow {
  std::string net;  // name of the config or model
  NetMode mode = NetMode::inference;
  // "recorded" (experiments/trainer/recorded_steps.h), "planned" (layers/plan/step_plan.h), or
  // "dynamic: <why>"
  std::string execution;
  std::string arithmetic = "f32";  // used in this mode: also "fake-quant f32", "int8"
  std::int64_t batch = 0;
  Shape image;  // [C,H,W], or [M,D+C] of points
  int threads = 0;
  std::int64_t parameters = 0;
  double flops = 0;  // of convolutions and linear layers, textbook loops, for one run
  TimingSummary time;
  StepParts parts;  // train only
  double images_per_second = 0;
  double gflops_effective = 0;
  // The framework's allocator counts tensors, workspace, weights and optimiser state.
  std::int64_t peak_bytes = 0;
  std::int64_t workspace_peak_bytes = 0;
  std::int64_t resident_bytes = 0;             // between the runs
  std::int64_t system_allocations = 0;         // during the counted runs
  std::int64_t process_peak_bytes = 0;         // peak resident set of the process in this case
  std::optional<double> cores_of_others = {};  // cores busy with other programs
};

// Measures one case. Leaves `model` in train or eval mode as the case needs it; train mode changes
// its weights slightly. Throws an error of kind kRun when the loss is not finite.
CONVSCOPE_API NetBenchRow bench_net(const ExperimentConfig& config, Module& model,
                                    const Shape& image, int classes, NetMode mode,
                                    std::int64_t batch, const NetBenchOptions& options);

// The times of a single layer on random numbers. Sparse layers are an error: the sites of their
// input belong to a batch of the whole network, and a layer that is timed separately has no such
// batch.
struct NetLayerRow {
  std::string layer, kind;
  Shape input, output;
  double flops = 0;          // of the forward
  double forward_ms = 0;     // medians
  double backward_ms = 0;    // of all gradients that the network needs; train only
  std::string algorithms;    // used here, one per direction, joined by '/'; "-": not run
  std::string step_kernels;  // used in a step of the network; one kernel may compute several layers
  std::string step;          // how that step runs: "planned", "recorded", "dynamic"
  double bytes_forward = 0;  // input and output, each once
};
// Measures each layer separately. `step` holds the kernels of a step of the whole network, which
// may differ.
CONVSCOPE_API std::vector<NetLayerRow> bench_layers(Module& model, const Shape& input, NetMode mode,
                                                    Device device, const NetBenchOptions& options,
                                                    const StepKernels& step);

// Throws the error that bench_layers() has for sparse layers, but before anything is timed.
CONVSCOPE_API void check_layers_alone(Module& model);

// The median times of one operation of the compiled network, including the operations fused into
// it. bench_operations() returns no rows when the network cannot be compiled.
struct NetOpRow {
  std::string layer, text;
  double forward_ms = 0, backward_ms = 0;
};
CONVSCOPE_API std::vector<NetOpRow> bench_operations(Module& model, const Shape& input, int classes,
                                                     NetMode mode, const NetBenchOptions& options,
                                                     const Loss& loss = Loss());

// Returns normal random images [size, image...] and random labels, on the CPU. There is a label for
// each image, or for each pixel if the model's output has pixels.
CONVSCOPE_API Batch random_batch(const Module& model, const Shape& image, std::int64_t size,
                                 int classes, std::uint64_t seed);
// Brings a quantised network to its state after the first training steps: its quantisers are
// active, know the masks and are calibrated. Until then no step can be compiled.
CONVSCOPE_API void settle_quantizers(const ExperimentConfig& config, Module& model,
                                     const Tensor& x);

// FLOPs of the convolutions and linear layers, in a forward pass and in a training step (without
// the gradient of the image). Sparse layers use the sites of the last batch that has run.
struct NetFlops {
  double forward = 0, step = 0;
};
CONVSCOPE_API NetFlops net_flops(Module& model, const Shape& input);

}  // namespace convscope
