// SPDX-License-Identifier: Apache-2.0
// atomic_file.cpp: a file that appears under its name whole, or not at all.
#include "framework/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "framework/check.h"

namespace convscope {
namespace {

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return cat(folder, ".", name.substr(0, 200), ".", static_cast<long>(::getpid()), ".",
             counter.fetch_add(1), ".partial");
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  const bool is_there = ::stat(path_.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) fail_writing(EISDIR);
  if (is_there && !S_ISREG(status.st_mode)) {  // never rename over /dev/null or a pipe
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = temporary_name(path_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      const int error = errno;
      temporary_.clear();
      fail_writing(error);
    }
  }
  if (descriptor_ < 0) fail_writing(errno);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::write(const void* data, std::size_t bytes) {
  CONVSCOPE_CHECK(descriptor_ >= 0, "write", "expected a write before commit of ", path_);
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    // Linux writes at most about 2 GiB in one call.
    const ssize_t written =
        ::write(descriptor_, from, std::min<std::size_t>(bytes, std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing(errno);
    from += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  CONVSCOPE_CHECK(descriptor_ >= 0, "write", "expected one commit of ", path_);
  // A device or a pipe answers EINVAL: there is nothing to flush.
  if (!temporary_.empty() && ::fsync(descriptor_) != 0) fail_writing(errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_writing(errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing(errno);
  temporary_.clear();
  // The new name itself must survive a power cut too; a file system that cannot do it says so.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    (void)::fsync(folder);
    ::close(folder);
  }
}

void AtomicFile::fail_writing(int error) {
  discard();
  fail(ErrorKind::kIo, "write", cat("expected to write ", path_, ", got: ", std::strerror(error)));
}

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    temporary_.clear();
  }
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace convscope
