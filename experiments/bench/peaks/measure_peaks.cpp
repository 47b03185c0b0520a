// SPDX-License-Identifier: Apache-2.0
// measure_peaks.cpp: measures this machine's roofline: peak arithmetic of the current
// instruction set, and the read and copy bandwidths of memory and caches.
#include "experiments/bench/peaks/measure_peaks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "experiments/bench/peaks/peak_kernels.h"
#include "framework/machine/cache_sizes.h"
#include "framework/memory/memory.h"

namespace convscope {

constinit IsaTable<PeakKernels> peak_kernels;
constinit IsaTable<BytePeakKernels> byte_peak_kernels;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// Each thread gets its own core: on a busy machine two threads may share a core for a long time
// while another core is free.
void stay_on_core(int index) {
  cpu_set_t all, one;
  CPU_ZERO(&all);
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all) || index-- > 0) continue;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);  // sets this thread; no effect without permission
    return;
  }
}

// Starts all threads at the same moment. Thread 0 asks all other threads for an answer. If all
// answers come within microseconds, every thread is running on a core, and thread 0 starts the lap
// (one try). A plain barrier is not enough: on a busy machine it would start threads that have just
// lost their core.
class StartLine {
 public:
  explicit StartLine(int threads) : others_(threads - 1) {}

  static constexpr int kNoMore = -1;  // a lap that means the end

  // Called by thread 0. Starts lap number `lap` when all answers come quickly, or after `patience`
  // seconds.
  void start(int lap, double patience) {
    const Clock::time_point begin = Clock::now();
    for (;;) {
      const Clock::time_point asked = Clock::now();
      const std::int64_t question = questions_.fetch_add(1) + 1;
      while (answers_.load(std::memory_order_acquire) < question * others_) {
      }
      const Clock::time_point answered = Clock::now();
      if (answered - asked < std::chrono::microseconds(10 + 2 * others_)) break;
      if (std::chrono::duration<double>(answered - begin).count() > patience) break;
    }
    lap_.store(lap, std::memory_order_release);
  }

  // Called by all threads except 0. `answered` counts the answers of the calling thread. Returns
  // false after the last lap.
  bool wait(int lap, std::int64_t& answered) {
    for (;;) {
      const int now = lap_.load(std::memory_order_acquire);
      if (now == kNoMore) return false;
      if (now >= lap) return true;
      if (questions_.load(std::memory_order_acquire) > answered) {
        ++answered;
        answers_.fetch_add(1, std::memory_order_acq_rel);
      }
    }
  }

 private:
  const std::int64_t others_;
  std::atomic<std::int64_t> questions_{0}, answers_{0};
  std::atomic<int> lap_{0};
};

std::atomic<float> sink;  // receives kernel results, so the compiler keeps them

constexpr std::size_t kBlockBytes = kPeakBlock * sizeof(float);

// The memory of one thread. The thread touches it first, so it is allocated near the thread's core.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : memory_(Device{}, bytes) {
    std::fill_n(data(), bytes / sizeof(float), 1.0f);
  }
  float* data() const { return static_cast<float*>(memory_.data()); }

 private:
  Workspace memory_;
};

struct Span {
  Clock::time_point begin, end;
};

struct Tries {
  int most = 300;
  double seconds = 0.5;  // no new try after that
  bool warm = false;     // run once before timing: the data is in a cache
};

