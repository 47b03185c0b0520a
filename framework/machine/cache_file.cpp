// SPDX-License-Identifier: Apache-2.0
// cache_file.cpp: reads and updates a small text file in the cache folder, which several processes
// share.
#include "framework/machine/cache_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr int kTries = 1000;  // 10 ms apart

void warn(const std::string& sentence) {
  std::fprintf(stderr, "convscope: warning: [cache] %s\n", sentence.c_str());
}

class Lock {
 public:
  explicit Lock(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644)) {
    for (int i = 0; file_ >= 0 && i < kTries && flock(file_, LOCK_EX | LOCK_NB) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  ~Lock() {
    if (file_ >= 0) close(file_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

}  // namespace

CacheText read_cache_file(const std::string& path) {
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::nullopt;
  try {
    return read_text(path, kMaxBytes);
  } catch (const Error& failure) {
    warn(cat(failure.what(), "; the file is ignored"));
    return std::nullopt;
  }
}

void change_cache_file(const std::string& path, const std::string& what,
                       const std::function<std::string(const CacheText&)>& change) {
  if (path.empty()) return;
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const Lock lock(path + ".lock");
    write_file(path, change(read_cache_file(path)));
  } catch (const std::exception& error) {
    warn(cat(what, ": ", error.what()));
  }
}

}  // namespace convscope
