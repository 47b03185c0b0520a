// SPDX-License-Identifier: Apache-2.0
// ref.h: a reference-counted pointer. The objects come from the small-object pool, so building and
// freeing an autograd graph makes no system allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "framework/memory/memory.h"

namespace convscope {

// Base of all objects that Ref points to. Its destructor is virtual: Ref<Base> may free a Derived.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  static void* operator new(std::size_t bytes) { return allocate_small(bytes); }
  static void operator delete(void* pointer, std::size_t bytes) {
    deallocate_small(pointer, bytes);
  }

  void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  // Returns true when the last owner has released the object.
  bool release() const noexcept { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  int use_count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  mutable std::atomic<int> count_{0};
};

template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* pointer) : pointer_(pointer) { retain(); }
  Ref(const Ref& other) : pointer_(other.pointer_) { retain(); }
  Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  template <class U, std::enable_if_t<std::is_convertible_v<U*, T*>, int> = 0>
  Ref(const Ref<U>& other) : pointer_(other.get()) {
    retain();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Ref() {
    if (pointer_ != nullptr && pointer_->release()) delete pointer_;
  }

  T* get() const { return pointer_; }
  T* operator->() const { return pointer_; }
  T& operator*() const { return *pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }
  bool operator==(const Ref& other) const { return pointer_ == other.pointer_; }

 private:
  void retain() const {
    if (pointer_ != nullptr) pointer_->retain();
  }
  T* pointer_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace convscope
