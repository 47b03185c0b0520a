// SPDX-License-Identifier: Apache-2.0
// threads.cpp: grids, blocks and warps.
#include "framework/cuda/emulation/threads.h"

#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/check.h"
#include "framework/cuda/emulation/fiber.h"
#include "framework/cuda/emulation/thread_order.h"

uint3 threadIdx{}, blockIdx{};
dim3 blockDim{}, gridDim{};

namespace emulation {
namespace {

using convscope::cat;

enum class State { running, ready, at_barrier, in_warp, waiting, left };

struct Thread {
  uint3 index{};
  unsigned number = 0;  // in the block; x runs first
  State state = State::running;
  Fiber* fiber = nullptr;
  // in_warp, waiting: what it waits for, and its part in it
  unsigned mask = 0;
  const void* which = nullptr;
  const char* name = "";
  const void* argument = nullptr;
  void* result = nullptr;
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// The block that runs now. One grid runs at a time (`running`), so all of it is plain data.
struct Watched {  // see watch()
  const void* object;
  unsigned fact;
  bool (*whole)(const void*, unsigned);
  const char* sentence;
};

struct Block {
  std::mutex running;
  void (*call)(const void*) = nullptr;
  const void* kernel = nullptr;
  unsigned size = 0;
  std::vector<Thread> threads = std::vector<Thread>(1024);
  std::array<unsigned, 32> lanes_waiting{};  // of each warp
  unsigned begun = 0, left = 0;
  // A ring: who can go on, in this order. No thread is in it twice.
  std::array<Thread*, 1024> ready{};
  unsigned ready_first = 0, ready_count = 0;
  // the barrier that threads wait at
  unsigned at_barrier = 0, barrier_true = 0;
  Barrier barrier_kind = Barrier::plain;
  unsigned barrier_result = 0;
  std::array<unsigned, 16> at_named{};  // threads at each barrier of some of the warps
  std::vector<Watched> watched;

