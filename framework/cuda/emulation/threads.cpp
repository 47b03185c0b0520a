// SPDX-License-Identifier: Apache-2.0
// threads.cpp: grids, clusters, blocks and warps.
#include "framework/cuda/emulation/threads.h"

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/check.h"
#include "framework/cuda/emulation/blocks.h"
#include "framework/cuda/emulation/environment.h"
#include "framework/cuda/emulation/fiber.h"
#include "framework/cuda/emulation/overlap.h"
#include "framework/cuda/emulation/thread_order.h"

uint3 threadIdx{}, blockIdx{};
dim3 blockDim{}, gridDim{};

namespace emulation {

using namespace now;

Cluster* now::the_cluster = nullptr;
Block* now::the_block = nullptr;

namespace {

using convscope::cat;

ThreadOrder order_of_environment() {
  return environment_says("CONVSCOPE_EMULATION_ORDER", "reverse", "forward")
             ? ThreadOrder::last_first
             : ThreadOrder::first_first;
}
ThreadOrder& order_now() {
  static ThreadOrder order = order_of_environment();
  return order;
}

void enter(Block& b) {
  the_block = &b;
  blockIdx = b.index;
}

void make_current(Thread& thread) {
  Cluster& c = cluster();
  c.current = &thread;
  threadIdx = thread.index;
  if (c.count > 1) enter(*thread.block);
}

// Returns the block that the next new thread belongs to; null when all threads have begun.
Block* next_to_begin() {
  Cluster& c = cluster();
  if (c.beginning->begun < c.beginning->size) return c.beginning;
  Block* const last = &c.blocks[in_order(c.count - 1, c.count)];
  if (c.beginning == last) return nullptr;
  return c.beginning += reverse_order() ? -1 : 1;
}

// The main function of a fiber. It runs threads one after another until all have begun. So a kernel
// without barriers needs one fiber, and no switch of stacks per thread.
void fiber_main() {
  Cluster& c = cluster();
  for (;;) {
    while (Block* const b = next_to_begin()) {
      Thread& thread = b->threads[in_order(b->begun++, b->size)];
      thread.state = State::running;
      thread.fiber = c.current_fiber;
      make_current(thread);
      try {
        c.call(c.kernel);
      } catch (...) {  // no exception may leave this stack; run_blocks() rethrows it
        c.thrown = std::current_exception();
      }
      if (c.thrown) {
        back_to_scheduler();
        std::abort();  // the fiber never continues
      }
      thread.state = State::left;
      ++b->left;
      if (c.arrived > 0) arrive_by_leaving(thread);
    }
    c.idle.push_back(c.current_fiber);
    back_to_scheduler();
  }
}

void go_on(Fiber& fiber) {
  Cluster& c = cluster();
  c.current_fiber = &fiber;
  Fiber::switch_to(c.scheduler, fiber);
}

Thread& next_ready() {
  Cluster& c = cluster();
  Thread& thread = *c.ready[c.ready_first];
  c.ready_first = (c.ready_first + 1) & c.ready_last_place;
  --c.ready_count;
  thread.state = State::running;
  make_current(thread);
  return thread;
}

// Makes this thread wait in `state`. Another thread that is ready continues at once.
void wait_as(State state) {
  Cluster& c = cluster();
  Thread& self = *c.current;
  self.state = state;
  if (c.ready_count == 0) return back_to_scheduler();
  c.current_fiber = next_ready().fiber;
  Fiber::switch_to(*self.fiber, *c.current_fiber);
}

void release_barrier(Block& b) {
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
  for (unsigned i = 0; i < b.size; ++i) make_ready(b.threads[in_order(i, b.size)]);
}

// Releases each barrier at which all threads of the block wait. Returns true if a thread is ready.
bool release_barriers() {
  Cluster& c = cluster();
  for (unsigned i = 0; i < c.count; ++i) {
    Block& b = c.blocks[in_order(i, c.count)];
    if (b.at_barrier == b.size) release_barrier(b);
  }
  return c.ready_count > 0;
}

// Returns "0 to 31, 64 to 95".
std::string threads_where(const Block& b, const auto& holds) {
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

// Describes which threads of a block wait, and for what.
std::string waiting_threads(const Block& b) {
  std::string what;
  const auto add = [&](std::string_view where, const std::string& indices) {
    if (!indices.empty()) what += cat(" [", indices, "] ", where, ";");
  };
  add("wait at __syncthreads",
      threads_where(b, [](const Thread& t) { return t.state == State::at_barrier; }));
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
        threads_where(b, [&](const Thread& t) {
          return t.state == thread.state && std::string_view(t.name) == thread.name;
        }));
  }
  add("have left the kernel",
      threads_where(b, [](const Thread& t) { return t.state == State::left; }));
  return what;
}

// Describes a deadlock.
std::string stuck() {
  const Cluster& c = cluster();
  std::string what = "deadlock:";
  for (unsigned i = 0; i < c.count; ++i) {
    if (c.count > 1) what += cat(" block ", i, " of the cluster:");
    what += waiting_threads(c.blocks[i]);
  }
  what.pop_back();
  return what;
}

// Discards the state of all fibers. Each fiber starts again at the beginning of its stack.
void forget_fibers() {
  Cluster& c = cluster();
  c.idle.clear();
  for (auto& fiber : c.fibers) {
    fiber->restart();
    c.idle.push_back(fiber.get());
  }
  c.error.clear();
  c.current = nullptr;
}

std::string in_brackets(uint3 v) { return cat("(", v.x, ",", v.y, ",", v.z, ")"); }

// Ends the launch with an error. With `all`, the error names all running blocks, otherwise the
// block that ran last.
[[noreturn]] void give_up(const std::string& sentence, bool all = false) {
  const Cluster& c = cluster();
  const std::string grid = cat(" of grid ", gridDim.x, "x", gridDim.y, "x", gridDim.z, ", ");
  const std::string threads = cat(block().size, " threads");
  std::string place;
  if (c.count == 1) {
    place = cat("block ", in_brackets(blockIdx), grid, threads);
  } else if (all) {
    place = cat("blocks ", in_brackets(c.blocks[0].index), " to ",
                in_brackets(c.blocks[c.count - 1].index), grid, "one cluster, ", threads, " each");
  } else {
    place = cat("block ", in_brackets(blockIdx), grid, "block ", block().rank,
                " of its cluster of ", c.count, ", ", threads);
  }
  const std::string whole = cat(place, ": ", sentence);
  forget_fibers();
  convscope::fail(convscope::ErrorKind::kRun, "cuda emulation", whole);
}

bool all_left() {
  const Cluster& c = cluster();
  for (unsigned i = 0; i < c.count; ++i) {
    if (c.blocks[i].left < c.blocks[i].size) return false;
  }
  return true;
}

// Runs the blocks of a cluster, or one block: blocks[0] to blocks[count - 1], whose indices along x
// begin with `first`.
void run_blocks(uint3 first) {
  Cluster& c = cluster();
  for (unsigned rank = 0; rank < c.count; ++rank) {
    Block& b = c.blocks[rank];
    b.index = {first.x + rank, first.y, first.z};
    b.begun = b.left = b.at_barrier = b.barrier_true = 0;
    b.lanes_waiting.fill(0);
    b.at_named.fill(0);
    b.watched.clear();
    if (c.shared_bytes > 0) std::memset(b.shared.get(), 0xff, c.shared_bytes);  // NaN, or nonsense
  }
  c.ready_first = c.ready_count = 0;
  c.beginning = &c.blocks[in_order(0, c.count)];
  begin_rounds();
  overlap::begin_blocks();
  enter(*c.beginning);
  for (;;) {
    if (c.ready_count > 0) {
      go_on(*next_ready().fiber);
    } else if (next_to_begin() != nullptr) {
      if (c.idle.empty()) {
        c.fibers.push_back(std::make_unique<Fiber>(&fiber_main));
        c.idle.push_back(c.fibers.back().get());
      }
      Fiber* fiber = c.idle.back();
      c.idle.pop_back();
      go_on(*fiber);
    } else if (all_left()) {
      for (unsigned rank = 0; rank < c.count; ++rank) {
        enter(c.blocks[rank]);
        for (const Watched& it : block().watched) {
          if (!it.whole(it.object, it.fact)) give_up(it.sentence);
        }
      }
      if (const std::string error = overlap::end_blocks(); !error.empty()) give_up(error, true);
      return;
    } else if (release_barriers()) {
    } else if (overlap::somebody_waits()) {
      if (const std::string error = overlap::go_on(); !error.empty()) give_up(error, true);
    } else {
      give_up(stuck(), true);
    }
    if (c.thrown) {
      forget_fibers();
      std::rethrow_exception(std::exchange(c.thrown, nullptr));
    }
    if (!c.error.empty()) give_up(c.error);
  }
}

unsigned lanes_of_warp(unsigned warp) {
  const unsigned first = warp * 32;
  const unsigned size = block().size;
  return size - first >= 32 ? 0xffffffffu : (1u << (size - first)) - 1;
}

}  // namespace

