// SPDX-License-Identifier: Apache-2.0
// bench_call.h: `convscope bench OPERATOR`: times the algorithms of an operator on problems. An
// operator derives a class from BenchCallOf<Problem>.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/cli/bench/bench_against.h"
#include "experiments/cli/bench/bench_tasks.h"

namespace convscope {

// One problem in one direction.
struct BenchCase {
  std::string problem;
  Direction direction;
  std::function<ReportedGroup(const BenchProgress&)> run;
};

class BenchCall {
 public:
  struct Words {
    const char* keys;     // the help of --problem: "n=8,c=64,..."
    const char* example;  // in the error of a call without problems
  };
  BenchCall(const char* operation, const Words& words)
      : operation_(operation), command_(std::string("bench ") + operation), words_(words) {}
  virtual ~BenchCall() = default;
  BenchCall(const BenchCall&) = delete;
  BenchCall& operator=(const BenchCall&) = delete;

  void declare(CommandLine& app);
  int run();  // after parsing; returns the exit code

 protected:
  virtual void add_direction(CommandLine& app);
  virtual void add_options(CommandLine&) {}
  void add_batch(CommandLine& app);
  void add_layout(CommandLine& app, const std::string& layouts,
                  const std::vector<std::string>& names);
  // Throws a usage error when the options contradict each other.
  virtual void check() const;
  virtual std::vector<Direction> directions() const { return parse_directions(direction_); }
  virtual std::vector<BenchCase> cases() = 0;
  // Times the cases and writes the files. Returns the exit code.
  virtual int time(BenchFiles& files, const std::vector<BenchCase>& cases);
  virtual BenchReportSettings report() const { return report_settings(settings_, operation_); }
  virtual std::string legend() const;

  const char* command() const { return command_.c_str(); }
  bool has_problems() const { return !shapes_.empty() || !problems_.empty(); }
  void check_timing_and_batch() const;
  const BenchSettings& settings() const { return settings_; }
  Device device() const { return settings_.device; }

  std::vector<std::string> shapes_, problems_;
  std::string direction_ = "all", algorithm_ = "all";
  std::string precision_, layout_;
  std::int64_t batch_ = 0;
  TimingArguments timing_;
  AgainstOptions against_;

 private:
  const char* operation_;
  const std::string command_;
  const Words words_;
  BenchSettings settings_;
};

// Throws unless the elements are f32, or on cuda tf32, f16 or bf16.
template <class Problem>
void check_floats_can_be_timed(const char* command, const Problem& problem, Device device) {
  const bool rounds = is_half(problem.dtype) || problem.math == MathMode::tf32;
  CONVSCOPE_CHECK(
      (problem.dtype == DType::f32 && !rounds) || (rounds && device.type == DeviceType::cuda),
      command, "expected elements of type f32, or tf32, f16 or bf16 on cuda, got ", problem.text(),
      " on ", device.str());
}

// Problem is what a line of a list describes. OperatorProblem is the type that algorithms take.
template <class Problem, class OperatorProblem = Problem>
class BenchCallOf : public BenchCall {
 public:
  explicit BenchCallOf(const Words& words)
      : BenchCall(Operator<OperatorProblem>::kOperation, words) {}

 protected:
  virtual void check_problem(const Problem& problem) const {
    check_floats_can_be_timed(command(), problem, device());
  }
  virtual std::vector<Problem> read_problems() const {
    auto out = problems_given<Problem>(command(), shapes_, problems_);
    if constexpr (requires(Problem one) { one.layout; }) set_layouts(layout_, out);
    set_precision(precision_, out);
    for (Problem& problem : out) {
      if constexpr (requires { problem.n; }) {
        if (batch_ > 0) problem.n = batch_;
      }
      check_problem(problem);
    }
    return out;
  }
  virtual bool is_timed(const Problem&, Direction) const { return true; }
  virtual ReportedGroup measure(const Problem& problem, Direction direction,
                                const BenchProgress& progress) = 0;
  const std::vector<Problem>& problems() const { return given_; }
  const std::vector<const Algorithm<OperatorProblem>*>& algorithms() const { return algorithms_; }

  std::vector<BenchCase> cases() override {
    std::vector<BenchCase> out;
    const std::vector<Direction> wanted = directions();
    given_ = read_problems();
    algorithms_ = algorithms_named<OperatorProblem>(command(), algorithm_, device());
    for (const Problem& problem : given_) {
      for (const Direction direction : wanted) {
        if (!is_timed(problem, direction)) continue;
        out.push_back(
            {problem.text(), direction, [this, problem, direction](const BenchProgress& progress) {
               return measure(problem, direction, progress);
             }});
      }
    }
    return out;
  }

 private:
  std::vector<Problem> given_;
  std::vector<const Algorithm<OperatorProblem>*> algorithms_;
};

}  // namespace convscope
