// SPDX-License-Identifier: Apache-2.0
// shared_training.h: what a training on several processes needs beside its steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/trainer/ranks/share.h"
#include "experiments/trainer/train_step.h"
#include "optim/gradient_exchange.h"

namespace convscope {

// How this process shares the batches of a config. An error of kind kConfig when it cannot: more
// processes than images in a batch, or than parts of a deterministic sum; a network whose
// quantisers or masks look at a batch as a whole, in chunks.
CONVSCOPE_API Share share_of(const ExperimentConfig& config, ProcessGroup* group);

// Images of a full batch that this process computes at once, at most.
CONVSCOPE_API std::int64_t images_at_once(std::int64_t batch_size, const Share& share);

// The parameters and running statistics of a network, ready to be summed; null when the batches are
// not shared. Before its steps are planned: the gradients move.
CONVSCOPE_API std::unique_ptr<GradientExchange> exchange_of(Module& model, Device device,
                                                            const Share& share);

// One line for the log.
CONVSCOPE_API std::string share_text(const Share& share, const GradientExchange& exchange);

// Every process has the same network, data and version of the program: an error names one that has
// not. Process 0's weights and buffers to all, bit by bit.
CONVSCOPE_API void check_same(ProcessGroup& group, const std::string& what,
                              const std::string& value);
CONVSCOPE_API void broadcast_network(ProcessGroup& group, Module& model);
// After the last step of an epoch all hold the same weights; a failure here is a mistake of ours,
// or of a machine. Of f32 tensors: parameters and buffers.
CONVSCOPE_API void check_same_network(ProcessGroup& group, Module& model);
// A number that differs when the data do: of sizes, labels and images.
CONVSCOPE_API std::string checksum_of(const Dataset& data);

// Tensors of the quantisers of a network become their means over all processes: after a step in
// which they calibrated on different images.
CONVSCOPE_API void average_quantizers(ProcessGroup& group, Module& model);

// Of a data set that is evaluated: batches rank, rank + size, .. of it, as a data set of its own;
// and the results of all, put together in the order of the batches, so that their bits do not
// depend on the number of processes.
CONVSCOPE_API Dataset batches_of_rank(const Dataset& data, std::int64_t batch_size,
                                      const Share& share);
CONVSCOPE_API Evaluation combined_evaluation(ProcessGroup& group, const Evaluation& own,
                                             const std::vector<double>& batch_loss_sums,
                                             std::int64_t whole_images, std::int64_t batch_size);

// A stop signal that this process has got, or another one of its group; 0: none.
CONVSCOPE_API int stop_signal();
// The same at one moment for all processes: each asks at the same place.
CONVSCOPE_API int agreed_stop(ProcessGroup* group);

}  // namespace convscope
