// SPDX-License-Identifier: Apache-2.0
// blocks.h: what threads.cpp and cluster.cpp know of the blocks that run now. For no one else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/check.h"
#include "framework/cuda/emulation/fiber.h"
#include "framework/cuda/emulation/threads.h"

// Hidden: the library, the program of the tests and the emulated device have blocks of their own.
#pragma GCC visibility push(hidden)
namespace emulation::now {

enum class State { running, ready, at_barrier, in_warp, waiting, left };

struct Block;
struct Thread {
  uint3 index{};
  Block* block = nullptr;
  unsigned number = 0;  // in the block; x runs first
  State state = State::running;
  Fiber* fiber = nullptr;
  // in_warp, waiting: what it waits for, and its part in it
  unsigned mask = 0;
  const void* which = nullptr;
  const char* name = "";
  const void* argument = nullptr;
  void* result = nullptr;
  // The round of the cluster's barrier that it arrived in and has not waited for; 0: none.
  unsigned arrived_in = 0;
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

struct Watched {  // see watch()
  const void* object;
  unsigned fact;
  bool (*whole)(const void*, unsigned);
  const char* sentence;
};

constexpr unsigned kMostThreads = 1024;  // of a block
constexpr unsigned kMostBlocks = 8;      // of a cluster

struct Block {
  uint3 index{};
  unsigned rank = 0;  // in its cluster
  unsigned size = 0;
  std::vector<Thread> threads;
  std::array<unsigned, 32> lanes_waiting{};  // of each warp
  unsigned begun = 0, left = 0;
  // the barrier that threads wait at
  unsigned at_barrier = 0, barrier_true = 0;
  Barrier barrier_kind = Barrier::plain;
  unsigned barrier_result = 0;
  std::array<unsigned, 16> at_named{};  // threads at each barrier of some of the warps
  std::vector<Watched> watched;
  std::unique_ptr<void, FreeMemory> shared;
};

// The blocks that run now: those of a cluster, or one. One grid runs at a time (`running`), so all
// of it is plain data.
struct Cluster {
  std::mutex running;
  void (*call)(const void*) = nullptr;
  const void* kernel = nullptr;
  unsigned count = 1;            // of blocks
  std::size_t shared_bytes = 0;  // of each block
  Block* beginning = nullptr;    // whose threads begin now
  Thread* current = nullptr;
  Fiber* current_fiber = nullptr;
  Fiber scheduler;
  // A ring: who can go on, in this order. No thread is in it twice.
  unsigned ready_first = 0, ready_count = 0;
  unsigned ready_last_place = kMostThreads - 1;  // of the part that so many blocks need
  // The barrier of the cluster. Rounds count from 1.
  unsigned round = 1;
  unsigned arrived = 0;  // in this round, of the threads that have not left

  std::exception_ptr thrown;  // by a kernel
  std::string error;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  std::array<Block, kMostBlocks> blocks;
  std::array<Thread*, kMostThreads * kMostBlocks> ready{};
};

// Made by the first launch and never freed: a destructor at the end of the process may launch too.
extern Cluster* the_cluster;
inline Cluster& cluster() { return *the_cluster; }
// Of the thread that runs now.
extern Block* the_block;
inline Block& block() { return *the_block; }

bool reverse_order();
// The place of what comes as number i of `count`.
inline unsigned in_order(unsigned i, unsigned count) { return reverse_order() ? count - 1 - i : i; }

void back_to_scheduler();

// Ends the launch. The fiber is never continued, so nothing on its stack may hold memory.
template <class... Parts>
[[noreturn, gnu::noinline, gnu::cold]] void stop_saying(const Parts&... parts) {
  Cluster& c = cluster();
  c.error = convscope::cat("thread ", c.current->number, ": ", parts...);
  back_to_scheduler();
  std::abort();
}

inline void make_ready(Thread& thread) {
  Cluster& c = cluster();
  thread.state = State::ready;
  c.ready[(c.ready_first + c.ready_count++) & c.ready_last_place] = &thread;
}

inline void wake_in(Block& b, const void* which) {
  for (unsigned i = 0; i < b.size; ++i) {
    Thread& thread = b.threads[in_order(i, b.size)];
    if (thread.state == State::waiting && thread.which == which) make_ready(thread);
  }
}

// ---- the barrier of the cluster, cluster.cpp ----
void begin_rounds();  // before the blocks run
// A thread that has left the kernel counts as arrived.
void arrive_by_leaving(Thread& thread);

}  // namespace emulation::now
#pragma GCC visibility pop
