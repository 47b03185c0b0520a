// SPDX-License-Identifier: Apache-2.0
// next_batch.h: the kernel between two recorded steps. It stores the results of the previous step,
// and gathers and normalises the next batch without the host. The position of a batch in the epoch
// is computed from its index within the launch and from LaunchStart, which the host sends before
// the launch. With several processes, each process gathers only its share of each batch.
#pragma once

#include <cstdint>

#include "framework/kernel_slot.h"
#include "optim/loss_scale.h"

namespace convscope {

// First step of a launch, in device memory.
struct LaunchStart {
  std::int64_t step = 0;      // of the run
  std::int64_t position = 0;  // index of its first sample in the order of the epoch
};

struct StepOutcome {
  float loss = 0;
  std::int32_t correct = 0;
  LossScale::State scale = {};  // after the step; if the loss is scaled
};

// All pointers are to device memory.
struct NextBatch {
  const LaunchStart* start = nullptr;
  std::int64_t offset = 0;  // samples after LaunchStart::position
  std::int64_t batch = 0;   // 0: only stores results
  std::int64_t channels = 0, plane = 0;

  const std::uint8_t* images = nullptr;        // [N][channels][plane]
  const std::int32_t* image_labels = nullptr;  // [N]
  const std::int32_t* order = nullptr;         // [N]
  const float* levels = nullptr;               // [channels][256]
  float* x = nullptr;                          // [batch][channels][plane]
  std::int32_t* labels = nullptr;              // [batch]

  // Results of the previous step, which the kernel stores in `outcome`. In the first step of a
  // launch there is no previous step, and `outcome` is null.
  const float* loss = nullptr;
  const std::int32_t* correct = nullptr;
  StepOutcome* outcome = nullptr;
  const float* shared_correct = nullptr;  // replaces `correct` where processes share a batch
  std::int32_t* halted = nullptr;         // becomes 1 when the loss is not finite; null: unused
  DeviceLossScale* loss_scale = nullptr;  // becomes the scale of the next step; may be null
};
extern CONVSCOPE_API KernelSlot<void(const NextBatch&)> next_batch_kernel;

// For batches that are computed in parts. After the forward pass of each part, a kernel adds two
// values to facts [2]: the part's terms of the mean loss and of the number of correct answers. Then
// facts is summed over all processes.
struct ShareFacts {
  const float* loss = nullptr;  // mean over the part; null: no images
  const std::int32_t* correct = nullptr;
  float weight = 0;       // the part's fraction of the batch
  bool is_first = false;  // of the parts of this process: replaces facts
  float* facts = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const ShareFacts&)> share_facts_kernel;

}  // namespace convscope