  std::unique_ptr<void, FreeMemory> shared;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> idle;
  Fiber scheduler;
  Thread* current = nullptr;
  Fiber* current_fiber = nullptr;
  std::string error;
  std::exception_ptr thrown;  // by a kernel
};

// Made by the first launch and never freed: a destructor at the end of the process may launch too.
Block* the_block = nullptr;
Block& block() { return *the_block; }

ThreadOrder order_of_environment() {
  const char* order = std::getenv("CONVSCOPE_EMULATION_ORDER");
  return order != nullptr && std::string_view(order) == "reverse" ? ThreadOrder::last_first
                                                                  : ThreadOrder::first_first;
}
ThreadOrder& order_now() {
  static ThreadOrder order = order_of_environment();
  return order;
}
bool reverse_order() { return order_now() == ThreadOrder::last_first; }

void make_current(Thread& thread) {
  block().current = &thread;
  threadIdx = thread.index;
}

void back_to_scheduler() {
  Block& b = block();
  Fiber::switch_to(*b.current_fiber, b.scheduler);
}

// On a fiber: thread after thread, as long as there are threads that have not begun. So a kernel
// without barriers needs one fiber, and no switch for each of its threads.
void fiber_main() {
  Block& b = block();
  for (;;) {
    while (b.begun < b.size) {
      const unsigned number = reverse_order() ? b.size - 1 - b.begun : b.begun;
      ++b.begun;
      Thread& thread = b.threads[number];
      thread.state = State::running;
      thread.fiber = b.current_fiber;
      make_current(thread);
      try {
        b.call(b.kernel);
      } catch (...) {  // nothing may leave this stack: run_block() throws it again on its own
        b.thrown = std::current_exception();
      }
      if (b.thrown) {
        back_to_scheduler();
        std::abort();  // the fiber is never continued
      }
      thread.state = State::left;
      ++b.left;
    }
    b.idle.push_back(b.current_fiber);
    back_to_scheduler();
  }
}

void go_on(Fiber& fiber) {
  Block& b = block();
  b.current_fiber = &fiber;
  Fiber::switch_to(b.scheduler, fiber);
}

Thread& next_ready() {
  Block& b = block();
  Thread& thread = *b.ready[b.ready_first];
  b.ready_first = (b.ready_first + 1) % static_cast<unsigned>(b.ready.size());
  --b.ready_count;
  thread.state = State::running;
  make_current(thread);
  return thread;
}

// Goes on with another thread at once when one can go on.
void wait_as(State state) {
  Block& b = block();
  Thread& self = *b.current;
  self.state = state;
  if (b.ready_count == 0) return back_to_scheduler();
  b.current_fiber = next_ready().fiber;
  Fiber::switch_to(*self.fiber, *b.current_fiber);
}

void make_ready(Thread& thread) {
  Block& b = block();
  thread.state = State::ready;
  b.ready[(b.ready_first + b.ready_count++) % b.ready.size()] = &thread;
}

void release_barrier() {
  Block& b = block();
  switch (b.barrier_kind) {
    case Barrier::plain:
      b.barrier_result = 0;
      break;
    case Barrier::any:
      b.barrier_result = b.barrier_true > 0 ? 1 : 0;
      break;
    case Barrier::all:
      b.barrier_result = b.barrier_true == b.at_barrier ? 1 : 0;
      break;
    case Barrier::count:
      b.barrier_result = b.barrier_true;
      break;
  }
  b.at_barrier = 0;
  b.barrier_true = 0;
  for (unsigned i = 0; i < b.size; ++i) make_ready(b.threads[reverse_order() ? b.size - 1 - i : i]);
}

// "threads 0 to 31 and 64 to 95"
std::string threads_where(const auto& holds) {
  const Block& b = block();
  std::string out;
  for (unsigned i = 0; i < b.size;) {
    if (!holds(b.threads[i])) {
      ++i;
      continue;
    }
    unsigned end = i;
    while (end + 1 < b.size && holds(b.threads[end + 1])) ++end;
    if (!out.empty()) out += ", ";
    if (out.size() > 100) return out + "...";
    out += end == i ? cat(i) : cat(i, " to ", end);
    i = end + 1;
  }
  return out;
}

// Nothing can go on: says who waits for whom.
std::string stuck() {
  const Block& b = block();
  std::string what = "some threads wait and can never go on:";
  const auto add = [&](std::string_view where, const std::string& who) {
    if (!who.empty()) what += cat(" [", who, "] ", where, ";");
  };
  add("wait at __syncthreads",
      threads_where([](const Thread& t) { return t.state == State::at_barrier; }));
  std::vector<std::string_view> names;
  for (unsigned i = 0; i < b.size; ++i) {
    const Thread& thread = b.threads[i];
    if (thread.state != State::in_warp && thread.state != State::waiting) continue;
    bool known = false;
    for (const std::string_view name : names) known = known || name == thread.name;
    if (known) continue;
    names.push_back(thread.name);
    add(thread.state == State::in_warp ? cat("wait in ", thread.name, " for lanes of their warp")
                                       : cat("wait in ", thread.name),
        threads_where([&](const Thread& t) {
          return t.state == thread.state && std::string_view(t.name) == thread.name;
        }));
  }
  add("have left the kernel",
      threads_where([](const Thread& t) { return t.state == State::left; }));
  what.pop_back();
  return what;
}

// What the fibers were doing is forgotten; their stacks begin anew.
void forget_fibers() {
  Block& b = block();
  b.idle.clear();
  for (auto& fiber : b.fibers) {
    fiber->restart();
    b.idle.push_back(fiber.get());
  }
  b.error.clear();
  b.current = nullptr;
}

[[noreturn]] void give_up(std::string sentence) {
  const Block& b = block();
  forget_fibers();
  const std::string place =
      cat("block (", blockIdx.x, ",", blockIdx.y, ",", blockIdx.z, ") of grid ", gridDim.x, "x",
          gridDim.y, "x", gridDim.z, ", ", b.size, " threads: ");
  convscope::fail(convscope::ErrorKind::kRun, "cuda emulation", place + sentence);
}

void run_block() {
  Block& b = block();
  b.begun = b.left = b.at_barrier = b.barrier_true = 0;
  b.ready_first = b.ready_count = 0;
  b.lanes_waiting.fill(0);
  b.at_named.fill(0);
  b.watched.clear();
  for (;;) {
    if (b.ready_count > 0) {
      go_on(*next_ready().fiber);
    } else if (b.begun < b.size) {
      if (b.idle.empty()) {
        b.fibers.push_back(std::make_unique<Fiber>(&fiber_main));
        b.idle.push_back(b.fibers.back().get());
      }
      Fiber* fiber = b.idle.back();
      b.idle.pop_back();
      go_on(*fiber);
    } else if (b.left == b.size) {
      for (const Watched& it : b.watched) {
        if (!it.whole(it.object, it.fact)) give_up(it.sentence);
      }
      return;
    } else if (b.at_barrier == b.size) {
      release_barrier();
    } else {
      give_up(stuck());
    }
    if (b.thrown) {
      forget_fibers();
      std::rethrow_exception(std::exchange(b.thrown, nullptr));
    }
    if (!b.error.empty()) give_up(std::string(b.error));
  }
}

unsigned lanes_of_warp(unsigned warp) {
  const unsigned first = warp * 32;
  const unsigned size = block().size;
  return size - first >= 32 ? 0xffffffffu : (1u << (size - first)) - 1;
}

}  // namespace

ThreadOrder set_thread_order(ThreadOrder order) { return std::exchange(order_now(), order); }

void check_launch(dim3 grid, dim3 block_shape, std::size_t shared_bytes, unsigned cluster) {
  const std::uint64_t threads = std::uint64_t{block_shape.x} * block_shape.y * block_shape.z;
  CONVSCOPE_CHECK(threads >= 1 && threads <= 1024 && block_shape.z <= 64, "cuda emulation",
                  "expected a block of 1 to 1024 threads, at most 64 of them along z, got ",
                  block_shape.x, "x", block_shape.y, "x", block_shape.z);
  CONVSCOPE_CHECK(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "cuda emulation",
                  "expected a grid of at most 2147483647x65535x65535 blocks, got ", grid.x, "x",
                  grid.y, "x", grid.z);
  CONVSCOPE_CHECK(shared_bytes <= 227 * 1024, "cuda emulation",
                  "expected at most 232448 bytes of shared memory for a block, got ", shared_bytes);
  if (cluster > 1) {
    convscope::fail(convscope::ErrorKind::kUnavailable, "cuda emulation",
                    cat("expected no thread-block cluster, because the emulation has none, got "
                        "clusters of ",
                        cluster));
  }
}

void run_grid(dim3 grid, dim3 block_shape, std::size_t shared_bytes, void (*call)(const void*),
              const void* kernel) {
  static Block& b = *new Block;
  const std::lock_guard lock(b.running);
  the_block = &b;
  b.call = call;
  b.kernel = kernel;
  b.size = block_shape.x * block_shape.y * block_shape.z;
  gridDim = grid;
  blockDim = block_shape;
  unsigned number = 0;
  for (unsigned z = 0; z < block_shape.z; ++z) {
    for (unsigned y = 0; y < block_shape.y; ++y) {
      for (unsigned x = 0; x < block_shape.x; ++x, ++number) {
        b.threads[number].index = {x, y, z};
        b.threads[number].number = number;
      }
    }
  }
  // Exactly the bytes that were asked for, so that the address sanitizer sees one more.
  void* shared = nullptr;
  if (shared_bytes > 0 && posix_memalign(&shared, 128, shared_bytes) != 0) {
    convscope::fail(convscope::ErrorKind::kRun, "cuda emulation", "no memory for a block");
  }
  b.shared.reset(shared);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        if (shared_bytes > 0) std::memset(shared, 0xff, shared_bytes);  // NaN, or nonsense
        run_block();
      }
    }
  }
  b.shared.reset();
}

