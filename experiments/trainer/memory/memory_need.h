// SPDX-License-Identifier: Apache-2.0
// memory_need.h: computes the memory that a config needs before any is allocated. The network, its
// optimiser and its compiled steps are built without memory (framework/memory/unbacked.h), so the
// sizes are those of the run.
//
// The result omits steps that cannot be compiled (they need more), the program itself, and copies
// of the data set on a device, which are made only if there is space.
#pragma once

#include <cstdint>
#include <string>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/ranks/share.h"
#include "framework/memory/memory_room.h"

namespace convscope {

// Facts about a data set, known before or after loading.
struct DataFacts {
  std::int64_t train = 0, test = 0;  // images
  Shape sample;                      // [C,H,W]
  int classes = 0;
  Shape labels = {};  // Dataset::label_shape()
};

struct CONVSCOPE_API MemoryNeed {
  Device device;
  std::int64_t loading_bytes = 0;     // on the CPU while the data set is loaded and split
  std::int64_t data_bytes = 0;        // on the CPU: the data set in training
  std::int64_t batches_bytes = 0;     // on the CPU: what the loaders prepare
  std::int64_t network_bytes = 0;     // on the device, like all below
  std::int64_t update_bytes = 0;      // gradients and their sums, and the state of the optimiser
  std::int64_t step_bytes = 0;        // a training step
  std::int64_t evaluation_bytes = 0;  // the evaluations

  std::int64_t device_bytes() const;
  std::int64_t host_bytes() const;  // everything if the device is the CPU
  std::string text() const;         // "data set 5.4 MiB, batches 0.8 MiB, ..."
};
// Computes the need of one process, which trains on its share of each batch.
CONVSCOPE_API MemoryNeed memory_need(const ExperimentConfig& config, const DataFacts& data,
                                     const Share& share);

// Returns a line for the log. Throws Error of kind kConfig when the config can never fit into this
// machine's memory. Throws Error of kind kUnavailable when the device has too little; another
// device may have enough.
CONVSCOPE_API std::string check_memory(const ExperimentConfig& config, const DataFacts& data,
                                       const Share& share, const ControlGroups& groups = {});

}  // namespace convscope
