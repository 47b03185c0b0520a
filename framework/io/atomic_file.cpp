// SPDX-License-Identifier: Apache-2.0
// atomic_file.cpp: writes a file that appears under its final name only when it is complete.
#include "framework/io/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "framework/check.h"

namespace convscope {
namespace {

constexpr std::string_view kPartial = ".partial";
constexpr int kTries = 1000;
constexpr std::size_t kMaxOfName = 200;  // characters of the final name in the temporary name

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return cat(folder, ".", name_of(path).substr(0, kMaxOfName), ".", static_cast<long>(::getpid()),
             ".", counter.fetch_add(1), kPartial);
}

std::string proc_path(int descriptor) { return cat("/proc/self/fd/", descriptor); }

// Where the file system supports it, the bytes go to a nameless file, which disappears with the
// process. commit() gives the file a name through /proc.
int open_nameless(const std::string& path, mode_t mode) {
  const int descriptor = ::open(folder_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
  if (descriptor < 0) return -1;
  (void)::flock(descriptor, LOCK_EX | LOCK_NB);
  if (::access(proc_path(descriptor).c_str(), F_OK) == 0) return descriptor;
  ::close(descriptor);
  return -1;
}

// Removes temporary files of `path` that killed processes have left. It keeps a file that a process
// has locked. It also keeps a file with a recent write, because a process on another host, whose
// locks are not visible here, may be writing it.
void remove_left_ones(const std::string& path) {
  constexpr std::time_t kLately = 60;  // seconds
  const std::string begin = "." + name_of(path).substr(0, kMaxOfName) + ".";
  DIR* const folder = ::opendir(folder_of(path).c_str());
  if (folder == nullptr) return;
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string_view name = entry->d_name;
    // ".NAME.PID.NUMBER.partial"
    if (!name.starts_with(begin) || !name.ends_with(kPartial) ||
        name.size() < begin.size() + kPartial.size()) {
      continue;
    }
    const std::string_view numbers =
        name.substr(begin.size(), name.size() - begin.size() - kPartial.size());
    if (numbers.find_first_not_of("0123456789.") != std::string_view::npos) continue;
    const int file =
        ::openat(::dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) continue;
    struct stat status {};
    if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        std::time(nullptr) - status.st_mtime > kLately && ::flock(file, LOCK_EX | LOCK_NB) == 0) {
      ::unlinkat(::dirfd(folder), entry->d_name, 0);
    }
    ::close(file);
  }
  ::closedir(folder);
}

// Creates a file with a new temporary name. Process ids are reused, so a killed process may have
// left the same name.
int open_temporary(const std::string& path, mode_t mode, std::string& temporary) {
  for (int i = 0; i < kTries; ++i) {
    temporary = temporary_name(path);
    const int descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (descriptor >= 0) (void)::flock(descriptor, LOCK_EX | LOCK_NB);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

// Gives a nameless file its temporary name. Returns false, with errno, when this is not possible.
bool name_temporary(int descriptor, const std::string& path, std::string& temporary) {
  for (int i = 0; i < kTries; ++i) {
    std::string name = temporary_name(path);
    if (::linkat(AT_FDCWD, proc_path(descriptor).c_str(), AT_FDCWD, name.c_str(),
                 AT_SYMLINK_FOLLOW) == 0) {
      temporary = std::move(name);
      return true;
    }
    if (errno != EEXIST) return false;
  }
  return false;
}

// Returns the target if `path` is a link, so that writing keeps the link; otherwise returns `path`.
std::string target_of(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  char* const real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;  // a dangling link: the file replaces it
  std::string out = real;
  std::free(real);
  return out;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  path_ = target_of(path_);
  struct stat status {};
  const bool is_there = ::stat(path_.c_str(), &status) == 0;
  if (is_there && S_ISDIR(status.st_mode)) fail_writing(EISDIR);
  if (is_there && !S_ISREG(status.st_mode)) {  // never rename over /dev/null or a pipe
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    // A file that already exists may be private. So until the new file is complete, only its owner
    // may read it.
    const mode_t mode = is_there ? 0600 : 0666;
    descriptor_ = open_nameless(path_, mode);
    if (descriptor_ < 0) descriptor_ = open_temporary(path_, mode, temporary_);
    if (descriptor_ < 0) {
      const int error = errno;
      temporary_.clear();
      fail_writing(error);
    }
    if (is_there) (void)::fchmod(descriptor_, status.st_mode & 07777);
    remove_left_ones(path_);
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
  struct stat status {};
  const bool is_file = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  // For a device or a pipe, fsync() would return EINVAL: there is nothing to flush.
  if (is_file && ::fsync(descriptor_) != 0) fail_writing(errno);
  if (is_file && temporary_.empty() && !name_temporary(descriptor_, path_, temporary_)) {
    fail_writing(errno);
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_writing(errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing(errno);
  temporary_.clear();
  // Flushes the folder, because the new name must survive a power cut, too. A file system that
  // cannot flush folders returns an error, which is ignored.
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

void check_writable(const std::string& path) { const AtomicFile file(path); }

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace convscope
