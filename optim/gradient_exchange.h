// SPDX-License-Identifier: Apache-2.0
// gradient_exchange.h: sums the gradients of a network over all processes of a group during the
// backward pass.
//
// Idea      The backward pass ends at the first layer, so the gradients of the last layers are
//           complete first. All gradients are in one block of memory, in the order in which they
//           become complete, and the block is cut into buckets. A bucket is sent when its last
//           gradient is complete. Li et al. 2020, "PyTorch Distributed", arXiv:2006.15704
// Gradients The gradients of the variables (Variable::grad) are views of this block, so nothing is
//           copied. A process computes the gradient of the mean loss over its images. The sum over
//           all processes, weighted by their shares of the batch, is the gradient of the mean loss
//           over all images.
// Averages  Each process computes running statistics of batch norm from its images. In each step,
//           they are replaced by their weighted mean over all processes. So all processes always
//           have the same network.
// Chunks    A process may compute its part of a batch as several chunks in sequence (gradient
//           accumulation). It adds their gradients before it sends the sum: with SumOrder::any in
//           sequence, with SumOrder::tree in tree order (process_group.h).
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
  SumOrder order = SumOrder::any;  // order of the reducer
  // A smaller bucket starts earlier, but each bucket adds the latency of the network.
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  int chunks = 1;  // of this process per step; a power of two in tree order
};

// Returns which parameters are sent together: indices into `parameters`, from last to first.
CONVSCOPE_API std::vector<std::vector<std::size_t>> gradient_buckets(
    const std::vector<OptimParameter>& parameters, std::int64_t bucket_bytes);

class CONVSCOPE_API GradientExchange {
 public:
  // Moves the gradients into the block, so compiled steps that were made before become invalid.
  // `averages` are f32 tensors on the same device.
  GradientExchange(std::unique_ptr<Reducer> reducer, std::vector<OptimParameter> parameters,
                   std::vector<Tensor> averages, const ExchangeOptions& options);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  void begin_step();
  // Begins to send the averages. Call this function after the forward pass of a chunk; `weight` is
  // the chunk's share of the whole batch.
  void begin_backward(float weight);
  // Reports that a parameter's gradient is complete. Ignores parameters that were not passed to the
  // constructor.
  void ready(const Variable& parameter);
  // Ends a chunk. A parameter for which ready() was not called has no gradient in this process.
  void end_backward();
  // Sends zeros in this step. Call it in a process that has no images of the batch.
  void no_images();
  // Waits (on a device: queues the wait).
  void finish();

  const Reducer& reducer() const { return *reducer_; }
  Reducer& reducer() { return *reducer_; }
  std::int64_t bytes() const { return block_.size_bytes(); }  // sent per step
  int chunks() const { return options_.chunks; }
  std::size_t bucket_count() const { return buckets_.size(); }

 private:
  struct Slot {  // per parameter
    OptimParameter parameter;
    Tensor view;  // the parameter's range of the block
    std::size_t bucket = 0;
    bool is_ready = false;
    bool has_gradient = false;  // in the last step in which this process had images
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
  Tensor packed_averages_, first_averages_;  // averages of this chunk; of the step's start
  std::vector<Tensor> partial_averages_;
  std::size_t next_bucket_ = 0;  // sent in this order, which all processes share
  int chunk_ = 0;
  float weight_ = 1;
  bool has_run_ = false;
};

}  // namespace convscope
