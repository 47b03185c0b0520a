// SPDX-License-Identifier: Apache-2.0
// choice_cache.h: the algorithm for each direction of each problem that a layer has seen. An
// algorithm is selected once, then looked up without allocating. A change of threads or instruction
// set causes a new selection. Not thread-safe.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "framework/export.h"
#include "framework/parallel.h"
#include "framework/ref.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/select.h"

namespace convscope {

template <class Problem>
class CONVSCOPE_API ChoiceCache : public RefCounted {
 public:
  // Creates an empty cache; `layer` names the layer in errors.
  explicit ChoiceCache(AlgorithmPolicy policy, std::string layer = {})
      : policy_(std::move(policy)), layer_(std::move(layer)) {}
  const AlgorithmPolicy& policy() const { return policy_; }
  const std::string& layer() const { return layer_; }

  const Choice<Problem>& get(const Problem& problem, Direction direction, Device device,
                             WeightUse use) {
    const int threads = num_threads();
    const int isa = static_cast<int>(current_isa());
    const auto fits = [&](const Entry& entry) {
      return entry.threads == threads && entry.isa == isa && entry.device == device &&
             entry.use == use && entry.problem == problem;
    };
    if (last_ >= entries_.size() || !fits(entries_[last_])) {
      last_ = 0;
      while (last_ < entries_.size() && !fits(entries_[last_])) ++last_;
      if (last_ == entries_.size()) {
        if (entries_.size() == kMaxEntries) entries_.clear();
        entries_.push_back({problem, device, use, threads, isa, {}});
        last_ = entries_.size() - 1;
      }
    }
    Choice<Problem>& choice = entries_[last_].choices[static_cast<std::size_t>(direction)];
    if (choice.algorithm == nullptr) {
      choice = select_algorithm(policy_.of(direction), problem, direction, device, use, layer_);
    }
    return choice;
  }

 private:
  // The largest number of entries. A layer with more problems has variable image sizes; the cache
  // is cleared when it is full. A problem type whose objects take much memory sets a smaller limit.
  static constexpr std::size_t kMaxEntries = [] {
    if constexpr (requires { Problem::kMaxChoices; }) return Problem::kMaxChoices;
    return std::size_t{64};
  }();

  struct Entry {
    Problem problem;
    Device device;
    WeightUse use;
    int threads = 0;
    int isa = 0;
    std::array<Choice<Problem>, 3> choices;  // by direction; algorithm null: not selected yet
  };
  AlgorithmPolicy policy_;
  std::string layer_;
  std::vector<Entry> entries_;
  std::size_t last_ = 0;  // index of the last entry returned
};

}  // namespace convscope
