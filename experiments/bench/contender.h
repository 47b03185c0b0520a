// SPDX-License-Identifier: Apache-2.0
// contender.h: an algorithm that takes part in a benchmark: its tensors, its scratch memory, and
// whether its result is right. Used by the table of algorithms (conv2d_bench.h) and by the ladders
// (ladder_bench.h).
#pragma once

#include <memory>
#include <string>

#include "experiments/bench/sampled_reference.h"
#include "framework/memory/memory.h"
#include "framework/tensor.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

// The tensors of one problem and direction: on the host in f32, on the device in the problem's type.
// Normal numbers, the same for any number of threads; half types get numbers that they hold exactly.
class CONVSCOPE_API BenchData {
 public:
  BenchData(const Conv2dProblem& problem, Direction direction, Device device);

  Conv2dInputs inputs() const { return {first_host_.data<float>(), second_host_.data<float>()}; }
  const float* result() const;                                // on the host, in f32
  const Tensor& output_host() const { return output_host_; }  // where result() lies

  const Device device;

 private:
  friend class Contender;
  const Tensor first_host_, second_host_, output_host_;
  const Tensor first_, second_, output_;
};

// How an algorithm runs, where that is not how everything else runs now.
struct Switches {
  int isa = -1;                     // an Isa; -1: as it is
  int threads = 0;                  // 0: as it is
  bool prepares_each_call = false;  // packs or transforms the weights again in every call
};

class CONVSCOPE_API Contender {
 public:
  // The problem has the sizes and the type that `data` was made for.
  Contender(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, Direction direction,
            const BenchData& data, const Switches& switches = {});

  // Runs it on poisoned memory and compares the result. Fills error_ratio() and wrong(), and
  // returns the seconds of that first run, weights prepared beforehand.
  double check(const SampledReference& reference);
  double error_ratio() const { return error_ratio_; }
  const std::string& wrong() const { return wrong_; }  // why it must not be timed, or ""

  // Weights are prepared: check() has done it, and nothing has overwritten them.
  void run() const;    // returns when the work is done
  void queue() const;  // without waiting for a device that works by itself
  void prepare() const;

  const Conv2dAlgorithm& algorithm() const { return algorithm_; }
  std::size_t workspace_bytes() const { return workspace_->bytes(); }
  std::size_t prepared_bytes() const { return prepared_->bytes(); }

 private:
  void call() const;
  void poison() const;  // what is not written shows: output, workspace and prepared weights are NaN
  const void* weights() const;

  const Conv2dAlgorithm& algorithm_;
  const Conv2dProblem problem_;
  const Direction direction_;
  const BenchData& data_;
  const DeviceBackend& backend_;
  const Switches switches_;
  std::unique_ptr<Workspace> workspace_, prepared_;
  double error_ratio_ = 0;
  std::string wrong_;
};

// A contender as something that can be timed in turns with others: estimated by one more run, unless
// the first one took long.
struct TimedThing;
CONVSCOPE_API TimedThing timed(const Contender& contender, double first_seconds, Device device);

}  // namespace convscope