void* dynamic_shared() { return block().shared.get(); }

void stop(const char* sentence) {
  Block& b = block();
  b.error = cat("thread ", b.current->number, ": ", sentence);
  back_to_scheduler();
  std::abort();  // the fiber is never continued
}

void stop_shuffle(const char* name, unsigned from) {
  static thread_local std::string sentence;
  sentence = cat(name, " reads lane ", from, ", which takes no part");
  stop(sentence.c_str());
}

int barrier(Barrier kind, bool predicate) {
  Block& b = block();
  if (b.at_barrier > 0 && b.barrier_kind != kind) {
    stop("expected all threads at the same barrier, came to another kind of __syncthreads");
  }
  b.barrier_kind = kind;
  ++b.at_barrier;
  b.barrier_true += predicate ? 1 : 0;
  wait_as(State::at_barrier);
  return static_cast<int>(b.barrier_result);
}

void wait_for(const void* which, const char* name) {
  Thread& self = *block().current;
  self.which = which;
  self.name = name;
  wait_as(State::waiting);
}

void wake(const void* which) {
  Block& b = block();
  for (unsigned i = 0; i < b.size; ++i) {
    Thread& thread = b.threads[reverse_order() ? b.size - 1 - i : i];
    if (thread.state == State::waiting && thread.which == which) make_ready(thread);
  }
}

