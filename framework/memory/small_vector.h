// SPDX-License-Identifier: Apache-2.0
// small_vector.h: a vector of a few elements, in memory of the per-thread free lists (memory.h).
#pragma once

#include <cstddef>
#include <vector>

#include "framework/memory/memory.h"

namespace convscope {

template <class T>
struct SmallAllocator {
  using value_type = T;
  SmallAllocator() = default;
  template <class U>
  SmallAllocator(const SmallAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_small(count * sizeof(T))); }
  void deallocate(T* pointer, std::size_t count) noexcept {
    deallocate_small(pointer, count * sizeof(T));
  }
  bool operator==(const SmallAllocator&) const { return true; }
};
template <class T>
using SmallVector = std::vector<T, SmallAllocator<T>>;

}  // namespace convscope
