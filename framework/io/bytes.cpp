// SPDX-License-Identifier: Apache-2.0
// bytes.cpp: reads files into memory, and converts little-endian numbers.
#include "framework/io/bytes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "framework/io/file_start.h"

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

[[noreturn]] void fail_too_long(const std::string& path, const std::string& size,
                                std::size_t most) {
  fail(ErrorKind::kIo, "read",
       cat("expected to read ", path, ", got: ", size, " bytes, more than the ", most,
           " that such a file may have"));
}

void read_into(int file, const std::string& path, std::vector<std::uint8_t>& bytes) {
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = ::read(file, bytes.data() + have, bytes.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;  // the file became shorter; the parser reports missing bytes
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
}

constexpr int kPatienceMs = 2000;

// Opens a file or a pipe. Does not wait until another process opens the pipe for writing.
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
  if (S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) > most_bytes) {
    fail_too_long(path, std::to_string(status.st_size), most_bytes);
  }
  std::string text;
  while (true) {
    pollfd ready{.fd = file.number, .events = POLLIN, .revents = 0};
    if (S_ISFIFO(status.st_mode) && ::poll(&ready, 1, kPatienceMs) <= 0) {
      fail(ErrorKind::kIo, "read",
           cat("expected something to read from the pipe ", path, ", got nothing for two seconds"));
    }
    char piece[65536];
    const ssize_t got = ::read(file.number, piece, sizeof piece);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;
    text.append(piece, static_cast<std::size_t>(got));
    if (text.size() > most_bytes) {
      fail_too_long(path, cat("at least ", text.size()), most_bytes);
    }
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
  if (!S_ISREG(status.st_mode)) {  // devices and pipes have no reliable size
    fail(ErrorKind::kIo, "read", cat("expected a regular file, got ", path));
  }
  // A sparse file may claim terabytes.
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<std::uint8_t> bytes;
  try {
    if (size > memory) throw std::bad_alloc();
    bytes.resize(static_cast<std::size_t>(size));
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::kIo, "read",
         cat("expected to read ", path, ", got: ", size,
             " bytes, more than there is memory (this "
             "machine has ",
             memory, ")"));
  }
  read_into(file.number, path, bytes);
  return bytes;
}

FileStart read_start(const std::string& path, std::size_t most_bytes) {
  struct stat status {};
  const Descriptor file{open_to_read(path, status)};
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::kIo, "read", cat("expected a regular file, got ", path));
  }
  FileStart out{.size = static_cast<std::uint64_t>(status.st_size)};
  out.bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(out.size, most_bytes)));
  read_into(file.number, path, out.bytes);
  return out;
}

std::uint64_t for_each_line(const std::string& path, std::uint64_t from,
                            const std::function<void(std::string_view line, bool whole)>& take) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return from;
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) return from;
  std::string line;
  bool too_long = false;
  std::uint64_t at = from, next = from;  // end of the bytes read so far; end of the last whole line
  std::vector<char> piece(1 << 16);
  while (true) {
    const ssize_t got = ::pread(file.number, piece.data(), piece.size(), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    std::string_view text(piece.data(), static_cast<std::size_t>(got));
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      const std::string_view part = text.substr(0, end);
      too_long = too_long || line.size() + part.size() > kMaxLineBytes;
      if (too_long) {
        line.clear();
      } else {
        line += part;
      }
      if (end == std::string_view::npos) {
        at += text.size();
        break;
      }
      at += end + 1;
      next = at;
      if (!too_long) take(line, true);
      line.clear();
      too_long = false;
      text.remove_prefix(end + 1);
    }
  }
  if (!line.empty()) take(line, false);
  return too_long ? at : next;
}

}  // namespace convscope
