// SPDX-License-Identifier: Apache-2.0
// tuning.h: times the algorithms of an operator on problems of a designed set, and keeps counts and
// times as samples for the fit (layers/dispatch/cost/fit.h).
//
// An operator's description (experiments/operators) draws problems and calls measure() for each:
//
//   .tune = [](Tuning& tuning) { tuning.measure(random_conv2d(tuning.random())); }
//
// Every fourth problem is held out. A problem is timed in every direction, also with weights
// prepared before, on a CPU with one thread or with all (in turns). An algorithm that chooses among
// schedules is timed with the one that the estimates favour and with a few others (choose.h).
#pragma once

#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/parallel.h"
#include "layers/dispatch/cost/choose.h"
#include "layers/dispatch/cost/fit.h"
#include "layers/dispatch/measure.h"

namespace convscope {

class CONVSCOPE_API Tuning {
 public:
  Tuning(Device device, std::uint64_t seed) : device_(device), random_(seed) {}

  std::mt19937_64& random() { return random_; }
  Device device() const { return device_; }
  const std::vector<CostSample>& samples() const { return samples_; }

  // Measures all algorithms that accept the problem.
  template <class Problem>
  void measure(const Problem& problem) {
    if (problem.is_empty()) return;
    const bool all_threads = problems_ % 2 == 1;
    const bool held_out = problems_ / 2 % 4 == 3;
    ++problems_;
    const int threads = num_threads();
    if (!all_threads) set_num_threads(1);
    for (const Direction direction : kDirections) {
      const Operands operands = repeated_operands(problem.operands(direction), device_);
      for (const WeightUse use : {WeightUse::once, WeightUse::often}) {
        time_schedules(problem, direction, use, held_out, operands);
      }
    }
    set_num_threads(threads);
  }

 private:
  // A run of one algorithm, and the sample that its time completes.
  struct Timed {
    std::function<void()> run;
    CostSample sample;
  };
  // Times the runs in turns, and keeps the samples.
  void time_in_turns(std::vector<Timed>& timed);

  // Times each algorithm, then other schedules of algorithms that have several.
  template <class Problem>
  void time_schedules(const Problem& problem, Direction direction, WeightUse use, bool held_out,
                      const Operands& operands) {
    known_.clear();
    time(problem, direction, use, held_out, operands);
    for (int i = 0; i < kOtherSchedules; ++i) {
      const ExploreSchedules other(random_() | 1);
      time(problem, direction, use, held_out, operands);
    }
  }
  template <class Problem>
  void time(const Problem& problem, Direction direction, WeightUse use, bool held_out,
            const Operands& operands);
  // Returns false if the same kernel with the same counts was timed for this question before.
  bool is_new(const CostSample& sample) {
    return known_.insert({sample.kernel, sample.terms}).second;
  }

  static constexpr int kOtherSchedules = 3;
  Device device_;
  std::mt19937_64 random_;
  std::vector<CostSample> samples_;
  std::set<std::pair<std::string, Coefficients>> known_;
  std::size_t problems_ = 0;
};

// Slow algorithms (lessons, the reference) are timed on small problems only.
inline constexpr double kMostFlopsOfLessons = 2e6, kMostFlopsOfGpuLessons = 1e8;

template <class Problem>
void Tuning::time(const Problem& problem, Direction direction, WeightUse use, bool held_out,
                  const Operands& operands) {
  std::vector<Timed> timed;
  for (const auto& entry : Operator<Problem>::algorithms(device_.type).entries()) {
    const Algorithm<Problem>& algorithm = entry.second;
    if (!support_of(algorithm, problem, direction).yes) continue;
    const double most =
        device_.type == DeviceType::cpu ? kMostFlopsOfLessons : kMostFlopsOfGpuLessons;
    if (!algorithm.auto_ok && problem.nominal_flops() > most) continue;
    const std::size_t prepared = algorithm.prepared_size(problem, direction, use);
    const bool often = use == WeightUse::often;
    if (often && prepared == 0) continue;
    const Cost cost = algorithm.cost(problem, direction);
    CostSample sample{
        .isa = device_.type == DeviceType::cpu ? std::string(name_of(current_isa())) : "cuda",
        .kernel = kernel_of(cost_key_of(algorithm, direction), cost.schedule),
        .algorithm = entry.first,
        .question = cat(Operator<Problem>::kOperation, " ", problem.text(), " ", name_of(direction),
                        often ? " often" : "",
                        device_.type == DeviceType::cpu ? cat(" threads=", num_threads()) : ""),
        .held_out = held_out,
        .may_be_chosen = algorithm.auto_ok,
        .terms = seconds_per_coefficient(cost, device_.type, machine_peaks(device_.type),
                                         operand_type_of(problem), use, prepared)};
    if (!is_new(sample)) continue;
    auto scratch = std::make_shared<Scratch<Problem>>(algorithm, problem, direction, device_, use);
    const void* const weights =
        often ? prepared_weights(problem, direction, operands, *scratch) : nullptr;
    timed.push_back({[&algorithm, &problem, &operands, direction, often, weights, scratch] {
                       if (often) {
                         run_prepared(algorithm, problem, direction, operands, *scratch, weights);
                       } else {
                         run_algorithm(algorithm, problem, direction, operands, *scratch);
                       }
                     },
                     std::move(sample)});
  }
  time_in_turns(timed);
}

}  // namespace convscope
