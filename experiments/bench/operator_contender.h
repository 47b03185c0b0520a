// SPDX-License-Identifier: Apache-2.0
// operator_contender.h: an algorithm in a benchmark, with its tensors and workspace, and the check
// of its result.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "experiments/bench/honest/moving_inputs.h"
#include "experiments/bench/interleave.h"
#include "framework/memory/memory.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/run.h"

namespace convscope {

// Settings that replace the current settings while one algorithm runs.
struct Switches {
  int isa = -1;                     // an Isa; -1: the current one
  int threads = 0;                  // 0: the current number
  bool prepares_each_call = false;  // packs or transforms the weights in every call
};

// Sets a contender's threads and instruction set, and restores the previous ones.
class CONVSCOPE_API Switched {
 public:
  explicit Switched(const Switches& to);
  ~Switched();
  Switched(const Switched&) = delete;
  Switched& operator=(const Switched&) = delete;

 private:
  const Isa isa_;
  const int threads_;
};

// The outcome of a comparison with the expected result.
struct Judgement {
  double error_ratio = 0;  // largest error / allowed error; correct up to 1
  std::string wrong;       // a sentence when the result is wrong, else ""
};

class CONVSCOPE_API BenchContender {
 public:
  BenchContender() = default;
  virtual ~BenchContender();
  BenchContender(BenchContender&&) = default;

  virtual const char* name() const = 0;
  virtual Device device() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
  virtual std::size_t prepared_bytes() const = 0;
  // Runs with the weights that prepare() or check() has prepared.
  virtual void queue() const = 0;  // does not wait for an asynchronous device
  virtual void prepare() const = 0;
  virtual void poison() const = 0;  // fills the outputs with NaN, to show unwritten elements
  virtual void poison_output() const {}
  void run() const;  // returns when the work is done
  // Returns whether weights may change between runs, because they are not prepared in advance.
  virtual bool weights_may_move() const { return false; }
  // Returns the inputs that change between runs, or null. `weights`: the weights may change, too.
  virtual MovingInputs* moving(bool weights);
  // Returns "" when the output matches the current inputs, else a sentence.
  virtual std::string look() { return ""; }

  // Prepares the weights, runs once on poisoned memory, and calls `judge`. Sets error_ratio() and
  // wrong(). Returns the seconds of the run without the preparation.
  double check(const std::function<Judgement()>& judge);
  double error_ratio() const { return error_ratio_; }
  const std::string& wrong() const { return wrong_; }  // why it must not be timed, or ""
  void refuse(std::string why) { wrong_ = std::move(why); }

 private:
  double error_ratio_ = 0;
  std::string wrong_;
};

// Returns a contender as a thing for interleaved timing (interleave.h). A few more runs estimate
// its time, unless the first run took long. The inputs change between runs. The result is checked
// after some rounds and after the last one; a contender with a wrong result is rejected. `weights`
// is called during the timing and returns whether the weights change, too.
CONVSCOPE_API TimedThing timed(BenchContender& contender, double first_seconds,
                               std::function<bool()> weights = {});
// Returns whether the weights may change between runs: only if no contender in `sharing` has
// prepared them in advance.
CONVSCOPE_API bool weights_may_move(const std::vector<std::unique_ptr<BenchContender>>& sharing);

template <class Problem>
class OperatorContender : public BenchContender {
 public:
  // Takes the operands of the problem, which must outlive the contender.
  OperatorContender(const Algorithm<Problem>& algorithm, const Problem& problem,
                    Direction direction, const Operands& operands, const Switches& switches = {})
      : algorithm_(algorithm),
        problem_(problem),
        direction_(direction),
        operands_(operands),
        views_(operands.views(direction)),
        switches_(switches) {
    const Switched here(switches_);  // sizes depend on threads and vectors
    workspace_ =
        std::make_unique<Workspace>(device(), algorithm.workspace_bytes(problem, direction));
    const WeightUse use = switches_.prepares_each_call ? WeightUse::once : WeightUse::often;
    prepared_ =
        std::make_unique<Workspace>(device(), algorithm.prepared_size(problem, direction, use));
  }

  const Algorithm<Problem>& algorithm() const { return algorithm_; }
  const Problem& problem() const { return problem_; }
  Direction direction() const { return direction_; }
  const Operands& operands() const { return operands_; }
  const char* name() const override { return algorithm_.name; }
  Device device() const override { return operands_.device(); }
  std::size_t workspace_bytes() const override { return workspace_->bytes(); }
  std::size_t prepared_bytes() const override { return prepared_->bytes(); }

  void prepare() const override {
    if (prepared_bytes() == 0) return;
    const Switched here(switches_);
    algorithm_.prepare_weights(
        {problem_, direction_, operands_.input(1), prepared_->data(), workspace_->data(), views_});
  }
  void queue() const override {
    const Switched here(switches_);
    if (switches_.prepares_each_call) prepare();
    Operator<Problem>::run({algorithm_, problem_, direction_, operands_, views_, workspace_->data(),
                            prepared_bytes() == 0 ? nullptr : prepared_->data()});
  }
  bool weights_may_move() const override {
    return prepared_bytes() == 0 || switches_.prepares_each_call;
  }
  MovingInputs* moving(bool weights) override {
    if (!moving_) {
      moving_ = std::make_unique<MovingInputs>(operands_, problem_.operands(direction_), weights);
    }
    return moving_.get();
  }
  void poison() const override { poison_with(0xff); }
  void poison_with(int byte) const {
    poison_output_with(byte);
    fill(workspace_->data(), byte, workspace_->bytes());
    fill(prepared_->data(), byte, prepared_->bytes());
  }
  void poison_output() const override { poison_output_with(0xff); }

 private:
  void fill(void* pointer, int byte, std::size_t bytes) const {
    if (bytes > 0) backend_of(device()).fill_bytes(device().index, pointer, byte, bytes);
  }
  void poison_output_with(int byte) const {
    for (const Operand& one : operands_.out) {
      if (!one.defined()) continue;
      fill(one.values.raw_data(), byte, static_cast<std::size_t>(one.values.size_bytes()));
    }
  }

  const Algorithm<Problem>& algorithm_;
  const Problem problem_;
  const Direction direction_;
  const Operands operands_;
  const OperandViews views_;
  const Switches switches_;
  std::unique_ptr<Workspace> workspace_, prepared_;
  std::unique_ptr<MovingInputs> moving_;
};

}  // namespace convscope