// Returns the highest rate of all tries, in units of work per second. `threads` threads start
// together. Each thread runs the function that `make_body(thread)` returns; it does `units` units
// of work in each try. The clock runs from the first start to the last end.
template <class MakeBody>
double best_rate(int threads, const Tries& tries, double units, MakeBody&& make_body) {
  StartLine line(threads);
  std::vector<std::vector<Span>> spans(static_cast<std::size_t>(threads));
  const auto member = [&](int thread) {
    const auto body = make_body(thread);
    std::vector<Span>& mine = spans[static_cast<std::size_t>(thread)];
    mine.reserve(static_cast<std::size_t>(tries.most));
    body(0);
    std::int64_t answered = 0;
    const Clock::time_point start = Clock::now();
    for (int attempt = 1;; ++attempt) {
      if (tries.warm) body(attempt);
      if (thread == 0) {
        const std::chrono::duration<double> passed = Clock::now() - start;
        const bool enough = attempt > tries.most || (attempt > 2 && passed.count() > tries.seconds);
        line.start(enough ? StartLine::kNoMore : attempt, tries.seconds);
        if (enough) return;
      } else if (!line.wait(attempt, answered)) {
        return;
      }
      Span span;
      span.begin = Clock::now();
      body(attempt);
      span.end = Clock::now();
      mine.push_back(span);
    }
  };
  std::vector<std::thread> team;
  for (int thread = 0; thread < threads; ++thread) {
    team.emplace_back([&member, thread, threads] {
      if (threads > 1) stay_on_core(thread);
      member(thread);
    });
  }
  for (std::thread& one : team) one.join();
  double best = 0;
  for (std::size_t attempt = 0; attempt < spans[0].size(); ++attempt) {
    Span all = spans[0][attempt];
    for (const auto& mine : spans) {
      all.begin = std::min(all.begin, mine[attempt].begin);
      all.end = std::max(all.end, mine[attempt].end);
    }
    const double seconds = std::chrono::duration<double>(all.end - all.begin).count();
    if (seconds > 0) best = std::max(best, threads * units / seconds);
  }
  return best;
}

// The memory that a thread uses to measure the bandwidth of one level (a cache or DRAM).
struct Level {
  std::size_t bytes = 0;
  std::size_t slice_bytes = 0;  // used by one try: all `bytes` of a cache; one slice of DRAM
};

// Divides `all_bytes` of DRAM among the threads. A thread has at least two slices, and each slice
// is long enough for a copy from one half to the other.
Level memory_level(std::size_t all_bytes, int threads) {
  const std::size_t bytes =
      std::max(all_bytes / static_cast<std::size_t>(threads), 4 * kBlockBytes);
  return {bytes, std::min(bytes / 2, 4 * kMiB)};
}

class Measuring {
 public:
  Measuring(double share, int cores) : share_(share) {
    out_.cores = cores;
    out_.l2_bytes = cache_sizes().l2;
    out_.l3_bytes = cache_sizes().l3;
  }

  CpuPeaks run() {
    const PeakKernels& floats = peak_kernels.get();
    out_.flops = both([&](int threads) {
      return flops(threads, floats.flops_per_round,
                   [&](std::int64_t rounds) { sink = floats.multiply_add(rounds); });
    });
    const BytePeakKernels& bytes = byte_peak_kernels.get();
    out_.int8 = both(
        [&](int threads) { return flops(threads, bytes.flops_per_round, bytes.multiply_add); });
    bandwidth(
        [&](int) {
          return Level{out_.l2_bytes / 2, out_.l2_bytes / 2};
        },
        out_.l2_read, out_.l2_copy);
    const auto cores = static_cast<std::size_t>(out_.cores);
    // A buffer must be clearly larger than L2, and all buffers together clearly smaller than L3.
    const std::size_t each = std::min(4 * out_.l2_bytes, out_.l3_bytes / 2 / cores);
    if (each >= 2 * out_.l2_bytes) {
      bandwidth([&](int) { return Level{each, each}; }, out_.l3_read, out_.l3_copy);
    }
    // More than L3 holds.
    const std::size_t all =
        share_ < 1 ? 16 * kMiB : std::clamp(2 * out_.l3_bytes, 128 * kMiB, 1024 * kMiB);
    bandwidth([&](int threads) { return memory_level(all, threads); }, out_.dram_read,
              out_.dram_copy);
    return out_;
  }

