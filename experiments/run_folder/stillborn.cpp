// SPDX-License-Identifier: Apache-2.0
// stillborn.cpp: folders of runs that were killed before the first step.
#include "experiments/run_folder/stillborn.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "experiments/run_folder/run_owner.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr double kQuietSeconds = 60;

bool is_of_a_beginning(const std::string& name) {
  constexpr std::array<std::string_view, 8> kNames = {".lock",       "ckpt",          "log.txt",
                                                      "config.yaml", "overrides.txt", "env.json",
                                                      "layers.csv",  "choices.json"};
  return std::ranges::count(kNames, name) > 0 || name.starts_with(".owner-") ||
         name.starts_with(".begun-") || (name.starts_with(".") && name.ends_with(".partial"));
}

// Matches "2026-11-21_054156-s1", possibly with "-2".
bool is_run_name(const std::string& name) {
  constexpr std::string_view kTime = "dddd-dd-dd_dddddd-s";
  if (name.size() <= kTime.size()) return false;
  for (std::size_t i = 0; i < kTime.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (kTime[i] == 'd' ? !digit : name[i] != kTime[i]) return false;
  }
  return name.find_first_not_of("0123456789-", kTime.size()) == std::string::npos;
}

// If there is no lock file, the process was killed before it could create one.
bool is_free(const std::string& run) {
  const int lock = open((run + "/.lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (lock < 0) return true;
  const bool free = flock(lock, LOCK_EX | LOCK_NB) == 0;
  close(lock);
  return free;
}

}  // namespace

bool is_stillborn(const std::string& run) {
  std::error_code error;
  fs::directory_iterator it(run, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    if (!is_of_a_beginning(it->path().filename().string())) return false;
  }
  if (error) return false;
  return !fs::exists(run + "/ckpt", error) || fs::is_empty(run + "/ckpt", error);
}

void remove_stillborn_runs(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string run = it->path().string();
    const std::string name = it->path().filename().string();
    if (!is_run_name(name) || it->is_symlink(ignored) || !it->is_directory(ignored)) continue;
    if (!is_stillborn(run) || seconds_since_written(parent, name, false) < kQuietSeconds) continue;
    if (is_free(run)) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace convscope
