// SPDX-License-Identifier: Apache-2.0
// cell_guard.h: runs a piece of a cell so that the session outlives it. The kernel gives this file
// to cling, which compiles it; nothing else includes it.
//
// What C++ code throws, cling catches itself. What it cannot catch are signals: an interrupt, and
// the signals of a crash. A signal that meets the code of a cell is turned into an exception: the
// frames of the cell are cut off, and the function that called the cell goes on as if that call
// had thrown. So everything below the cell (cling, a library that called a lambda) is unwound as
// usual; only the cell's own objects are not destroyed.
//
//   ... cling        calls -->  cell, cell, cell   <-- the signal meets code of a cell
//   ... cling  <-- Stopped      (cut off)
//
// Code of a cell is code that belongs to no file: dladdr() does not know it. An interrupt that
// meets anything else (a function of the library, malloc) waits: the handler looks again every 5 ms
// until control is back in the cell. After a second it also leaves calls of libc, such as sleep().
//
// On x86-64; elsewhere an interrupt waits for the end of the cell, and a crash ends the session.
#pragma once

#include <TInterpreter.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unwind.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace convscope_kernel {

struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline volatile sig_atomic_t stopped_by = 0;  // the signal; 0: none
inline volatile sig_atomic_t looks = 0;       // since the interrupt
inline pthread_t cell_thread;
inline std::uintptr_t guard_frame = 0;  // frames beyond it are the kernel's own
constexpr int kPatience = 200;          // looks, 5 ms each

[[noreturn]] inline void throw_stopped() { throw Stopped("stopped"); }

struct Walk {
  std::uintptr_t pc;  // where the signal came
  bool patient;       // wait while no code of a cell is there, else: calls of libc are cut off too
  bool at_pc = false, in_cell = false, found = false;
  std::uintptr_t stack = 0, registers[17] = {};
};

inline bool is_cell(std::uintptr_t pc) {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(pc), &info) == 0;
}
inline bool is_libc(std::uintptr_t pc) {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(pc), &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "/libc.so") != nullptr;
}

// Looks for the innermost frame of a file that called code of a cell.
inline _Unwind_Reason_Code look_at(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const std::uintptr_t pc = _Unwind_GetIP(context);
  if (!walk.at_pc) {
    walk.at_pc = pc == walk.pc;
    if (!walk.at_pc) return _URC_NO_REASON;  // the handler's own frames
  }
  if (_Unwind_GetCFA(context) > guard_frame) return _URC_END_OF_STACK;
  if (is_cell(pc)) {
    walk.in_cell = true;
  } else if (walk.in_cell) {
    walk.found = true;
    walk.stack = _Unwind_GetCFA(context);
    for (int i : {3, 6, 12, 13, 14, 15}) walk.registers[i] = _Unwind_GetGR(context, i);
    return _URC_END_OF_STACK;
  } else if (walk.patient && !is_libc(pc)) {
    return _URC_END_OF_STACK;
  }
  return _URC_NO_REASON;
}

// Makes the interrupted thread go on in throw_stopped(), called by the function that called the
// cell. False when there is no cell on the stack.
inline bool leave_cell(void* context, bool patient) {
#if defined(__x86_64__)
  greg_t* const regs = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Walk walk{static_cast<std::uintptr_t>(regs[REG_RIP]), patient};
  _Unwind_Backtrace(look_at, &walk);
  if (!walk.found) return false;
  regs[REG_RBX] = static_cast<greg_t>(walk.registers[3]);
  regs[REG_RBP] = static_cast<greg_t>(walk.registers[6]);
  regs[REG_R12] = static_cast<greg_t>(walk.registers[12]);
  regs[REG_R13] = static_cast<greg_t>(walk.registers[13]);
  regs[REG_R14] = static_cast<greg_t>(walk.registers[14]);
  regs[REG_R15] = static_cast<greg_t>(walk.registers[15]);
  // The return address of the call stands there still.
  regs[REG_RSP] = static_cast<greg_t>(walk.stack - sizeof(void*));
  regs[REG_RIP] = reinterpret_cast<greg_t>(&throw_stopped);
  return true;
#else
  return false;
#endif
}

inline void look_again(bool on) {
  itimerval in{};
  in.it_value.tv_usec = on ? 5000 : 0;
  setitimer(ITIMER_REAL, &in, nullptr);
}

// SIGINT, and SIGALRM for later looks.
inline void on_interrupt(int signal, siginfo_t*, void* context) {
  if (!pthread_equal(pthread_self(), cell_thread)) {
    pthread_kill(cell_thread, signal);
    return;
  }
  if (signal == SIGINT) stopped_by = SIGINT;
  if (stopped_by == 0) return;
#if defined(__x86_64__)
  const auto pc =
      static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  looks = looks + 1;
  if ((is_cell(pc) || looks > kPatience) && leave_cell(context, true)) return;
#endif
  look_again(true);
}

inline void on_crash(int signal, siginfo_t*, void* context) {
  stopped_by = signal;
  if (pthread_equal(pthread_self(), cell_thread) && leave_cell(context, false)) return;
  ::signal(signal, SIG_DFL);  // the instruction runs again and ends the process
  raise(signal);
}

constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
constexpr int kHandled = 8;

class Handlers {
 public:
  Handlers() {
    static char stack[1 << 16];  // a cell that used up its own stack has none left for a handler
    const stack_t other{stack, 0, sizeof stack};
    sigaltstack(&other, nullptr);
    for (int i = 0; i < kHandled; ++i) {
      struct sigaction action {};
      action.sa_sigaction = i < 2 ? on_interrupt : on_crash;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
      sigaction(signal_at(i), &action, &before_[i]);
    }
  }
  ~Handlers() {
    look_again(false);
    for (int i = 0; i < kHandled; ++i) sigaction(signal_at(i), &before_[i], nullptr);
  }

 private:
  static int signal_at(int i) { return i == 0 ? SIGINT : i == 1 ? SIGALRM : kCrashes[i - 2]; }
  struct sigaction before_[kHandled];
};

}  // namespace convscope_kernel

// Runs a piece of a cell. Returns 0, or another number when it did not compile, threw or was
// stopped. `stopped` becomes the signal that stopped it, or 0.
extern "C" __attribute__((used)) int convscope_run_piece(const char* code, int* stopped) {
  using namespace convscope_kernel;
  stopped_by = 0;
  looks = 0;
  cell_thread = pthread_self();
  guard_frame = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  int status = 0;
  {
    const Handlers handlers;
    try {
      gInterpreter->ProcessLine(code, &status);
    } catch (...) {
      status = 1;
    }
  }
  *stopped = stopped_by;
  return status;
}

// Parses `code` without running anything; 0 when it is right.
extern "C" __attribute__((used)) int convscope_parse(const char* code) {
  return gInterpreter->Declare(code) ? 0 : 1;
}
