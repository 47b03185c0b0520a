// SPDX-License-Identifier: Apache-2.0
// algorithm_function.h: a function of an algorithm. It is assigned, compared with nullptr and
// called like a plain function pointer. Before each call, it counts the call under the algorithm's
// name (kernel_runs.h).
//
//   AlgorithmFunction<Conv2dForwardArgs> forward = direct_forward;
//   forward.set_name("direct", "forward");  // done once, when the algorithm is registered
//   forward(args);                          // args.problem says what is computed
#pragma once

#include <concepts>
#include <string_view>

#include "layers/dispatch/kernel_runs.h"

namespace convscope {

template <class Args>
class AlgorithmFunction {
 public:
  using Function = void (*)(const Args&);

  constexpr AlgorithmFunction() = default;
  constexpr AlgorithmFunction(Function run) : run_(run) {}  // NOLINT(google-explicit-constructor)
  // Takes a lambda without captures, or nullptr.
  template <std::convertible_to<Function> F>
  constexpr AlgorithmFunction(F run) : run_(run) {}  // NOLINT(google-explicit-constructor)

  void operator()(const Args& args) const {
    if (!name_.empty()) kernel_ran(name_, direction_, args.problem);
    run_(args);
  }
  friend constexpr bool operator==(const AlgorithmFunction& f, std::nullptr_t) {
    return f.run_ == nullptr;
  }

  // Sets the names under which calls are counted. Both arguments must outlive the algorithm. Calls
  // of a function without a name are not counted.
  constexpr void set_name(std::string_view name, std::string_view direction) {
    name_ = name;
    direction_ = direction;
  }

 private:
  Function run_ = nullptr;
  std::string_view name_, direction_;
};

}  // namespace convscope
