// SPDX-License-Identifier: Apache-2.0
// pipeline.cpp: the passes that turn the recorded graph of a network into the graph that runs.
#include "layers/plan/pipeline.h"

#include <map>

namespace convscope {
namespace {

constexpr Pass kPasses[] = {
    {"fuse", true, true,
     "an operation takes over the next one where one kernel does both (register_fusions)"},
    {"integers", true, true,
     "layers with quantised input and weight compute on codes; first, because chains would absorb "
     "the fake quantisers"},
    {"fuse_loss", false, true, "the last linear layer computes the loss in the same kernel"},
    {"batch_lanes", true, false,
     "convolutions of few channels run as one operation with samples in the vector lanes"},
    {"int8_chain", true, false,
     "the first layers of a small network on codes become one operation"},
    {"few_channel_chain", false, true,
     "two convolutions of few channels, each with its activation and pool, become one kernel"},
    {"int8_small_net", false, true, "a whole small network on codes becomes one kernel"},
    {"half_layouts", false, true, "fp16 and bf16 images are stored as NHWC"},
    {"layouts", true, true,
     "f32 images are stored as NCHW16c or NHWC where a minimum cut says that this takes less time"},
    {"linear_tail", false, true, "the last linear layers and the loss become two kernels"},
    {"step_partners", false, true,
     "the last kernel of the backward pass adds the partial gradients of a chain"},
    {"group_small_operations", false, true,
     "the masks of all weights, and their quantisers, run in one launch each"},
};

std::map<std::string_view, void (*)(Graph&)>& table() {
  static std::map<std::string_view, void (*)(Graph&)> runs{
      {"fuse", [](Graph& graph) { graph.fuse("fuse"); }},
      {"fuse_loss", [](Graph& graph) { graph.fuse("fuse_loss"); }}};
  return runs;
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

void run_pass(std::string_view name, Graph& graph) {
  const auto run = table().find(name);
  CONVSCOPE_CHECK(run != table().end(), "pipeline", "expected a pass that is defined, got '", name,
                  "'");
  run->second(graph);
}

void run_passes(Graph& graph) {
  const bool cpu = graph.device().type == DeviceType::cpu;
  for (const Pass& pass : kPasses) {
    if (cpu ? pass.on_cpu : pass.on_cuda) run_pass(pass.name, graph);
  }
}

bool register_pass(std::string_view name, void (*run)(Graph& graph)) {
  table()[name] = run;
  return true;
}

}  // namespace convscope