bool now::reverse_order() { return order_now() == ThreadOrder::last_first; }

void now::back_to_scheduler() {
  Cluster& c = cluster();
  Fiber::switch_to(*c.current_fiber, c.scheduler);
}

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
  CONVSCOPE_CHECK(cluster >= 1 && cluster <= kMaxBlocks, "cuda emulation",
                  "expected a cluster of 1 to ", kMaxBlocks, " blocks, got ", cluster);
  CONVSCOPE_CHECK(grid.x % cluster == 0, "cuda emulation", "expected a multiple of ", cluster,
                  " blocks along x because a cluster has that many, got a grid of ", grid.x, "x",
                  grid.y, "x", grid.z);
}

void run_grid(dim3 grid, dim3 block_shape, std::size_t shared_bytes, unsigned blocks_of_cluster,
              bool overlaps, void (*call)(const void*), const void* kernel) {
  static Cluster& c = *new Cluster;
  const std::lock_guard lock(c.running);
  overlap::Grid overlap(overlaps);
  the_cluster = &c;
  c.call = call;
  c.kernel = kernel;
  c.count = blocks_of_cluster;
  c.shared_bytes = shared_bytes;
  c.ready_last_place = std::bit_ceil(c.count) * kMaxThreads - 1;
  gridDim = grid;
  blockDim = block_shape;
  for (unsigned rank = 0; rank < c.count; ++rank) {
    Block& b = c.blocks[rank];
    b.rank = rank;
    b.size = block_shape.x * block_shape.y * block_shape.z;
    if (b.threads.empty()) b.threads.resize(kMaxThreads);
    unsigned number = 0;
    for (unsigned z = 0; z < block_shape.z; ++z) {
      for (unsigned y = 0; y < block_shape.y; ++y) {
        for (unsigned x = 0; x < block_shape.x; ++x, ++number) {
          b.threads[number].index = {x, y, z};
          b.threads[number].number = number;
          b.threads[number].block = &b;
        }
      }
    }
    // Allocates exactly the requested bytes, so that the address sanitizer detects accesses beyond
    // them.
    void* shared = nullptr;
    if (shared_bytes > 0 && posix_memalign(&shared, 128, shared_bytes) != 0) {
      convscope::fail(convscope::ErrorKind::kRun, "cuda emulation", "no memory for a block");
    }
    b.shared.reset(shared);
  }
  const unsigned clusters = grid.x / c.count;  // along x
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < clusters; ++x) {
        run_blocks({in_order(x, clusters) * c.count, in_order(y, grid.y), in_order(z, grid.z)});
      }
    }
  }
  if (const std::string error = overlap.end(); !error.empty()) give_up(error, true);
  for (unsigned rank = 0; rank < c.count; ++rank) c.blocks[rank].shared.reset();
}

