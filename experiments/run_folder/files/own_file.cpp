// SPDX-License-Identifier: Apache-2.0
// own_file.cpp: files that the program writes in the folder of a run or sweep.
#include "experiments/run_folder/files/own_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "framework/check.h"

namespace convscope {
namespace {

bool is_link(const std::string& path) {
  struct stat facts {};
  return lstat(path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode);
}

[[noreturn]] void fail_at_link(const std::string& path) {
  fail(ErrorKind::kIo, "run folder",
       cat("expected no symbolic link in a folder that is written to, because it may point to a "
           "file elsewhere, got the link ",
           path, "; remove it, or replace it by its target"));
}

}  // namespace

void refuse_link(const std::string& path) {
  if (is_link(path)) fail_at_link(path);
}

std::string own_path(const std::string& folder, std::string_view name) {
  for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
       slash = name.find('/', slash + 1)) {
    refuse_link(cat(folder, "/", name.substr(0, slash)));
  }
  std::string path = cat(folder, "/", name);
  if (is_link(path) && unlink(path.c_str()) != 0) {
    fail(ErrorKind::kIo, "run folder",
         cat("expected to replace the link ", path, ", got: ", std::strerror(errno)));
  }
  return path;
}

int open_own(const std::string& path, int flags) {
  const int file = open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (file < 0 && errno == ELOOP) fail_at_link(path);
  return file;
}

bool is_locked(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const int lock = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (lock < 0) return false;
  const bool locked = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(lock);
  return locked;
}

}  // namespace convscope
