// SPDX-License-Identifier: Apache-2.0
// bench_rows.h: the rows of a benchmark of one operator's problem in one direction. Each
// algorithm's result is checked, correct ones are timed interleaved, and the times are compared
// with the measured peaks. conv2d_bench.h adds another library's rows; other operators call
// bench_operator().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/bench/algorithm_oracle.h"
#include "experiments/bench/operator_contender.h"
#include "experiments/bench/statistics.h"
#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "layers/dispatch/select.h"

namespace convscope {

struct BenchSettings {
  Device device = {};
  bool only_auto = false;  // time only the algorithm that `auto` chooses
  bool cold = false;       // flush the caches before each run
  bool cpu_clock = false;  // CPU time instead of wall time, for one thread on a busy machine
  WeightUse weights = WeightUse::once;  // often: prepared before the timing, as in inference
  double min_seconds = 0.2;             // counted time of each algorithm on each problem
  int least_samples = 5;
  std::optional<CpuPeaks> peaks = {};  // without them: no percentage of the roofline
};

// One algorithm on one problem in one direction.
struct BenchRow {
  std::string algorithm;
  bool auto_choice = false;  // `auto` would have chosen it
  // Time of a whole call. The call includes the preparation of the weights, unless
  // BenchSettings::weights is often. GFLOP/s and roofline refer to this time. A wrong result has no
  // samples.
  TimingSummary time;
  // Median time of preparing the weights, timed separately. 0 when the algorithm prepares none.
  double prepare_ms = 0;
  double gflops_effective = 0;
  double gflops_executed = 0;
  double executed_per_useful = 0;  // executed / useful multiplications, at least 1
  double roofline_percent = 0;
  std::size_t workspace_bytes = 0;  // of a call, prepared weights included
  std::size_t prepared_bytes = 0;
  double error_ratio = 0;  // error / allowed error
  std::string wrong;       // why the algorithm was not timed or its times do not count, or ""
  std::string impossible;  // why the time is too short for the work (least_time.h), or ""

  bool counts() const { return wrong.empty() && impossible.empty(); }
  // Marks the row as wrong because a result was wrong in the timed calls.
  void take_back(std::string why) {
    wrong = std::move(why);
    time = {};
    prepare_ms = gflops_effective = gflops_executed = roofline_percent = 0;
    impossible.clear();
  }
};

struct BenchRefusal {
  std::string name;  // an algorithm, or "onednn winograd"
  std::string reason;
};

using BenchProgress = std::function<void(const std::string&)>;

// Checks each contender when it is added, and times all contenders in measured().
class CONVSCOPE_API BenchRows {
 public:
  // Compares times with the measured peak for operands of `operand_type`. `least_bytes` are the
  // bytes that every correct algorithm reads and writes; a negative value stands for nominal_bytes.
  BenchRows(const BenchSettings& settings, double nominal_flops, double nominal_bytes,
            DType operand_type = DType::f32, double least_bytes = -1);

  // Adds a contender. `check` compares its result with the expected one, and returns the seconds of
  // its first run.
  void add(std::unique_ptr<BenchContender> one, const Cost& cost, bool auto_choice,
           const std::function<double(BenchContender&)>& check);
  // Adds something else to be timed in the same rounds.
  void add_other(TimedThing thing, std::function<void(const std::vector<double>&)> done);
  // Measures all contenders. Returns correct rows sorted by time, then wrong ones.
  std::vector<BenchRow> measured();

 private:
  void fill(BenchRow& row, const Cost& cost, const std::vector<double>& seconds) const;
  std::size_t last_level_bytes() const;

