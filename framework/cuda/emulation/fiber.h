// SPDX-License-Identifier: Apache-2.0
// fiber.h: a stack of its own for each emulated thread, and switching between them: one thread of
// the machine, no scheduler of the system. The address sanitizer is told of every switch.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulation {

// Where a fiber, or the scheduler's own stack, has stopped.
class Fiber {
 public:
  Fiber() = default;                // the stack of the caller: to switch back to
  explicit Fiber(void (*entry)());  // a new stack; `entry` must never return
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Stops `from`, which runs now, and goes on with `to`.
  static void switch_to(Fiber& from, Fiber& to);
  // Forgets what ran on this stack; it begins with `entry` again.
  void restart();

 private:
  friend void fiber_begins();
  static void arrived(Fiber& at);

  void (*entry_)() = nullptr;
  std::byte* memory_ = nullptr;  // guard page, then the stack
  std::size_t memory_bytes_ = 0;
  // Stacks begin at different cache lines of their pages: else the same few sets of the first cache
  // would have to hold what all threads use.
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
