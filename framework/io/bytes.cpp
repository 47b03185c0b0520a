// SPDX-License-Identifier: Apache-2.0
// bytes.cpp: a file in memory, little-endian numbers in it, and a tensor with its name in the file.
#include "framework/io/bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace

std::vector<std::uint8_t> read_file(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) fail_reading(path, errno);
  struct stat status {};
  if (::fstat(file.number, &status) != 0) fail_reading(path, errno);
  if (S_ISDIR(status.st_mode)) fail_reading(path, EISDIR);
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
