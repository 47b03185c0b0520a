// SPDX-License-Identifier: Apache-2.0
// memory_need.h: what a config would take of memory, known before anything is taken: the network,
// its optimiser and its planned steps are built without memory behind them
// (framework/memory/unbacked.h), so the sizes are those of the run.
//
// Not counted: what steps take that cannot be planned (they take more), the program itself, and
// copies of the data set on a device, which are made where there is room.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/config/experiment_config.h"
#include "framework/memory/memory_room.h"

namespace convscope {

// What is known of a data set before it is loaded, or after.
struct DataFacts {
  std::int64_t train = 0, test = 0;  // images
  Shape sample;                      // [C,H,W]
  int classes = 0;
};

struct CONVSCOPE_API MemoryNeed {
  Device device;
  std::int64_t loading_bytes = 0;     // of the CPU while the data set is loaded and split
  std::int64_t data_bytes = 0;        // of the CPU: the data set in training
  std::int64_t batches_bytes = 0;     // of the CPU: what the loaders prepare
  std::int64_t network_bytes = 0;     // of the device, and all below
  std::int64_t update_bytes = 0;      // gradients, and the state of the optimiser
  std::int64_t step_bytes = 0;        // a training step
  std::int64_t evaluation_bytes = 0;  // the evaluations

  std::int64_t of_device() const;
  std::int64_t of_host() const;  // all, when the device is the CPU
  std::string text() const;      // "data set 5.4 MiB, batches 0.8 MiB, ..."
};
CONVSCOPE_API MemoryNeed memory_need(const ExperimentConfig& config, const DataFacts& data);

// Throws Error of kind kConfig when the config can never fit into the memory of this machine, of
// kind kUnavailable when its device has no room: another device may have. Else one line for a log.
CONVSCOPE_API std::string check_memory(const ExperimentConfig& config, const DataFacts& data,
                                       const ControlGroups& groups = {});

}  // namespace convscope
