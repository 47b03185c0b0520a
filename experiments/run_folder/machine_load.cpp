// SPDX-License-Identifier: Apache-2.0
// machine_load.cpp: the load of this machine by other programs.
#include "experiments/run_folder/machine_load.h"

#include <fmt/format.h>
#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include "framework/distributed/process_group.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortestSeconds = 0.1;
constexpr double kQuietCores = 0.5;

struct Counts {
  double all = 0, own = 0;  // seconds on the cores: all programs, this program
  Clock::time_point at;
};

double seconds_of(Clock::time_point at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

// Other processes of this training on this host would be counted as other programs, so the load is
// unknown with such neighbours.
bool has_neighbours() { return process_group() != nullptr && process_group()->local_size() > 1; }

std::optional<Counts> counts_now() {
  std::ifstream file("/proc/stat");  // "cpu user nice system idle iowait irq softirq steal ..."
  std::string word;
  if (!(file >> word) || word != "cpu") return std::nullopt;
  const double per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  double busy = 0;
  for (int field = 0; field < 8; ++field) {
    double ticks = 0;
    if (!(file >> ticks)) return std::nullopt;
    if (field != 3 && field != 4) busy += ticks;
  }
  tms own{};
  if (times(&own) == static_cast<clock_t>(-1)) return std::nullopt;
  return Counts{.all = busy / per_second,
                .own = static_cast<double>(own.tms_utime + own.tms_stime) / per_second,
                .at = Clock::now()};
}

std::optional<Counts>& start() {
  static std::optional<Counts> counts = counts_now();
  return counts;
}

}  // namespace

void begin_load_watch() { start(); }

std::optional<double> cores_of_others() {
  if (has_neighbours() || !start()) return std::nullopt;
  const Clock::time_point earliest =
      start()->at +
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kShortestSeconds));
  std::this_thread::sleep_until(earliest);
  const std::optional<Counts> now = counts_now();
  if (!now) return std::nullopt;
  const double seconds = std::chrono::duration<double>(now->at - start()->at).count();
  return std::max(0.0, (now->all - start()->all - (now->own - start()->own)) / seconds);
}

LoadSpan::LoadSpan() {
  const std::optional<Counts> now = counts_now();
  if (!now) return;
  all_ = now->all;
  own_ = now->own;
  at_ = seconds_of(now->at);
}

std::optional<double> LoadSpan::others() const {
  const std::optional<Counts> now = counts_now();
  if (at_ < 0 || has_neighbours() || !now) return std::nullopt;
  const double seconds = seconds_of(now->at) - at_;
  if (seconds < kShortestSeconds) return std::nullopt;
  return std::max(0.0, (now->all - all_ - (now->own - own_)) / seconds);
}

bool is_disturbed(std::optional<double> others, int threads, int cores) {
  if (!others || *others <= kQuietCores) return false;
  return cores <= 0 || *others + threads > cores;
}

int cores_online() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

std::optional<double> rounded_load(std::optional<double> others) {
  if (others) *others = std::round(*others * 100) / 100;
  return others;
}

std::string load_warning(std::optional<double> others, int threads, int cores) {
  if (!is_disturbed(others, threads, cores)) return "";
  return fmt::format(
      "warning: other programs keep {:.1f} of {} cores busy: the times of {} thread{} here are not "
      "reliable",
      *others, cores, threads, threads == 1 ? "" : "s");
}

}  // namespace convscope
