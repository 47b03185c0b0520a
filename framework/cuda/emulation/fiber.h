// SPDX-License-Identifier: Apache-2.0
// fiber.h: gives each emulated thread a separate stack, and switches between the stacks. All stacks
// run on one system thread, without the system's scheduler. The address sanitizer is informed of
// every switch.
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
  // Discards the content of this stack. The next switch to it calls `entry` again.
  void restart();

 private:
  friend void fiber_begins();
  static void arrived(Fiber& at);

  void (*entry_)() = nullptr;
  std::byte* memory_ = nullptr;  // guard page, then the stack
  std::size_t memory_bytes_ = 0;
  // Stacks begin at different cache lines of their pages. Otherwise, the top frames of all stacks
  // would be in the same few sets of L1.
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
