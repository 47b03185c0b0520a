// SPDX-License-Identifier: Apache-2.0
// pipeline.h: the passes that turn the recorded graph of a network into the graph that runs. The
// list, in order, is in pipeline.cpp. A pass is defined in the folder that it is about, and it
// registers itself there.
#pragma once

#include <span>
#include <string>

#include "framework/graph/graph.h"

namespace convscope {

struct Pass {
  std::string_view name;
  bool on_cpu, on_cuda;  // the devices of the graphs that it changes
  std::string_view what;
};

// Returns the list, and runs all of its passes for the device of the graph.
CONVSCOPE_API std::span<const Pass> passes();
CONVSCOPE_API void run_passes(Graph& graph);
CONVSCOPE_API void run_pass(std::string_view name, Graph& graph);

// Defines the pass of the list that has this name.
CONVSCOPE_API bool register_pass(std::string_view name, void (*run)(Graph& graph));

}  // namespace convscope
