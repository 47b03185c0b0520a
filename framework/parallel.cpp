// SPDX-License-Identifier: Apache-2.0
#include "framework/parallel.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

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

// Takes chunks until none is left; remembers the first exception.
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

void set_num_threads(int threads) {
  CONVSCOPE_CHECK(threads >= 0 && threads <= 1024, "threads", "expected 0 to 1024 threads, got ",
                  threads);
  thread_setting() = threads == 0 ? usable_cores() : threads;
}

int num_threads() { return thread_setting(); }

void parallel_chunks(std::int64_t chunks, FunctionRef<void(std::int64_t, int)> body) {
  if (chunks <= 0) return;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), chunks));
  if (threads == 1 || inside_parallel) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) body(chunk, 0);
    return;
  }
  ChunkLoop loop(chunks, body);
  if constexpr (kThreadSanitizer) {
    // ThreadSanitizer does not see libgomp's barriers; plain threads it understands.
    std::vector<std::thread> team;
    for (int thread = 1; thread < threads; ++thread) {
      team.emplace_back([&loop, thread] { loop.run(thread); });
    }
    loop.run(0);
    for (std::thread& member : team) member.join();
  } else {
#pragma omp parallel num_threads(threads)
    loop.run(omp_get_thread_num());
  }
  loop.rethrow();
}

}  // namespace convscope
