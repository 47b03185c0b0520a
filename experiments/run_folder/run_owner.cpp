// SPDX-License-Identifier: Apache-2.0
// run_owner.cpp: ownership of a run folder by one process, also for hosts that share a file system.
#include "experiments/run_folder/run_owner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = ".owner-";

// Returns 12 for ".owner-12"; 0 for other names.
std::int64_t number_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return 0;
  const std::string digits = name.substr(kPrefix.size());
  const bool fits = !digits.empty() && digits.size() <= 9 &&
                    digits.find_first_not_of("0123456789") == std::string::npos;
  return fits ? std::strtoll(digits.c_str(), nullptr, 10) : 0;
}

template <class Visit>
void for_each_owner(const std::string& folder, Visit&& visit) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::int64_t number = number_of(it->path().filename().string());
    if (number > 0) visit(number, it->path());
  }
}

[[noreturn]] void fail_to_write(const std::string& path) {
  fail(ErrorKind::kIo, "run folder",
       cat("expected to write ", path, ", got: ", std::strerror(errno)));
}

bool write_text(int file, const std::string& text) {
  return pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

// Creates a file; returns false when the file exists. A process that is killed here may leave an
// empty file.
bool make_file(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) fail_to_write(path);
  const bool written = write_text(file, text);
  const int reason = errno;
  close(file);
  if (written) return true;
  unlink(path.c_str());
  errno = reason;
  fail_to_write(path);
}

// Creates the file by linking a complete file, so that it never appears without its text.
bool make_whole_file(const std::string& folder, const std::string& path, const std::string& text) {
  std::string begun = folder + "/.begun-XXXXXX";
  const int file = mkostemp(begun.data(), O_CLOEXEC);
  if (file < 0) fail_to_write(path);
  const bool written = fchmod(file, 0644) == 0 && write_text(file, text);
  const bool is_ours = written && link(begun.c_str(), path.c_str()) == 0;
  const int reason = errno;
  close(file);
  unlink(begun.c_str());
  if (is_ours) return true;
  if (written) return reason != EEXIST && make_file(path, text);  // file systems without hard links
  errno = reason;
  fail_to_write(path);
}

double seconds_of(const timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

std::int64_t newest_owner(const std::string& folder) {
  std::int64_t newest = 0;
  for_each_owner(folder,
                 [&](std::int64_t number, const fs::path&) { newest = std::max(newest, number); });
  return newest;
}

bool claim_ownership(const std::string& folder, std::int64_t number, const std::string& text) {
  const std::string path = cat(folder, "/", kPrefix, number);
  if (!(text.empty() ? make_file(path, text) : make_whole_file(folder, path, text))) return false;
  if (newest_owner(folder) > number) return false;
  for_each_owner(folder, [&](std::int64_t older, const fs::path& older_path) {
    std::error_code ignored;
    if (older < number) fs::remove(older_path, ignored);
  });
  return true;
}

double seconds_since_written(const std::string& folder, const std::string& file, bool exactly) {
  struct stat written {};
  if (stat(cat(folder, "/", file).c_str(), &written) != 0) return -1;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string probe = cat(folder, "/.now-", static_cast<std::int64_t>(getpid()));
  const int file_of_now =
      exactly ? open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644)
              : -1;
  if (file_of_now >= 0) {
    struct stat made {};
    if (fstat(file_of_now, &made) == 0) now = made.st_mtim;
    close(file_of_now);
    unlink(probe.c_str());
  }
  return seconds_of(now) - seconds_of(written.st_mtim);
}

}  // namespace convscope
