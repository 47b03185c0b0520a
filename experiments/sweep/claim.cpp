// SPDX-License-Identifier: Apache-2.0
// claim.cpp: the right of one process to work on a sweep or a member, on one host or on several.
#include "experiments/sweep/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "experiments/run_folder/files/own_file.h"
#include "experiments/run_folder/run_owner.h"
#include "framework/check.h"
#include "framework/io/bytes.h"
#include "framework/io/clean_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

// Length of a record in bytes. All records have this length and are overwritten in place, so that
// an increment needs no space on a disk that has become full.
constexpr std::size_t kRecordBytes = 2048;
constexpr std::size_t kLongestText = 700;

std::string owner_file(const std::string& folder, std::int64_t number) {
  return cat(folder, "/.owner-", number);
}

std::string cut(const std::string& text) { return clean_line(text).substr(0, kLongestText); }

std::string text_of(const ClaimRecord& record) {
  const Json out = {{"count", record.count},    {"held", record.held},
                    {"host", cut(record.host)}, {"pid", record.pid},
                    {"call", record.call},      {"task", record.task},
                    {"jobs", record.jobs},      {"error", cut(record.error)}};
  std::string text = out.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() >= kRecordBytes) {  // escaping makes the text longer
    Json shorter = out;
    shorter["error"] = "";
    text = shorter.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  text.resize(kRecordBytes - 1, ' ');
  return text + "\n";
}

// Returns the locked file, or -1 when another process holds the lock. If the file system does not
// support locks, returns the unlocked file and sets `has_lock` to false.
int lock_file(const std::string& folder, bool& has_lock) {
  const std::string path = folder + "/.lock";
  const int lock = open_own(path, O_RDWR | O_CREAT | O_NONBLOCK);
  if (lock < 0) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to write in the folder ", folder, ", got: ", std::strerror(errno)));
  }
  has_lock = flock(lock, LOCK_EX | LOCK_NB) == 0;
  if (!has_lock && errno == EWOULDBLOCK) {
    close(lock);
    return -1;
  }
  return lock;
}

}  // namespace

std::string name_of_this_host() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

ClaimRecord read_claim(const std::string& folder) {
  ClaimRecord out;
  out.number = newest_owner(folder);
  if (out.number == 0) return out;
  out.held = true;  // until the record says otherwise
  const auto text = text_if_there(owner_file(folder, out.number), 1 << 16);
  const Json read = Json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!read.is_object()) return out;
  try {
    out.count = read.value("count", std::int64_t{0});
    out.held = read.value("held", true);
    out.host = clean_line(read.value("host", ""));
    out.pid = read.value("pid", std::int64_t{0});
    out.call = clean_line(read.value("call", ""));
    out.task = clean_line(read.value("task", ""));
    out.jobs = std::clamp(read.value("jobs", 1), 1, 1024);
    out.error = clean_line(read.value("error", ""));
  } catch (const Json::exception&) {  // damaged: a holder without a record
  }
  return out;
}

bool is_claimed(const std::string& folder) {
  if (is_locked(folder)) return true;
  const ClaimRecord holder = read_claim(folder);
  return holder.held && holder.number > 0 && holder.host != name_of_this_host();
}

struct Claim::Beat {
  std::string folder;
  ClaimRecord record;
  int lock = -1, file = -1;
  std::chrono::milliseconds pause{};
  std::atomic<bool> lost{false};
  std::mutex mutex;
  std::condition_variable wake;
  bool ending = false;
  std::thread thread;

  // Incrementing the counter may fail, because a disk is full or the file server does not answer.
  // The process continues, because the next increment may succeed.
  bool write() {
    const std::string text = text_of(record);
    return pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }
  void look() {
    if (newest_owner(folder) > record.number) lost = true;
  }
  void run() {
    std::unique_lock<std::mutex> guard(mutex);
    while (!wake.wait_for(guard, pause, [this] { return ending; })) {
      look();
      if (lost) return;
      ++record.count;
      write();
    }
  }
  void end() {
    {
      const std::scoped_lock guard(mutex);
      ending = true;
    }
    wake.notify_all();
    if (thread.joinable()) thread.join();
  }
  void let_go(const std::string& error) {
    if (file < 0) return;
    end();
    look();
    if (!lost) {
      record.held = false;
      record.error = error;
      ++record.count;
      write();
    }
    close(file);
    if (lock >= 0) close(lock);
    file = lock = -1;
  }
};

Claim::Claim(std::unique_ptr<Beat> beat) : beat_(std::move(beat)) {}
Claim::~Claim() { beat_->let_go(""); }
bool Claim::lost() const { return beat_->lost; }
int Claim::lock() const { return beat_->lock; }
void Claim::give_up(const std::string& error) { beat_->let_go(error); }

bool ClaimWatch::is_gone(const std::string& folder, const ClaimRecord& holder,
                         const std::string& host, bool has_lock) {
  Seen& seen = seen_[folder];
  const Clock::time_point now = Clock::now();
  if (seen.number != holder.number || seen.count != holder.count) {
    seen.alive = seen.number == holder.number && seen.number != 0;
    seen.number = holder.number;
    seen.count = holder.count;
    seen.since = now;
  }
  if (holder.number == 0 || !holder.held) return true;
  if (!holder.host.empty() && holder.host == host) {
    if (has_lock) return true;
    if (kill(static_cast<pid_t>(holder.pid), 0) != 0 && errno == ESRCH) return true;
  }
  return now - seen.since >= times_.silence;
}

bool ClaimWatch::seen_alive(const std::string& folder) const {
  const auto seen = seen_.find(folder);
  return is_locked(folder) || (seen != seen_.end() && seen->second.alive);
}

std::unique_ptr<Claim> ClaimWatch::try_take(const std::string& folder, const ClaimRecord& self) {
  refuse_link(folder);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to create the folder ", folder, ", got: ", error.message()));
  }
  bool has_lock = false;
  const int lock = lock_file(folder, has_lock);
  if (lock < 0) return nullptr;
  auto beat = std::make_unique<Claim::Beat>();
  beat->lock = lock;
  beat->folder = folder;
  beat->pause = times_.beat;
  beat->record = self;
  const auto leave = [&] {
    if (beat->file >= 0) close(beat->file);
    close(lock);
    return nullptr;
  };
  try {
    const ClaimRecord holder = read_claim(folder);
    if (!is_gone(folder, holder, self.host, has_lock)) return leave();
    beat->record.number = holder.number + 1;
    beat->record.held = true;
    if (!claim_ownership(folder, beat->record.number, text_of(beat->record))) return leave();
  } catch (...) {
    leave();
    throw;
  }
  const std::string path = owner_file(folder, beat->record.number);
  beat->file = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (beat->file < 0) return leave();  // another process claimed it immediately
  // Blocks signals in this thread; another thread waits for them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  beat->thread = std::thread([held = beat.get()] { held->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return std::unique_ptr<Claim>(new Claim(std::move(beat)));
}

}  // namespace convscope
