// SPDX-License-Identifier: Apache-2.0
// run_folder.cpp: the folder of a run.
#include "experiments/run_folder/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/files/own_file.h"
#include "experiments/run_folder/run_owner.h"
#include "experiments/run_folder/run_search.h"
#include "experiments/run_folder/stillborn.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/io/json_format.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kHeartbeatLimitSeconds = 120;  // an older heartbeat means that the process is gone
// Another command may hold the lock for a moment, while it changes a file of the run (`note`, for
// example). So a lock is waited for this long.
constexpr std::chrono::seconds kPatience{3};

[[noreturn]] void fail_io(const std::string& sentence, int error) {
  fail(ErrorKind::kIo, "run folder", cat(sentence, ", got: ", std::strerror(error)));
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// Returns the text of a claim about its holder.
std::string this_process() {
  return cat(static_cast<std::int64_t>(getpid()), " ", host_name(), "\n");
}

void create_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail_io(cat("expected to create the folder ", path), error.value());
}

std::string time_text(double unix_seconds, const char* format) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

// Locks the folder. The lock is released when the process ends, even if it is killed. Returns -1
// when another process has the lock.
int try_lock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  const int lock = open_own(path, O_RDWR | O_CREAT | O_NONBLOCK);
  if (lock < 0) fail_io(cat("expected to write in the folder ", folder), errno);
  if (flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock);
    return -1;
  }
  return lock;
}

bool is_alive(const std::string& folder, const RunStatus& status, bool exactly = false) {
  if (is_locked(folder)) return true;
  // Some file systems do not show locks of other hosts. So for a process on another host, the age
  // of the heartbeat decides. For a process on this host, a free lock means that it is gone, even
  // if another process now has its process id.
  if (status.state != "RUNNING" || status.host == host_name()) return false;
  return seconds_since_written(folder, "status.json", exactly) < kHeartbeatLimitSeconds;
}

// Returns the process that claimed the folder, as recorded there: "process 12 on a". Returns ""
// when there is no record, or when that process is gone.
std::string holder_text(const std::string& folder) {
  const std::string claim = cat(folder, "/.owner-", newest_owner(folder));
  std::istringstream text(text_if_there(claim, 4096).value_or(""));
  pid_t pid = 0;
  std::string host;
  if (!(text >> pid >> host) || pid <= 0) return "";
  if (host == host_name() && kill(pid, 0) != 0 && errno == ESRCH) return "";
  return cat("process ", static_cast<std::int64_t>(pid), " on ", clean_line(host));
}

// Returns text that says when this process may take over a run of another host.
std::string patience_text(const std::string& folder, const RunStatus& status) {
  if (is_locked(folder) || status.host == host_name()) return "";
  return cat("; its last sign of life is ",
             static_cast<std::int64_t>(seconds_since_written(folder, "status.json", false)),
             " s old, and after ", static_cast<std::int64_t>(kHeartbeatLimitSeconds),
             " s without one it can be taken over");
}

constexpr const char* kStatus = "convscope status 1";

RunStatus parse_status(const std::string& folder) {
  RunStatus status;
  status.state = "UNREADABLE";
  const std::optional<std::string> text = text_if_there(folder + "/status.json", 1 << 20);
  if (!text) {
    status.reason = "status.json is missing";
    return status;
  }
  try {
    const json object = json::parse(*text);
    if (object.contains("format")) {  // missing in files of earlier versions
      const std::string problem = format_problem(object.at("format").get<std::string>(), {kStatus});
      if (!problem.empty()) {
        status.reason = "status.json has " + problem;
        return status;
      }
    }
    status.state = clean_line(object.at("state").get<std::string>());
    status.reason = clean_text(object.value("reason", ""));
    status.exit_code = object.at("exit_code").is_null() ? -1 : object.at("exit_code").get<int>();
    status.pid = object.value("pid", std::int64_t{0});
    status.host = clean_line(object.value("host", ""));
    status.heartbeat_unix = object.value("heartbeat_unix", 0.0);
    status.epoch = object.value("epoch", std::int64_t{0});
    status.step = object.value("step", std::int64_t{0});
  } catch (const json::exception& error) {
    status.state = "UNREADABLE";
    status.reason = cat("status.json: ", json_problem(error.what()));
  }
  return status;
}

// Points `latest` at the folder; a failure must not end a run (some file systems have no links).
void link_latest(const fs::path& parent, const std::string& target) {
  const fs::path temporary = parent / cat(".latest-", static_cast<std::int64_t>(getpid()));
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, parent / "latest", error);
}

// Removes unfinished files of a killed process, which were never renamed to their final names.
void remove_partial_files(const std::string& folder) {
  std::error_code error;
  for (const std::string& inside : {folder, folder + "/ckpt"}) {
    for (fs::directory_iterator it(inside, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      std::error_code ignored;
      if ((name.starts_with(".") && name.ends_with(".partial")) || name.starts_with(".begun-") ||
          name.starts_with(".now-")) {
        fs::remove(it->path(), ignored);
      }
    }
  }
}

int open_log(const std::string& folder) {
  const std::string path = folder + "/log.txt";
  const int log = open_own(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK);
  if (log < 0) fail_io(cat("expected to open ", path), errno);
  return log;
}

}  // namespace

double unix_seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc_time_text(double unix_seconds) {
  return time_text(unix_seconds, "%Y-%m-%dT%H:%M:%SZ");
}

RunStatus read_run_status(const std::string& folder, bool exactly) {
  RunStatus status = parse_status(folder);
  const auto is_gone = [&] {
    return status.state == "RUNNING" && !is_alive(folder, status, exactly);
  };
  // Between reading the status and testing the lock, the process may have written its final status
  // and ended. In this case the new status counts.
  if (is_gone()) status = parse_status(folder);
  if (is_gone()) {
    status.state = "KILLED";
    status.reason = cat("process ", status.pid, " is gone; go on with --resume ", folder);
  }
  return status;
}

