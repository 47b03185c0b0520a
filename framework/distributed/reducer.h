// SPDX-License-Identifier: Apache-2.0
// reducer.h: sums tensors over all processes of a group. A sum overlaps later work of the device
// that has computed the terms.
//
// Usage   reducer->sum(gradients_of_the_last_layers, 0.5f);   // during the backward pass
//         reducer->sum(gradients_of_the_first_layers, 0.5f);
//         reducer->join();   // later work sees the sums
#pragma once

#include <memory>
#include <string>

#include "framework/distributed/process_group.h"
#include "framework/tensor.h"

namespace convscope {

class CONVSCOPE_API Reducer {
 public:
  virtual ~Reducer();
  // Sets data to the sum over processes of weight * data; f32, contiguous. The sum starts when all
  // work queued on the device so far has run. Do not access `data` until join().
  virtual void sum(const Tensor& data, float weight) = 0;
  // Makes later work on the device wait for the sums. On the CPU, the calling thread waits.
  virtual void join() = 0;
  // Returns true if a recording (DeviceBackend::begin_recording) may contain sum() and join().
  virtual bool is_recordable() const { return false; }
  // Returns "MPI (Open MPI v4.1.4)" or "NCCL 2.28.9".
  virtual std::string text() const = 0;
};

// Makes a reducer for tensors on `device`. On the CPU, the reducer uses MPI. On a GPU, it uses
// NCCL. If NCCL cannot be opened (text() returns the reason), and always for tree order, it uses
// MPI with copies through host memory.
CONVSCOPE_API std::unique_ptr<Reducer> make_reducer(ProcessGroup& group, Device device,
                                                    SumOrder order);

}  // namespace convscope
