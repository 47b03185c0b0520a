// SPDX-License-Identifier: Apache-2.0
// shared_training.h: tasks of processes that train together, outside of training steps: checks that
// they agree, copies of weights, evaluation, stop signals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/ranks/share.h"
#include "experiments/trainer/training_state.h"
#include "optim/gradient_exchange.h"

namespace convscope {

// Returns how this process shares the batches of a config. Fails with kConfig when a batch has
// fewer images, or a deterministic sum has fewer parts, than there are processes. Also fails when
// the batch is computed in chunks although quantisers or masks need whole batches.
CONVSCOPE_API Share share_of(const ExperimentConfig& config, ProcessGroup* group);

// Returns how many images of a full batch this process computes at once: those of its largest
// chunk.
CONVSCOPE_API std::int64_t images_at_once(std::int64_t batch_size, const Share& share);

// Returns an object that sums gradients and running statistics over the processes. Returns null
// when batches are not shared. Must be called before steps are compiled, because it moves the
// gradients in memory.
CONVSCOPE_API std::unique_ptr<GradientExchange> exchange_of(Module& model, Device device,
                                                            const Share& share);

// Returns one line for the log.
CONVSCOPE_API std::string share_text(const Share& share, const GradientExchange& exchange);

// Checks that every process has the same network, data and program version; the error names a
// process that differs. Copies process 0's weights and buffers to all, bit by bit.
CONVSCOPE_API void check_same(ProcessGroup& group, const std::string& what,
                              const std::string& value);
CONVSCOPE_API void broadcast_network(ProcessGroup& group, Module& model);
// Checks that all processes hold the same weights after an epoch; a failure is a bug or a hardware
// fault. Compares f32 tensors: parameters and buffers.
CONVSCOPE_API void check_same_network(ProcessGroup& group, Module& model);
// Returns a checksum of sizes, labels and images.
CONVSCOPE_API std::string checksum_of(const Dataset& data);

// Replaces tensors of a network's quantisers by their means over all processes, after a step in
// which they calibrated on different images.
CONVSCOPE_API void average_quantizers(ProcessGroup& group, Module& model);

// Returns the batches rank, rank + size, .. of a data set, which this process evaluates.
// combined_evaluation() joins the results of all processes in the order of the batches, so the bits
// of the joined results do not depend on the number of processes.
CONVSCOPE_API Dataset batches_of_rank(const Dataset& data, std::int64_t batch_size,
                                      const Share& share);
CONVSCOPE_API Evaluation combined_evaluation(ProcessGroup& group, const Evaluation& own,
                                             const std::vector<double>& batch_loss_sums,
                                             std::int64_t whole_images, const Loader& train);

// Returns a stop signal that this process or another process of its group has received, or 0.
CONVSCOPE_API int stop_signal();
// Returns the stop signal at the same point in all processes.
CONVSCOPE_API int agreed_stop(ProcessGroup* group);

}  // namespace convscope