void* dynamic_shared() { return block().shared.get(); }

void stop(const char* sentence) { stop_saying(sentence); }

void stop_shuffle(const char* name, unsigned from) {
  stop_saying(name, " reads lane ", from, ", which does not participate");
}

int barrier(Barrier kind, bool predicate) {
  Block& b = block();
  if (b.at_barrier > 0 && b.barrier_kind != kind) {
    stop("expected all threads at the same barrier, got another kind of __syncthreads");
  }
  b.barrier_kind = kind;
  ++b.at_barrier;
  b.barrier_true += predicate ? 1 : 0;
  wait_as(State::at_barrier);
  return static_cast<int>(b.barrier_result);
}

void wait_for(const void* which, const char* name) {
  Thread& self = *cluster().current;
  self.which = which;
  self.name = name;
  wait_as(State::waiting);
}

void wake(const void* which) { wake_in(block(), which); }

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

unsigned lane() { return cluster().current->number % 32; }
unsigned existing_lanes() { return lanes_of_warp(cluster().current->number / 32); }

const Meeting* meet(unsigned mask, const void* which, const char* name, const void* argument,
                    void* result) {
  Block& b = block();
  Thread& self = *cluster().current;
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
  static Meeting out;  // used until the results are handed out
  out.lanes = expected;
  for (unsigned i = 0; i < 32; ++i) {
    if ((expected >> i & 1u) == 0) continue;
    const Thread& other = b.threads[warp * 32 + i];
    if (other.which != which || other.mask != mask) {
      stop_saying("lane ", i, " of its warp waits in ", other.name, " with mask ", other.mask,
                  ", this lane came to ", name, " with mask ", mask);
    }
    out.arguments[i] = other.argument;
    out.results[i] = other.result;
  }
  waiting &= ~expected;
  return &out;
}

void part(unsigned lanes) {
  Block& b = block();
  Thread& self = *cluster().current;
  const unsigned warp = self.number / 32;
  for (unsigned i = 0; i < 32; ++i) {
    Thread& other = b.threads[warp * 32 + i];
    if ((lanes >> i & 1u) != 0 && &other != &self) make_ready(other);
  }
}

}  // namespace emulation
