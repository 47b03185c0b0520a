// SPDX-License-Identifier: Apache-2.0
// fiber.cpp: gives each emulated thread a separate stack, and switches between the stacks. All
// stacks run on one system thread, without the system's scheduler.
#include "framework/cuda/emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "framework/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define CONVSCOPE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONVSCOPE_ASAN 1
#endif
#endif
#if defined(CONVSCOPE_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
extern "C" void convscope_emulation_switch(void** save_stack_pointer, void* load_stack_pointer);
// Pushes the callee-saved registers onto the old stack, switches to the new stack, and pops the
// registers that the new fiber has pushed there.
asm(R"(
.text
.p2align 4
.hidden convscope_emulation_switch
.globl convscope_emulation_switch
.type convscope_emulation_switch,@function
convscope_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size convscope_emulation_switch,.-convscope_emulation_switch
)");
#endif

namespace emulation {
namespace {

#if defined(CONVSCOPE_ASAN)
constexpr std::size_t kStackBytes = 512 << 10;  // stack frames are several times larger
#else
constexpr std::size_t kStackBytes = 128 << 10;  // only touched pages consume memory
#endif

// The two fibers of the current switch. The new stack and arrived() read them.
Fiber* came_from = nullptr;
Fiber* going_to = nullptr;

}  // namespace

void fiber_begins() {
  Fiber& self = *going_to;
  Fiber::arrived(self);
  self.entry_();
  std::abort();  // entry never returns
}

Fiber::Fiber(void (*entry)()) : entry_(entry) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  memory_bytes_ = kStackBytes + page;
  void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0) {
    convscope::fail(convscope::ErrorKind::kRun, "cuda emulation",
                    "expected memory for the stack of one more emulated thread, got none");
  }
  memory_ = static_cast<std::byte*>(memory);
  stack_bottom_ = memory_ + page;
  stack_bytes_ = kStackBytes;
  static std::size_t fibers = 0;
  first_line_ = fibers++ * 2 % 64;
  restart();
}

Fiber::~Fiber() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

void Fiber::restart() {
#if defined(CONVSCOPE_ASAN)
  __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
#endif
  fake_stack_ = nullptr;
#if defined(__x86_64__)
  // The new stack holds six registers, then the address of fiber_begins(), to which the switch
  // returns. At that address, the stack pointer must be 8 below a multiple of 16, as after a call.
  auto* top = reinterpret_cast<void**>(memory_ + memory_bytes_ - first_line_ * 64);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&fiber_begins);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = const_cast<void*>(stack_bottom_);
  context_.uc_stack.ss_size = stack_bytes_;
  context_.uc_link = nullptr;
  makecontext(&context_, fiber_begins, 0);
#endif
}

// Runs first after each switch, on the stack that continues. From the sanitizer, it gets the
// position of the previous stack. Nothing else tells the position of the scheduler's stack.
void Fiber::arrived([[maybe_unused]] Fiber& at) {
#if defined(CONVSCOPE_ASAN)
  __sanitizer_finish_switch_fiber(at.fake_stack_, &came_from->stack_bottom_,
                                  &came_from->stack_bytes_);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  came_from = &from;
  going_to = &to;
#if defined(CONVSCOPE_ASAN)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
#if defined(__x86_64__)
  convscope_emulation_switch(&from.stack_pointer_, to.stack_pointer_);
#else
  swapcontext(&from.context_, &to.context_);
#endif
  arrived(from);
}

}  // namespace emulation
