// SPDX-License-Identifier: Apache-2.0
// bytes.cpp: a file in memory, little-endian numbers in it, and a tensor with its name in the file.
#include "framework/io/bytes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace convscope {
namespace {

[[noreturn]] void fail_reading(const std::string& path, int error) {
  fail(ErrorKind::kIo, "read", cat("expected to read ", path, ", got: ", std::strerror(error)));
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

constexpr int kPatienceMs = 2000;

// Without waiting for the other end of a pipe.
int open_to_read(const std::string& path, struct stat& status) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_reading(path, errno);
  int error = ::fstat(file, &status) != 0 ? errno : 0;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  if (error == 0) return file;
  ::close(file);
  fail_reading(path, error);
}

}  // namespace

std::string read_text(const std::string& path, std::size_t most_bytes) {
  struct stat status {};
  const Descriptor file{open_to_read(path, status)};
  if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode)) {
    fail(ErrorKind::kIo, "read", cat("expected a file or a pipe, got ", path));
  }
  std::string text;
  while (text.size() < most_bytes) {
    pollfd ready{.fd = file.number, .events = POLLIN, .revents = 0};
    if (S_ISFIFO(status.st_mode) && ::poll(&ready, 1, kPatienceMs) <= 0) {
      fail(ErrorKind::kIo, "read",
           cat("expected something to read from the pipe ", path, ", got nothing for two seconds"));
    }
    char piece[65536];
    const ssize_t got =
        ::read(file.number, piece, std::min(sizeof piece, most_bytes - text.size()));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

std::optional<std::string> text_if_there(const std::string& path, std::size_t most_bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  try {
    return read_text(path, most_bytes);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<std::uint8_t> read_file(const std::string& path) {
  struct stat status {};
  const Descriptor file{open_to_read(path, status)};
  if (!S_ISREG(status.st_mode)) {  // a device or a pipe has no size that could be trusted
    fail(ErrorKind::kIo, "read", cat("expected a regular file, got ", path));
  }
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(status.st_size));
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file.number, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;  // it became shorter meanwhile; the parser will say what is missing
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace convscope
