// SPDX-License-Identifier: Apache-2.0
// heavy_contender.h: an algorithm of a heavy layer that takes part in a benchmark: its arrays, its
// scratch memory, and whether its result is right.
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

// How an algorithm runs, where that is not how everything else runs now.
struct Switches {
  int isa = -1;                     // an Isa; -1: as it is
  int threads = 0;                  // 0: as it is
  bool prepares_each_call = false;  // packs or transforms the weights again in every call
};

// Threads and instruction set as a contender wants them, and back.
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

// What a comparison with the right result found.
struct Judgement {
  double error_ratio = 0;  // largest error / allowed error: right when at most 1
  std::string wrong;       // a sentence when the result is wrong, "" when it is right
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
  // Weights are prepared: check() has done it, and nothing has overwritten them.
  virtual void queue() const = 0;  // without waiting for a device that works by itself
  virtual void prepare() const = 0;
  virtual void poison() const = 0;  // what is not written shows: all that is written is NaN
  virtual void poison_output() const {}
  void run() const;  // returns when the work is done
  // Whether weights may change between its runs: they were not prepared before.
  virtual bool weights_may_move() const { return false; }
  // What changes between its runs, or null: nothing does. `weights`: of all that share them.
  virtual MovingInputs* moving(bool weights);
  // "" when the output is what the inputs of now give, else a sentence.
  virtual std::string look() { return ""; }

  // Runs it on poisoned memory and asks `judge`. Fills error_ratio() and wrong(), and returns the
  // seconds of that first run, weights prepared beforehand.
  double check(const std::function<Judgement()>& judge);
  double error_ratio() const { return error_ratio_; }
  const std::string& wrong() const { return wrong_; }  // why it must not be timed, or ""
  void refuse(std::string why) { wrong_ = std::move(why); }

 private:
  double error_ratio_ = 0;
  std::string wrong_;
};

// A contender as something that can be timed in turns with others: estimated by one more run,
// unless the first one took long. Its inputs move between its runs, and its result is looked at
// after some turns and after the last: a wrong one is refused. `weights`: the weights move, too,
// which is asked when the timing begins.
CONVSCOPE_API TimedThing timed(BenchContender& contender, double first_seconds,
                               std::function<bool()> weights = {});
// Whether the weights may move: none of these has prepared them before.
CONVSCOPE_API bool weights_may_move(const std::vector<std::unique_ptr<BenchContender>>& sharing);

template <class Problem>
class HeavyContender : public BenchContender {
 public:
  // The operands are those of the problem and stay as long as the contender.
  HeavyContender(const Card<Problem>& card, const Problem& problem, Direction direction,
                 const Operands& operands, const Switches& switches = {})
      : card_(card),
        problem_(problem),
        direction_(direction),
        operands_(operands),
        views_(operands.views(direction)),
        switches_(switches) {
    const Switched here(switches_);  // sizes depend on threads and vectors
    workspace_ = std::make_unique<Workspace>(device(), card.workspace_bytes(problem, direction));
    const WeightUse use = switches_.prepares_each_call ? WeightUse::once : WeightUse::often;
    prepared_ = std::make_unique<Workspace>(device(), card.prepared_size(problem, direction, use));
  }

  const Card<Problem>& algorithm() const { return card_; }
  const Problem& problem() const { return problem_; }
  Direction direction() const { return direction_; }
  const Operands& operands() const { return operands_; }
  const char* name() const override { return card_.name; }
  Device device() const override { return operands_.device(); }
  std::size_t workspace_bytes() const override { return workspace_->bytes(); }
  std::size_t prepared_bytes() const override { return prepared_->bytes(); }

  void prepare() const override {
    if (prepared_bytes() == 0) return;
    const Switched here(switches_);
    card_.prepare_weights(
        {problem_, direction_, operands_.input(1), prepared_->data(), workspace_->data(), views_});
  }
  void queue() const override {
    const Switched here(switches_);
    if (switches_.prepares_each_call) prepare();
    HeavyLayer<Problem>::run({card_, problem_, direction_, operands_, views_, workspace_->data(),
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

  const Card<Problem>& card_;
  const Problem problem_;
  const Direction direction_;
  const Operands operands_;
  const OperandViews views_;
  const Switches switches_;
  std::unique_ptr<Workspace> workspace_, prepared_;
  std::unique_ptr<MovingInputs> moving_;
};

}  // namespace convscope
