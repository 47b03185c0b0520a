// SPDX-License-Identifier: Apache-2.0
// gradient_exchange.h: sums the gradients of a network over all processes of a group while the
// backward pass still runs.
//
// Idea      The backward pass ends at the first layer, so the gradients of the last layers are
//           there first. They lie side by side in one block of memory, in that order, cut into
//           buckets; a bucket travels as soon as its last gradient is there.
//           Li et al. 2020, "PyTorch Distributed", arXiv:2006.15704
// Gradients The block is the memory of the gradients themselves (Variable::grad), so nothing is
//           copied. A step gives the gradient of the mean loss over this process's images; times
//           its part of the batch, summed, it is that of the mean over all images.
// Averages  Running statistics of batch norm, which each process takes of its own images, become
//           their weighted mean in each step: so all processes hold the same network at any time.
// Chunks    With SumOrder::tree a process computes several chunks of a batch one after the other,
//           and adds them as the tree does (process_group.h).
//
// A step    exchange.begin_step();
//           for each chunk:  forward;  exchange.begin_backward(weight);
//                            backward, exchange.ready(parameter) for each that is complete;
//                            exchange.end_backward();
//           exchange.finish();   // the gradients are those of the whole batch
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "framework/distributed/reducer.h"
#include "optim/optimizer.h"

namespace convscope {

struct ExchangeOptions {
  SumOrder order = SumOrder::any;  // of the reducer
  // A bucket that is smaller starts earlier, and each costs the latency of the network once more.
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  int chunks = 1;  // of this process in each step, a power of two
};

// Which parameters travel together: positions in `parameters`, from the last one to the first.
CONVSCOPE_API std::vector<std::vector<std::size_t>> gradient_buckets(
    const std::vector<OptimParameter>& parameters, std::int64_t bucket_bytes);

class CONVSCOPE_API GradientExchange {
 public:
  // Moves the gradients into the block: plans that were made before are not current any more.
  // averages: f32 tensors on the same device.
  GradientExchange(std::unique_ptr<Reducer> reducer, std::vector<OptimParameter> parameters,
                   std::vector<Tensor> averages, const ExchangeOptions& options);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  void begin_step();
  // After the forward pass of a chunk, whose images are this part of the whole batch. The averages
  // begin to travel.
  void begin_backward(float weight);
  // The gradient of this parameter is complete. Others than those of the constructor are ignored.
  void ready(const Variable& parameter);
  // Of a chunk. A parameter that was not ready has no gradient in this process.
  void end_backward();
  // A process without images in this step: it takes part with zeros.
  void no_images();
  // Waits (on a device: queues the wait).
  void finish();

  const Reducer& reducer() const { return *reducer_; }
  Reducer& reducer() { return *reducer_; }
  std::int64_t bytes() const { return block_.size_bytes(); }  // that travel in each step
  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Slot {  // of one parameter
    OptimParameter parameter;
    Tensor view;  // its part of the block
    std::size_t bucket = 0;
    bool is_ready = false;
    bool has_gradient = false;  // in the last step that this process had images in
  };
  struct Bucket {
    Tensor data;
    std::size_t slots = 0, missing = 0;
    std::vector<Tensor> partial;  // sums of 1, 2, 4, ... chunks
  };
  void take_gradient(Slot& slot) const;
  void start_buckets();
  void send(const Tensor& data, std::vector<Tensor>& partial);
  void begin_chunk(float weight);
  bool is_last_chunk() const { return chunk_ + 1 == options_.chunks; }

  std::unique_ptr<Reducer> reducer_;
  ExchangeOptions options_;
  std::vector<Slot> slots_;
  std::unordered_map<const Variable::State*, std::size_t> slot_of_;
  std::vector<Bucket> buckets_;
  Tensor block_;
  std::vector<Tensor> averages_;
  Tensor packed_averages_, first_averages_;  // of this chunk; of the step's beginning
  std::vector<Tensor> partial_averages_;
  std::size_t next_bucket_ = 0;  // they travel in their order, which is that of all processes
  int chunk_ = 0;
  float weight_ = 1;
  bool has_run_ = false;
};

}  // namespace convscope
