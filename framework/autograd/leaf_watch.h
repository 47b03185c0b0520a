// SPDX-License-Identifier: Apache-2.0
// leaf_watch.h: reports when the gradient of a leaf (a parameter) is complete during a backward
// pass: all operations that use the leaf have run backward.
#pragma once

#include <functional>

#include "framework/autograd/variable.h"

namespace convscope {

// While a LeafWatch exists, backward passes of dynamic graphs in this thread report each leaf once.
class CONVSCOPE_API LeafWatch {
 public:
  explicit LeafWatch(std::function<void(const Variable&)> ready);
  ~LeafWatch();
  LeafWatch(const LeafWatch&) = delete;
  LeafWatch& operator=(const LeafWatch&) = delete;

 private:
  friend class Engine;
  std::function<void(const Variable&)> ready_;
  LeafWatch* before_;
};

}  // namespace convscope
