// SPDX-License-Identifier: Apache-2.0
// op_call.h: `convscope op OPERATOR`: an operator and its gradients on NumPy files. An operator
// derives a class from OpCallOf<Problem>, which says what its arrays and options are, and which
// problem they define.
#pragma once

#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "experiments/cli/command_line.h"
#include "experiments/operators/call_arrays.h"
#include "experiments/operators/operator_table.h"
#include "layers/dispatch/execute.h"

namespace convscope {

// An array that `--<name>` reads from a file.
struct OpArray {
  const char* name;
  const char* help;
  bool is_required = true;
  bool has_gradient = true;  // false: coordinates, which keep their type
};

class OpCall {
 public:
  // Takes the arrays in the order of the help, and the help of --dy.
  OpCall(const char* operation, std::vector<OpArray> arrays, const char* dy)
      : command_(std::string("op ") + operation), arrays_(std::move(arrays)), dy_help_(dy) {}
  virtual ~OpCall() = default;
  OpCall(const OpCall&) = delete;
  OpCall& operator=(const OpCall&) = delete;

  void declare(CommandLine& app);
  virtual int run() = 0;  // after parsing; returns the exit code

 protected:
  virtual void add_options(CommandLine&) {}      // before --algorithm and --device
  virtual void add_run_options(CommandLine&) {}  // after them
  // Throws a usage error when the options contradict each other.
  virtual void check() const;
  // Returns why the array has the shape of the problem ("that is y"), and a hint at the option that
  // would make the array's shape right.
  virtual std::string because(const std::string& name) const;
  virtual std::string hint(const std::string&, const Shape&) const { return ""; }
  // Converts an array from the user's order of rows to the kernel's, and a result back.
  virtual Tensor stored(const std::string&, const Tensor& array) const { return array; }
  virtual Tensor shown(const std::string&, const Tensor& result) const { return result; }
  virtual std::vector<std::string> other_outputs() const { return {}; }

  const char* command() const { return command_.c_str(); }
  const std::string& algorithm() const { return algorithm_; }
  const std::string& device_name() const { return device_name_; }
  Device device() const { return device_; }
  const std::string& file(const std::string& name) const { return in_.at(name); }
  const Tensor& given(const std::string& name) const { return given_.at(name); }
  bool is_given(const std::string& name) const { return !in_.at(name).empty(); }
  bool wants(const std::string& result) const { return !out_.at(result).empty(); }
  bool wants_gradients() const;
  bool wants_results() const { return wants("y") || wants_gradients(); }
  void require_dy() const;

  // The steps of run().
  using Arrays = std::map<std::string, Tensor>;  // by name: x, w, b, dy
  void check_call();                             // options and device
  void read_arrays();
  // Returns the given arrays as the kernels need them. Throws unless they have the shapes of the
  // problem, whose forward pass has the operands `forward`.
  Arrays checked_arrays(const OperandSpecs& forward, DType type) const;
  void open_outputs() const;  // and measures the machine
  void write(const std::string& result, const Tensor& tensor) const;
  void finish() const;  // the gradient of the bias, and the lines of check:a,b

 private:
  const std::string command_;
  const std::vector<OpArray> arrays_;
  const char* dy_help_;
  std::map<std::string, std::string> in_, out_;  // files by the names of arrays and results
  std::string algorithm_ = "auto", device_name_ = "cpu";
  Device device_;
  Arrays given_;  // as in the files
};

template <class Problem>
class OpCallOf : public OpCall {
 public:
  OpCallOf(std::vector<OpArray> arrays, const char* dy)
      : OpCall(Operator<Problem>::kOperation, std::move(arrays), dy) {}

  int run() override {
    check_call();
    constexpr const char* kOperation = Operator<Problem>::kOperation;
    const std::vector<std::string> names = Operator<Problem>::algorithms(device().type).names();
    check_offered(kOperation, names, command(), "--device ", device());
    check_policy(kOperation, algorithm(), device(), names);
    read_arrays();
    problem_ = problem_of_arrays();
    const Arrays arrays = checked_arrays(problem_.operands(Direction::forward), problem_.dtype);
    open_outputs();
    if (!begin()) return 0;
    for (const Direction direction : kDirections) {
      run_direction<Problem>(
          problem_.operands(direction), direction, device(),
          [&](const std::string& result) { return wants(result); },
          [&](const char* name) { return arrays.contains(name) ? arrays.at(name) : Tensor(); },
          [&](const Operands& operands) { execute_with(direction, operands); },
          [&](const std::string& result, const Tensor& tensor) { write(result, tensor); });
    }
    finish();
    return 0;
  }

 protected:
  // Returns the problem of the given arrays, which has their type; throws if there is none.
  virtual Problem problem_of_arrays() const = 0;
  // Prints what is known before the run. Returns false when nothing is to be run.
  virtual bool begin() {
    std::cerr << problem_.text() << "\n";
    return true;
  }
  // `run` repeats a direction that has been run, and returns when the device is done.
  virtual void after_run(Direction, const std::function<void()>& /*run*/) const {}
  const Problem& problem() const { return problem_; }

 private:
  void execute_with(Direction direction, const Operands& operands) const {
    const auto choice = select_algorithm(algorithm(), problem_, direction, device());
    std::cerr << name_of(direction) << ": " << choice.algorithm->name << "\n";
    execute(choice, problem_, direction, operands);
    after_run(direction, [&] {
      execute(choice, problem_, direction, operands);
      backend_of(device()).synchronize(device().index);
    });
  }

  Problem problem_;
};

}  // namespace convscope
