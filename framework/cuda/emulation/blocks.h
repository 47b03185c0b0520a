// SPDX-License-Identifier: Apache-2.0
// blocks.h: state of the running blocks, shared by threads.cpp and cluster.cpp only.
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

// These names are hidden symbols, because the library, the test program and the emulated device
// each need a separate copy.
#pragma GCC visibility push(hidden)
namespace emulation::now {

enum class State { running, ready, at_barrier, in_warp, waiting, left };

struct Block;
struct Thread {
  uint3 index{};
  Block* block = nullptr;
  unsigned number = 0;  // in the block; x varies fastest
  State state = State::running;
  Fiber* fiber = nullptr;
  // in states in_warp and waiting: the object that the thread waits for, and what the thread passes
  // to it
  unsigned mask = 0;
  const void* which = nullptr;
  const char* name = "";
  const void* argument = nullptr;
  void* result = nullptr;
  // The round of the cluster barrier in which the thread has arrived but has not yet waited; 0:
  // none.
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

constexpr unsigned kMaxThreads = 1024;  // per block
constexpr unsigned kMaxBlocks = 8;      // per cluster

struct Block {
  uint3 index{};
  unsigned rank = 0;  // in its cluster
  unsigned size = 0;
  std::vector<Thread> threads;
  std::array<unsigned, 32> lanes_waiting{};  // per warp
  unsigned begun = 0, left = 0;
  // the barrier at which threads wait
  unsigned at_barrier = 0, barrier_true = 0;
  Barrier barrier_kind = Barrier::plain;
  unsigned barrier_result = 0;
  std::array<unsigned, 16> at_named{};  // threads at each partial barrier
  std::vector<Watched> watched;
  std::unique_ptr<void, FreeMemory> shared;
};

// The running blocks: the blocks of one cluster, or a single block. One grid runs at a time
// (`running`), so no member is thread-local.
struct Cluster {
  std::mutex running;
  void (*call)(const void*) = nullptr;
  const void* kernel = nullptr;
  unsigned count = 1;            // number of blocks
  std::size_t shared_bytes = 0;  // per block
  Block* beginning = nullptr;    // the block whose threads begin now
  Thread* current = nullptr;
  Fiber* current_fiber = nullptr;
  Fiber scheduler;
  // A ring buffer of the threads that can continue, in order. Each thread occurs at most once.
  unsigned ready_first = 0, ready_count = 0;
  unsigned ready_last_place = kMaxThreads - 1;  // last index of the ring in use
  // The cluster barrier. Rounds count from 1.
  unsigned round = 1;
  unsigned arrived = 0;  // in this round, among the threads that have not exited

  std::exception_ptr thrown;  // by a kernel
  std::string error;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  std::array<Block, kMaxBlocks> blocks;
  std::array<Thread*, kMaxThreads * kMaxBlocks> ready{};
};

// The object is created by the first launch and never freed, because a destructor at process exit
// may launch a kernel, too.
extern Cluster* the_cluster;
inline Cluster& cluster() { return *the_cluster; }
// The block of the running thread.
extern Block* the_block;
inline Block& block() { return *the_block; }

bool reverse_order();
// Returns the index of the item that begins as the i-th of `count` items.
inline unsigned in_order(unsigned i, unsigned count) { return reverse_order() ? count - 1 - i : i; }

void back_to_scheduler();

// Ends the launch with an error. The fiber never continues, so no object on its stack may own
// memory.
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
// Counts a thread that has exited the kernel as arrived.
void arrive_by_leaving(Thread& thread);

}  // namespace emulation::now
#pragma GCC visibility pop
