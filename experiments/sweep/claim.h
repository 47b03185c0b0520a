// SPDX-License-Identifier: Apache-2.0
// claim.h: what only one process may work on at a time, a sweep or one of its members, on one host
// or on several that share a file system.
//
// A claim is a folder. Its holder has a lock on the file .lock in it, and a number of its own: the
// file .owner-<number> (run_folder/run_owner.h), in which it counts upwards every few seconds. Who
// wants the claim asks three things:
//   is the lock taken?                         then the holder lives
//   is the holder of this host, or did it let go?     then a free lock means that it is gone
//   does its count stand still for a minute?   then it is gone, too
// The process that trains a member keeps the lock, too: when its worker is killed, it still writes
// its checkpoint, and nobody begins beside it.
// Nobody compares times of two clocks, so hosts whose clocks differ by minutes agree. A holder that
// was thought dead and wakes up again finds a higher number than its own, and stops.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct ClaimTimes {
  std::chrono::milliseconds beat{5000};      // between two counts
  std::chrono::milliseconds silence{60000};  // a holder that does not count for so long is gone
};

// What the holder says of itself.
struct ClaimRecord {
  std::int64_t number = 0;  // 0: nobody ever held it
  std::int64_t count = 0;
  bool held = false;
  std::string host = {};
  std::int64_t pid = 0;
  std::string call = {};   // the call of `convscope sweep` that it works for
  std::string task = {};   // "slurm 17_3", "rank 2"
  int jobs = 1;            // members that run beside it on its host, itself included
  std::string error = {};  // why it gave the member up, in this call
};
// The newest one; cheap, and only as true as the file: a killed holder still says `held`.
CONVSCOPE_API ClaimRecord read_claim(const std::string& folder);

class CONVSCOPE_API Claim {
 public:
  ~Claim();  // lets go, unless it was lost
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Another process took it over, because this one had been silent for too long.
  bool lost() const;
  // The open lock file. A child process that keeps it open holds the lock, too: whoever waits goes
  // on when both have ended.
  int lock() const;
  // Lets go, and leaves a sentence for those who wait.
  void give_up(const std::string& error);

 private:
  friend class ClaimWatch;
  struct Beat;
  explicit Claim(std::unique_ptr<Beat> beat);
  std::unique_ptr<Beat> beat_;
};

// Takes claims, and remembers which holders it has seen counting.
class CONVSCOPE_API ClaimWatch {
 public:
  explicit ClaimWatch(ClaimTimes times = {}) : times_(times) {}

  // Null: another process holds it, or may do so; ask again. `self` without number and count.
  // Throws when the folder cannot be written.
  std::unique_ptr<Claim> try_take(const std::string& folder, const ClaimRecord& self);
  // Whether the holder is known to live: it has the lock, or it was seen counting.
  bool seen_alive(const std::string& folder) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    std::int64_t number = 0, count = 0;
    Clock::time_point since{};
    bool alive = false;
  };
  bool is_gone(const std::string& folder, const ClaimRecord& holder, const std::string& host,
               bool has_lock);

  ClaimTimes times_;
  std::map<std::string, Seen> seen_;
};

// Whether somebody works on it now, as far as one look can tell without writing: a lock is held, or
// a holder of another host says so.
CONVSCOPE_API bool is_claimed(const std::string& folder);

CONVSCOPE_API std::string name_of_this_host();

}  // namespace convscope
