// SPDX-License-Identifier: Apache-2.0
// parallel.cpp: loops over independent chunks on OpenMP threads with dynamic scheduling.
#include "framework/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "framework/autograd/parallel_pass.h"
#include "framework/check.h"

namespace convscope {
namespace {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
  return 1;
}

std::atomic<int>& thread_setting() {
  static std::atomic<int> threads{usable_cores()};
  return threads;
}

thread_local bool inside_parallel = false;

// Runs chunks until none is left, and keeps the first exception.
class ChunkLoop {
 public:
  ChunkLoop(std::int64_t chunks, FunctionRef<void(std::int64_t, int)> body)
      : chunks_(chunks), body_(body) {}

  void run(int thread) {
    inside_parallel = true;
    try {
      for (;;) {
        const std::int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= chunks_) break;
        body_(chunk, thread);
      }
    } catch (...) {
      next_.store(chunks_, std::memory_order_relaxed);
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
    inside_parallel = false;
  }

  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const std::int64_t chunks_;
  FunctionRef<void(std::int64_t, int)> body_;
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

// The threads of a parallel region. Between the loops of the region, the threads wait. On a busy
// machine, a thread may arrive at a loop late. The first thread waits only for threads that are
// inside the loop. A thread that arrives later finds the loop closed and skips it.
class Team {
 public:
  // Runs in each thread except the first, until the first thread calls close().
  void serve(int thread) {
    std::uint64_t seen = 0;
    for (;;) {
      std::uint64_t now = 0;
      for (int spins = 0; (now = open_.load()) == seen || now == kNone; ++spins) {
        if (over_.load(std::memory_order_acquire)) return;
        pause(spins);
      }
      // Increment active_ first and read open_ again afterwards: either the first thread waits for
      // this thread, or this thread finds the loop closed.
      active_.fetch_add(1);
      if (open_.load() == now && thread < threads_) loop_->run(thread);
      active_.fetch_sub(1);
      seen = now;
    }
  }

  // Runs a loop with at most `threads` threads.
  void run(ChunkLoop& loop, int threads) {
    loop_ = &loop;
    threads_ = threads;
    open_.store(++number_);
    loop.run(0);
    open_.store(kNone);
    for (int spins = 0; active_.load() != 0; ++spins) pause(spins);
  }

  void close() { over_.store(true, std::memory_order_release); }

 private:
  static constexpr std::uint64_t kNone = 0;
  // Spins for a few microseconds, then yields the core.
  static void pause(int spins) {
    if (spins < 500) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }

  std::atomic<std::uint64_t> open_{kNone};  // number of the loop that threads may join
  std::atomic<int> active_{0};
  std::atomic<bool> over_{false};
  ChunkLoop* loop_ = nullptr;  // loop_ and threads_ are written before open_ and read after it
  int threads_ = 0;
  std::uint64_t number_ = kNone;
};

thread_local Team* current_team = nullptr;
thread_local std::int64_t forks = 0;  // loops of this thread that woke other threads

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif
#else
constexpr bool kThreadSanitizer = false;
#endif

}  // namespace

namespace {

std::atomic<double> flops_worth_threads{kFlopsWorthThreads};

}  // namespace

void set_flops_worth_threads(double flops) { flops_worth_threads = flops; }

ShortLoops::ShortLoops(double flops) : before_(inside_parallel) {
  const double least = flops_worth_threads * (current_team != nullptr ? 0.1 : 1);
  if (flops < least) inside_parallel = true;
}
ShortLoops::~ShortLoops() { inside_parallel = before_; }

void set_num_threads(int threads) {
  CONVSCOPE_CHECK(threads >= 0 && threads <= 1024, "threads", "expected 0 to 1024 threads, got ",
                  threads);
  thread_setting() = threads == 0 ? usable_cores() : threads;
}

int num_threads() { return thread_setting(); }

namespace {

// Runs work(thread) on each of `threads` threads and waits for all.
void fork_join(int threads, FunctionRef<void(int)> work) {
  if constexpr (kThreadSanitizer) {
    // ThreadSanitizer does not understand libgomp's barriers, but it understands plain threads.
    std::vector<std::thread> others;
    for (int thread = 1; thread < threads; ++thread) {
      others.emplace_back([work, thread] { work(thread); });
    }
    work(0);
    for (std::thread& other : others) other.join();
  } else {
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
  }
}

}  // namespace

void parallel_chunks(std::int64_t chunks, FunctionRef<void(std::int64_t, int)> body) {
  if (chunks <= 0) return;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), chunks));
  if (threads == 1 || inside_parallel) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  ChunkLoop loop(chunks, body);
  if (current_team != nullptr) {
    current_team->run(loop, threads);
  } else {
    ++forks;
    fork_join(threads, [&loop](int thread) { loop.run(thread); });
  }
  loop.rethrow();
}

void parallel_region(FunctionRef<void()> body) {
  const int threads = num_threads();
  if (threads == 1 || inside_parallel || current_team != nullptr) return body();
  Team team;
  std::exception_ptr error;
  fork_join(threads, [&](int thread) {
    if (thread != 0) return team.serve(thread);
    current_team = &team;
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    current_team = nullptr;
    team.close();
  });
  if (error) std::rethrow_exception(error);
}

void ParallelPass::run(std::int64_t size, FunctionRef<void()> body) {
  if (size_.exchange(size, std::memory_order_relaxed) == size &&
      in_region_.load(std::memory_order_relaxed)) {
    return parallel_region(body);
  }
  const std::int64_t before = forks;
  body();
  in_region_.store(forks - before > 1, std::memory_order_relaxed);
}

}  // namespace convscope
