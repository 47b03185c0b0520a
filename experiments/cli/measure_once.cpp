// SPDX-License-Identifier: Apache-2.0
// measure_once.cpp: measures the peaks of a machine, when a command that uses `auto` runs on it for
// the first time.
#include "experiments/cli/measure_once.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>

#include "experiments/bench/peaks/measure_peaks.h"
#include "experiments/cli/command.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr double kQuietCores = 0.5;  // same as load_warning()

// Holds a lock file while this process measures. The system releases the lock when the process
// ends, even if it crashes.
class Turn {
 public:
  explicit Turn(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644)) {}
  ~Turn() {
    if (file_ >= 0) close(file_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_possible() const { return file_ >= 0; }  // otherwise the folder is not writable
  bool take_at_once() const { return flock(file_, LOCK_EX | LOCK_NB) == 0; }
  bool wait() const { return flock(file_, LOCK_EX) == 0; }

 private:
  const int file_;
};

}  // namespace

bool measure_once(const MeasureOnce& how) {
  const std::string path = cpu_peaks_path();
  if (!believes_measured_peaks() || path.empty() || remembered_cpu_peaks()) return false;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const Turn turn(path + ".measuring");
  if (!turn.is_possible()) return false;
  if (!turn.take_at_once()) {
    if (!turn.wait()) return false;
    forget_cpu_peaks();  // another process has measured: the file is read again
    if (remembered_cpu_peaks()) return false;
  }
  if (how.cores_of_others().value_or(0) > kQuietCores) return false;
  how.say(
      cat("measuring this machine once, about 3 s: peak arithmetic and bandwidth, remembered in ",
          path, " (CONVSCOPE_MEASURE=off: never)"));
  const CpuPeaks found = how.measure();
  if (how.cores_of_others().value_or(0) > kQuietCores) {
    how.say(
        "other programs kept the cores busy: the peaks are not stored, the next command measures "
        "again");
    return false;
  }
  remember_cpu_peaks(found);
  return true;
}

void measure_this_machine_once() {
  measure_once({.measure = [] { return measure_cpu_peaks(); },
                .cores_of_others = cores_of_others,
                .say = print_remark});
}

}  // namespace convscope