 private:
  template <class Rate>
  Peak both(Rate&& rate) const {
    const double one = rate(1);
    return {one, out_.cores == 1 ? one : std::max(one, rate(out_.cores))};
  }

  // With several threads a measurement gets more time, because on a busy machine all threads rarely
  // run at the same moment.
  Tries tries(int threads, bool warm) const {
    return {.most = std::max(3, static_cast<int>(300 * share_)),
            .seconds = (threads == 1 ? 0.25 : 0.5) * share_,
            .warm = warm};
  }

  // Returns the FLOP/s of run(rounds), which executes `per_round` FLOPs in each round.
  template <class Run>
  double flops(int threads, std::int64_t per_round, Run&& run) const {
    // About a tenth of a millisecond.
    const auto rounds = static_cast<std::int64_t>(1e7 / static_cast<double>(per_round));
    const double work = static_cast<double>(rounds * per_round);
    return best_rate(threads, tries(threads, false), work,
                     [&run, rounds](int) { return [&run, rounds](int) { run(rounds); }; });
  }

  // level_of(threads) returns the level to measure with that number of threads.
  template <class LevelOf>
  void bandwidth(LevelOf&& level_of, Peak& read, Peak& copy) const {
    const auto with = [&](int threads) {
      // The first touch of the memory takes longer than the measurement, so read and copy use the
      // same memory.
      Memory memory(static_cast<std::size_t>(threads));
      const Level level = level_of(threads);
      const double read_rate = rate(level, memory, false);
      return std::pair(read_rate, rate(level, memory, true));
    };
    const auto one = with(1);
    const auto all = out_.cores == 1 ? one : with(out_.cores);
    read = {one.first, std::max(one.first, all.first)};
    copy = {one.second, std::max(one.second, all.second)};
  }

  using Memory = std::vector<std::unique_ptr<Buffer>>;  // of each thread, after first touch

  double rate(const Level& level, Memory& memory, bool copies) const {
    const PeakKernels& kernels = peak_kernels.get();
    const int threads = static_cast<int>(memory.size());
    const bool in_cache = level.slice_bytes == level.bytes;
    // A copy goes from one half of the memory to the other.
    const std::size_t slice = level.slice_bytes / (copies ? 2 : 1) / kBlockBytes * kBlockBytes;
    const std::size_t whole = level.bytes / (copies ? 2 : 1) / slice * slice;
    const auto slices = static_cast<std::int64_t>(whole / slice);
    const auto count = static_cast<std::int64_t>(slice / sizeof(float));
    const int passes = in_cache ? std::max(1, static_cast<int>(4 * kMiB / level.bytes)) : 1;
    const double bytes = static_cast<double>(slice) * passes * (copies ? 2 : 1);
    return best_rate(threads, tries(threads, in_cache), bytes, [&](int thread) {
      std::unique_ptr<Buffer>& mine = memory[static_cast<std::size_t>(thread)];
      if (!mine) mine = std::make_unique<Buffer>(level.bytes);
      float* const from = mine->data();
      float* const to = copies ? from + whole / sizeof(float) : nullptr;
      return [&kernels, slices, count, passes, from, to](int attempt) {
        const std::int64_t at = attempt % slices * count;
        for (int i = 0; i < passes; ++i) {
          if (to == nullptr) {
            sink = kernels.read(from + at, count);
          } else {
            kernels.copy(to + at, from + at, count);
          }
        }
      };
    });
  }

  const double share_;
  CpuPeaks out_;
};

}  // namespace

CpuPeaks measure_cpu_peaks(double share, int cores) {
  const CpuPeaks out = Measuring(share, cores > 0 ? cores : usable_cores()).run();
  release_cached(Device{});
  return out;
}

CpuPeaks cpu_peaks(const std::function<void()>& before_measuring) {
  if (const auto known = remembered_cpu_peaks()) return *known;
  before_measuring();
  const CpuPeaks out = measure_cpu_peaks();
  remember_cpu_peaks(out);
  return out;
}

}  // namespace convscope