RunFolder RunFolder::create(const std::string& root, const std::string& name, std::uint64_t seed) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
    fail(ErrorKind::kConfig, "run",
         cat("expected a run name without '/' that does not start with '.', because it becomes a "
             "folder, got '",
             name, "'"));
  }
  const std::string parent = root + "/" + name;
  create_folders(parent);
  remove_stillborn_runs(parent);
  const std::string id = cat(time_text(unix_seconds_now(), "%Y-%m-%d_%H%M%S"), "-s", seed);
  for (int number = 1;; ++number) {
    const std::string unique = number == 1 ? id : cat(id, "-", number);
    std::string path = parent + "/" + unique;
    if (mkdir(path.c_str(), 0755) != 0) {
      if (errno == EEXIST && number < 10000) continue;
      fail_io(cat("expected to create the folder ", path), errno);
    }
    create_folders(path + "/ckpt");
    const int lock = try_lock(path);
    const int log = open_log(path);
    claim_ownership(path, 1, this_process());
    return {std::move(path), lock, log, 1};
  }
}

RunFolder RunFolder::reopen(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  refuse_link(path + "/ckpt");
  while (true) {
    const RunStatus status = parse_status(path);
    const std::int64_t number = newest_owner(path) + 1;
    // Checks the heartbeat before taking the lock. After that, the lock of this process could not
    // be distinguished from the lock of another process.
    int lock = is_alive(path, status, /*exactly=*/true) ? -1 : try_lock(path);
    if (lock >= 0 && !claim_ownership(path, number, this_process())) {
      close(lock);
      lock = -1;
    }
    if (lock >= 0) {
      remove_partial_files(path);
      return {path, lock, open_log(path), number};
    }
    const std::string trainer = cat("process ", status.pid, " on ", status.host);
    const std::string holder = is_locked(path)                            ? holder_text(path)
                               : is_alive(path, status, /*exactly=*/true) ? trainer
                                                                          : "";
    const bool trains = status.state == "RUNNING" && holder == trainer;
    if (trains || std::chrono::steady_clock::now() >= end) {
      fail(ErrorKind::kInvalid, "resume",
           cat("expected a run that no process works on, because two processes would mix their "
               "files, got ",
               path, ", which ", holder.empty() ? "another process" : holder,
               trains ? " is running" : " has open", patience_text(path, status)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      lock_(std::exchange(other.lock_, -1)),
      log_(std::exchange(other.log_, -1)),
      owner_(other.owner_) {}

RunFolder::~RunFolder() {
  if (log_ >= 0) close(log_);
  if (lock_ >= 0) close(lock_);
}

std::string RunFolder::id() const { return fs::path(path_).filename().string(); }

std::string RunFolder::file(std::string_view name) const { return cat(path_, "/", name); }

void RunFolder::write(std::string_view name, std::string_view content) const {
  write_file(own_path(path_, name), content);
}

void RunFolder::check_owner() const {
  if (newest_owner(path_) <= owner_) return;
  fail(ErrorKind::kIo, "run folder",
       cat("expected to be the one process that works on ", path_,
           ", got a newer one, which took it over because this one had given no sign of life for ",
           static_cast<std::int64_t>(kHeartbeatLimitSeconds), " s; nothing more is written"));
}

void RunFolder::set_status(const RunStatus& status) const {
  check_owner();
  const double now = unix_seconds_now();
  json object = {{"state", status.state}, {"reason", status.reason},
                 {"exit_code", nullptr},  {"pid", static_cast<std::int64_t>(getpid())},
                 {"host", host_name()},   {"heartbeat", utc_time_text(now)},
                 {"heartbeat_unix", now}, {"epoch", status.epoch},
                 {"step", status.step},   {"format", kStatus}};
  if (status.exit_code >= 0) object["exit_code"] = status.exit_code;
  std::error_code error;
  const bool is_first = !fs::exists(file("status.json"), error);
  write("status.json", json_text(object));
  // Once `latest` points to a run, its status can be read.
  const fs::path parent = fs::path(path_).parent_path();
  if (is_first && !parent.empty()) link_latest(parent, id());
}

void RunFolder::log(std::string_view line) const {
  write_all(log_, cat(utc_time_text(unix_seconds_now()), " ", line, "\n"), file("log.txt"));
}

namespace {

// Returns a description of a path that names no run.
std::string what_is_at(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "which is not there";
  if (!fs::is_directory(path, error)) return "which is a file";
  const std::vector<std::string> runs = find_runs(path);
  if (runs.empty()) return "which holds no run";
  return cat("which holds ", runs.size(),
             runs.size() == 1 ? " run: " : " runs; name one of them: ", runs.back());
}

}  // namespace

std::string resolve_run(const std::string& run) {
  std::error_code error;
  for (const std::string& candidate : {run, run + "/latest"}) {
    if (fs::exists(candidate + "/config.yaml", error)) {
      const fs::path real = fs::canonical(candidate, error);
      // Keeps the path as the user wrote it, but replaces a link `latest` at its end, because this
      // link will point to another run later.
      if (!error && fs::path(candidate).filename() == "latest") {
        return (fs::path(candidate).parent_path() / real.filename()).string();
      }
      std::string path = candidate;
      while (path.size() > 1 && path.back() == '/') path.pop_back();
      return path;
    }
  }
  fail(
      ErrorKind::kIo, "run folder",
      cat("expected a run folder (it holds config.yaml), or a folder with a run named latest, got ",
          run, ", ", what_is_at(run)));
}

}  // namespace convscope