void watch(const void* object, unsigned fact, bool (*whole)(const void*, unsigned),
           const char* sentence) {
  block().watched.push_back({object, fact, whole, sentence});
}

void named_barrier(unsigned barrier, unsigned threads) {
  unsigned& here = block().at_named[barrier % 16];
  if (++here < threads) return wait_for(&here, "a barrier of some warps");
  here = 0;
  wake(&here);
}

unsigned lane() { return block().current->number % 32; }
unsigned existing_lanes() { return lanes_of_warp(block().current->number / 32); }

const Meeting* meet(unsigned mask, const void* which, const char* name, const void* argument,
                    void* result) {
  Block& b = block();
  Thread& self = *b.current;
  const unsigned warp = self.number / 32;
  const unsigned own = 1u << (self.number % 32);
  if ((mask & own) == 0) stop("the mask of a warp collective does not name the calling lane");
  self.mask = mask;
  self.which = which;
  self.name = name;
  self.argument = argument;
  self.result = result;
  unsigned& waiting = b.lanes_waiting[warp];
  waiting |= own;
  const unsigned expected = mask & lanes_of_warp(warp);
  if ((waiting & expected) != expected) {
    wait_as(State::in_warp);
    return nullptr;
  }
  static Meeting out;  // for the time until the results are given out
  out.lanes = expected;
  for (unsigned i = 0; i < 32; ++i) {
    if ((expected >> i & 1u) == 0) continue;
    const Thread& other = b.threads[warp * 32 + i];
    if (other.which != which || other.mask != mask) {
      static thread_local std::string sentence;
      sentence = cat("lane ", i, " of its warp waits in ", other.name, " with mask ", other.mask,
                     ", this lane came to ", name, " with mask ", mask);
      stop(sentence.c_str());
    }
    out.arguments[i] = other.argument;
    out.results[i] = other.result;
  }
  waiting &= ~expected;
  return &out;
}

void part(unsigned lanes) {
  Block& b = block();
  Thread& self = *b.current;
  const unsigned warp = self.number / 32;
  for (unsigned i = 0; i < 32; ++i) {
    Thread& other = b.threads[warp * 32 + i];
    if ((lanes >> i & 1u) != 0 && &other != &self) make_ready(other);
  }
}

}  // namespace emulation
