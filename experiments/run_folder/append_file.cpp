// SPDX-License-Identifier: Apache-2.0
// append_file.cpp: a file of lines that only grows (metrics.jsonl, epochs.csv).
#include "experiments/run_folder/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "experiments/run_folder/files/own_file.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {
[[noreturn]] void fail_at(const std::string& path, const char* what, int error) {
  fail(ErrorKind::kIo, "run folder",
       cat("expected to ", what, " ", path, ", got: ", std::strerror(error)));
}
}  // namespace

void write_all(int descriptor, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_at(path, "append to", errno);
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::int64_t bytes_until_step(const std::string& path, std::int64_t step) {
  // Reading a file that is too long throws an error. If it returned "" instead, the caller would
  // truncate the file.
  std::error_code error;
  const bool there = std::filesystem::is_regular_file(path, error);
  std::istringstream file(there ? read_text(path, kMaxTextBytes) : "");
  std::int64_t bytes = 0;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    const bool header = bytes == 0;
    if (!header && std::strtoll(line.c_str(), nullptr, 10) > step) break;
    bytes += static_cast<std::int64_t>(line.size()) + 1;
  }
  return bytes;
}

AppendFile::AppendFile(std::string path, std::int64_t keep_bytes) : path_(std::move(path)) {
  descriptor_ = open_own(path_, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK);
  if (descriptor_ < 0) fail_at(path_, "open", errno);
  struct stat facts {};
  if (fstat(descriptor_, &facts) == 0 && facts.st_size < keep_bytes) keep_bytes = facts.st_size;
  // A device such as /dev/full cannot be truncated and needs no truncation.
  if (S_ISREG(facts.st_mode) && ftruncate(descriptor_, keep_bytes) != 0) {
    const int error = errno;
    close(descriptor_);
    fail_at(path_, "shorten", error);
  }
  size_bytes_ = keep_bytes;
}

AppendFile::~AppendFile() { close(descriptor_); }

void AppendFile::append(std::string_view line) {
  write_all(descriptor_, line, path_);
  size_bytes_ += static_cast<std::int64_t>(line.size());
}

void AppendFile::flush_to_disk() {
  if (fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
    fail_at(path_, "flush", errno);
  }
}

}  // namespace convscope
