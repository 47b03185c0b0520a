// SPDX-License-Identifier: Apache-2.0
// operator_call.h: one call of an operator from Python: the arrays, the problem and the results.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/operators/call_arrays.h"
#include "experiments/operators/operator_table.h"
#include "experiments/python/arguments.h"
#include "layers/dispatch/execute.h"

namespace convscope::python {

// An array argument. A required one must not be None.
struct ArrayArgument {
  const char* name;
  nb::handle value;
  bool is_required = true;
};

using Names = std::vector<std::string>;

// The choices of an operator by the word `algorithm`.
template <class Problem>
using ChoicesByWord = std::map<std::string, Ref<ChoiceCache<Problem>>, std::less<>>;

// Returns the algorithm that `algorithm` (a name or a policy such as "auto") selects for the
// problem. The choices are cached, because computing the costs of all algorithms takes longer than
// a small convolution.
template <class Problem>
Choice<Problem> chosen(ChoicesByWord<Problem>& caches, const std::string& algorithm,
                       const Problem& problem, Direction direction, Device device) {
  constexpr std::size_t kMaxWords = 64;
  auto at = caches.find(algorithm);
  if (at == caches.end()) {
    const char* const operation = Operator<Problem>::kOperation;
    const std::vector<std::string> names = Operator<Problem>::algorithms(device.type).names();
    check_offered(operation, names, operation, "device ", device);
    check_policy(operation, algorithm, device, names);
    if (caches.size() == kMaxWords) caches.clear();
    const AlgorithmPolicy policy{
        .forward = algorithm, .backward_data = algorithm, .backward_weight = algorithm};
    at = caches.emplace(algorithm, make_ref<ChoiceCache<Problem>>(policy)).first;
  }
  return at->second->get(problem, direction, device, WeightUse::once);
}

// An operator derives a class that sets the problem in its constructor.
template <class Problem>
class OperatorCall {
 public:
  static constexpr const char* kOperation = Operator<Problem>::kOperation;

  OperatorCall(std::initializer_list<ArrayArgument> arguments, ComputePrecision precision)
      : precision_(precision) {
    arrays_.reserve(arguments.size());
    for (const ArrayArgument& one : arguments) {
      if (!one.is_required && one.value.is_none()) continue;
      arrays_.push_back({one.name, array_of(one.value, kOperation, one.name), Tensor()});
    }
    check_type(x(), precision, kOperation);
    for (const Input& one : arrays_) check_beside(one.array, x(), kOperation, one.name);
  }
  virtual ~OperatorCall() = default;
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;

  nb::object y(const std::string& algorithm, const nb::object& device) {
    static const Names kNames = {"y"};
    return to_python(results(kNames, nb::none(), algorithm, device)[0], x().library);
  }
  // Returns the gradients with these names as a tuple. Those that `needs` does not name, and those
  // of missing arrays, are None.
  nb::tuple gradients(const Names& names, const nb::object& needs, const std::string& algorithm,
                      const nb::object& device) {
    nb::list out;
    for (const Tensor& one : results(names, needs, algorithm, device)) {
      out.append(one.defined() ? to_python(one, x().library) : nb::none());
    }
    return nb::tuple(out);
  }

 protected:
  const Array& at(std::string_view name) const { return find(name)->array; }
  const Array& x() const { return at("x"); }
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Throws an error unless all arrays have the shapes of the problem.
  void set_problem(const Problem& problem) {
    problem_ = problem;
    forward_ = problem.operands(Direction::forward);
    for (const Input& one : arrays_) {
      const Shape shape = input_shape(forward_, one.name);
      if (one.array.shape == shape) continue;
      check_shape(one.array, shape, because(one.name), kOperation, one.name);
    }
  }
  const Problem& problem() const { return problem_; }
  const std::string& algorithm() const { return algorithm_; }
  Device device() const { return device_; }

  // Returns why the array has the shape of the problem.
  virtual std::string because(const std::string& name) const {
    return name == "dy" ? "that is y" : "w has that many kernels";
  }
  // Converts an array to the order and type of the kernels, on the device; and a result to the
  // order, type and device of x.
  virtual Tensor stored(std::string_view, const Array& array) const {
    return array.tensor.to(device_).to(problem_.dtype);
  }
  virtual Tensor shown(std::string_view, const Tensor& result) const {
    return result.to(x().dtype).to(x().device);
  }
  // Each thread has its own choices.
  virtual Choice<Problem> choice(Direction direction) const {
    thread_local ChoicesByWord<Problem> caches;
    return chosen(caches, algorithm_, problem_, direction, device_);
  }

 private:
  struct Input {
    const char* name;
    Array array;
    mutable Tensor stored;  // for the kernels; defined once a direction has read it
  };
  const Input* find(std::string_view name) const {
    for (const Input& one : arrays_) {
      if (name == one.name) return &one;
    }
    return nullptr;
  }

  // Returns the results in the order of `names`; undefined: not wanted, or not there.
  std::vector<Tensor> results(const Names& names, const nb::object& needs,
                              const std::string& algorithm, const nb::object& device) {
    algorithm_ = algorithm;
    device_ = device_of(device, x());
    check_device(x().dtype, precision_, device_, kOperation);
    std::vector<bool> is_needed;
    for (const std::string& name : names) is_needed.push_back(wants(needs, name.c_str()));
    const nb::gil_scoped_release without_lock;
    measure_before(algorithm);
    const DeviceTurn turn(device_);
    std::vector<Tensor> out(names.size());
    const auto place_of = [&](const std::string& name) {
      return static_cast<std::size_t>(std::ranges::find(names, name) - names.begin());
    };
    const auto wanted = [&](const std::string& name) {
      const std::size_t place = place_of(name);
      return place < names.size() && is_needed[place];
    };
    const auto run = [&](const OperandSpecs& specs, Direction direction) {
      run_direction<Problem>(
          specs, direction, device_, wanted, [&](const char* name) { return input(name); },
          [&](const Operands& operands) {
            execute(choice(direction), problem_, direction, operands);
          },
          [&](const std::string& name, const Tensor& result) {
            out[place_of(name)] = shown(name, result);
          });
    };
    if (wanted("y")) {
      run(forward_, Direction::forward);
    } else {
      for (const Direction direction : {Direction::backward_data, Direction::backward_weight}) {
        run(problem_.operands(direction), direction);
      }
    }
    if (wanted("db")) {
      out[place_of("db")] = bias_gradient(at("dy").tensor.to(device_)).to(x().device);
    }
    turn.finish();
    return out;
  }

  Tensor input(const char* name) const {
    const Input* const one = find(name);
    if (one == nullptr) return Tensor();
    if (!one->stored.defined()) one->stored = stored(name, one->array);
    return one->stored;
  }

  const ComputePrecision precision_;
  std::vector<Input> arrays_;
  Problem problem_;
  OperandSpecs forward_;
  std::string algorithm_;
  Device device_;
};

}  // namespace convscope::python
