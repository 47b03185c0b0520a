// SPDX-License-Identifier: Apache-2.0
// reducer.h: sums over all processes of a group, beside the work of the device that has computed
// the terms.
//
// Usage   reducer->sum(gradients_of_the_last_layers, 0.5f);   // while the backward pass goes on
//         reducer->sum(gradients_of_the_first_layers, 0.5f);
//         reducer->join();   // what follows sees the sums
#pragma once

#include <memory>
#include <string>

#include "framework/distributed/process_group.h"
#include "framework/tensor.h"

namespace convscope {

class CONVSCOPE_API Reducer {
 public:
  virtual ~Reducer();
  // data := the sum over processes of weight * data; f32, contiguous. Begins when all that is
  // queued on the device so far has run; `data` is left alone until join().
  virtual void sum(const Tensor& data, float weight) = 0;
  // What is queued on the device from now on finds the sums; on the CPU this thread waits.
  virtual void join() = 0;
  // Whether sum() and join() may be part of a recording (DeviceBackend::begin_recording).
  virtual bool is_recordable() const { return false; }
  // "MPI (Open MPI v4.1.4)", "NCCL 2.28.9"
  virtual std::string text() const = 0;
};

// For tensors on `device`: MPI for the CPU; NCCL for a GPU, or MPI through copies in the memory of
// the host where NCCL cannot be opened (text() says why), and wherever the order is that of a tree.
CONVSCOPE_API std::unique_ptr<Reducer> make_reducer(ProcessGroup& group, Device device,
                                                    SumOrder order);

}  // namespace convscope
