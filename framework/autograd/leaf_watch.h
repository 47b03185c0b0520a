// SPDX-License-Identifier: Apache-2.0
// leaf_watch.h: reports, during a backward pass, when the gradient of a leaf (a parameter) is
// complete: the backward passes of all operations that use the leaf have run.
#pragma once

#include <functional>

#include "framework/autograd/variable.h"

namespace convscope {

// While a LeafWatch exists, each backward pass of a dynamic graph in this thread reports each leaf
// once.
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