  const BenchSettings settings_;
  const double nominal_flops_, nominal_bytes_, least_bytes_;
  const DType operand_type_;
  const int threads_;
  std::vector<std::unique_ptr<BenchContender>> contenders_;
  std::vector<std::unique_ptr<BenchRow>> rows_;
  std::vector<TimedThing> things_;
  std::vector<std::function<void(const std::vector<double>&)>> done_;  // parallel to things_
};

// Returns the roofline's time in seconds, which is the longer of two times: that of `flops` at the
// measured peak, and that of moving `bytes` from the smallest memory level that holds all of them.
CONVSCOPE_API double roofline_seconds(const CpuPeaks& peaks, double flops, double bytes,
                                      int threads, bool cold, DType operand_type = DType::f32);

template <class Problem>
struct BenchGroup {
  Problem problem;
  Direction direction = Direction::forward;
  int threads = 0;
  std::vector<BenchRow> rows;
  std::vector<BenchRefusal> refusals;
  std::string skipped;  // why nothing was run, or ""
};

// Returns the algorithm that `auto` chooses, or null when all algorithms refuse the problem. Adds
// the reasons of those that refuse to `refusals`.
template <class Problem>
const Algorithm<Problem>* auto_choice_of(const Problem& problem, Direction direction, Device device,
                                         WeightUse use) {
  const Question question = question_of(problem, direction, device, use);
  const std::vector<std::string> names = candidates_of(question);
  return names.empty() ? nullptr : &Operator<Problem>::algorithms(device.type).get(names.front());
}

inline Switches switches_of(const BenchSettings& settings) {
  return {.prepares_each_call = settings.weights == WeightUse::once};
}

// Returns the selected algorithms that accept the problem. Adds the other selected algorithms, with
// their reasons, to `refusals`.
template <class Problem>
std::vector<const Algorithm<Problem>*> accepting_algorithms(
    const std::vector<const Algorithm<Problem>*>& algorithms, const Problem& problem,
    Direction direction, const Algorithm<Problem>* only, std::vector<BenchRefusal>& refusals) {
  std::vector<const Algorithm<Problem>*> out;
  for (const Algorithm<Problem>* algorithm : algorithms) {
    if (only != nullptr && algorithm != only) continue;
    const Support support = support_of(*algorithm, problem, direction);
    if (support.yes) {
      out.push_back(algorithm);
    } else {
      refusals.push_back({algorithm->name, support.reason});
    }
  }
  return out;
}

// Returns the names in `text`, which are joined by commas. "all" and "auto" stand for all names
// except the reference, which checks the other algorithms, and the lessons, which take seconds. For
// a name that is not in `names`, throws an error of kind kUnavailable that suggests the nearest
// name.
CONVSCOPE_API std::vector<std::string> algorithms_in(const char* command, const std::string& text,
                                                     Device device,
                                                     const std::vector<std::string>& names);
template <class Problem>
std::vector<const Algorithm<Problem>*> algorithms_named(const char* command,
                                                        const std::string& text, Device device) {
  const Registry<Algorithm<Problem>>& table = Operator<Problem>::algorithms(device.type);
  std::vector<const Algorithm<Problem>*> out;
  for (const std::string& name : algorithms_in(command, text, device, table.names())) {
    out.push_back(&table.get(name));
  }
  return out;
}

// Measures algorithms. Checks their results with an Oracle(problem, direction, operands).
template <class Oracle, class Problem>
BenchGroup<Problem> bench_judged(const BenchSettings& settings, const Problem& problem,
                                 Direction direction,
                                 const std::vector<const Algorithm<Problem>*>& algorithms,
                                 const BenchProgress& progress) {
  BenchGroup<Problem> group{problem, direction, num_threads(), {}, {}, ""};
  if (problem.is_empty()) {
    group.skipped = "a batch of no samples leaves nothing to time";
    return group;
  }
  const Algorithm<Problem>* const chosen =
      auto_choice_of(problem, direction, settings.device, settings.weights);
  const auto accepting = accepting_algorithms(
      algorithms, problem, direction, settings.only_auto ? chosen : nullptr, group.refusals);
  if (accepting.empty()) return group;
  const Operands operands = random_operands(problem.operands(direction), settings.device);
  progress("expected values");
  const Oracle oracle(problem, direction, operands);
  BenchRows rows(settings, problem.nominal_flops(), problem.nominal_bytes(),
                 operand_type_of(problem));
  for (const Algorithm<Problem>* algorithm : accepting) {
    progress(cat("checking ", algorithm->name));
    rows.add(std::make_unique<OperatorContender<Problem>>(*algorithm, problem, direction, operands,
                                                          switches_of(settings)),
             algorithm->cost(problem, direction), algorithm == chosen, [&](BenchContender& one) {
               return one.check([&] { return oracle.judge(operands, algorithm->error_growth); });
             });
  }
  progress("timing");
  group.rows = rows.measured();
  return group;
}

// Checks results with the reference (algorithm_oracle.h).
template <class Problem>
BenchGroup<Problem> bench_operator(const BenchSettings& settings, const Problem& problem,
                                   Direction direction,
                                   const std::vector<const Algorithm<Problem>*>& algorithms,
                                   const BenchProgress& progress) {
  return bench_judged<AlgorithmOracle<Problem>>(settings, problem, direction, algorithms, progress);
}

// Measures all algorithms that "all" stands for.
template <class Problem>
BenchGroup<Problem> bench_operator(const BenchSettings& settings, const Problem& problem,
                                   Direction direction, const BenchProgress& progress) {
  return bench_operator(settings, problem, direction,
                        algorithms_named<Problem>("bench", "all", settings.device), progress);
}

}  // namespace convscope
