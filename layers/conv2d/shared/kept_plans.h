// SPDX-License-Identifier: Apache-2.0
// kept_plans.h: caches the tilings that an algorithm chose last. Choosing one takes some hundred
// microseconds of the CPU, longer than a small kernel, and each call needs the tiling.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "layers/conv2d/problem.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// Thread-safe.
template <class Plan, class Problem = Conv2dProblem>
class KeptPlans {
 public:
  // Returns the kept plan, or keeps and returns make().
  template <class Make>
  std::shared_ptr<const Plan> get(const Problem& z, Direction direction, const Make& make) {
    const std::lock_guard lock(mutex_);
    if (state_ != cost_state()) {  // other estimates choose other tilings
      kept_.clear();
      state_ = cost_state();
    }
    for (const Kept& one : kept_) {
      if (one.direction == direction && one.problem == z) return one.plan;
    }
    Kept made{z, direction, std::make_shared<const Plan>(make())};
    std::shared_ptr<const Plan> plan = made.plan;
    if (kept_.size() < kMax) {
      kept_.push_back(std::move(made));
    } else {
      kept_[next_++ % kMax] = std::move(made);
    }
    return plan;
  }

 private:
  static constexpr std::size_t kMax = 512;
  struct Kept {
    Problem problem;
    Direction direction;
    std::shared_ptr<const Plan> plan;
  };
  std::mutex mutex_;
  std::vector<Kept> kept_;
  std::size_t next_ = 0;
  std::uint64_t state_ = 0;
};

}  // namespace convscope
