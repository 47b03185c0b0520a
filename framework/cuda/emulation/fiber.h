// SPDX-License-Identifier: Apache-2.0
// fiber.h: a separate stack for each emulated thread, and switches between stacks. All run on one
// thread, without the system's scheduler. The address sanitizer is informed of every switch.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulation {

// The point at which a fiber, or the scheduler, has stopped.
class Fiber {
 public:
  Fiber() = default;                // the stack of the caller, for switching back
  explicit Fiber(void (*entry)());  // a new stack; `entry` must never return
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Stops `from`, which is running, and continues `to`.
  static void switch_to(Fiber& from, Fiber& to);
  // Discards the content of this stack; it begins with `entry` again.
  void restart();

 private:
  friend void fiber_begins();
  static void arrived(Fiber& at);

  void (*entry_)() = nullptr;
  std::byte* memory_ = nullptr;  // guard page, then the stack
  std::size_t memory_bytes_ = 0;
  // Stacks begin at different cache lines of their pages. Otherwise the same few L1 sets would hold
  // the data of all threads.
  std::size_t first_line_ = 0;
  void* fake_stack_ = nullptr;  // of the address sanitizer
  const void* stack_bottom_ = nullptr;
  std::size_t stack_bytes_ = 0;
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
};

}  // namespace emulation
