// SPDX-License-Identifier: Apache-2.0
// claim.h: a claim gives one process the right to work on a sweep or a member, on one host or on
// several hosts that share a file system.
//
// A claim is a folder. Its holder locks the file .lock in it. The holder also owns a number, and
// with it the file .owner-<number> (run_folder/run_owner.h), in which it increments a counter every
// few seconds. Before another process takes the claim, it must find out whether the holder is gone.
// It asks three questions:
//   is the lock taken?                                  then the holder lives
//   is the holder on this host, or did it release?      then a free lock means that it is gone
//   does its counter not change for a minute?           then it is gone, too
// The process that trains a member also keeps the lock: when its worker is killed, the process
// still writes its checkpoint, and no other process begins meanwhile. Times of two clocks are never
// compared, so hosts whose clocks differ by minutes agree. A holder that was considered dead and
// wakes up finds a higher number than its own, and stops.
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
  std::chrono::milliseconds beat{5000};      // between two increments
  std::chrono::milliseconds silence{60000};  // a holder without increments for this long is gone
};

// The holder's record.
struct ClaimRecord {
  std::int64_t number = 0;  // 0: never held
  std::int64_t count = 0;
  bool held = false;
  std::string host = {};
  std::int64_t pid = 0;
  std::string call = {};   // the call of `convscope sweep` that it works for
  std::string task = {};   // "slurm 17_3", "rank 2"
  int jobs = 1;            // members on its host at the same time, itself included
  std::string error = {};  // why it gave the member up, in this call
};
// Returns the newest record in the folder. The call is cheap because it only reads a file, so it
// does not notice that a holder was killed: the record still says `held`.
CONVSCOPE_API ClaimRecord read_claim(const std::string& folder);

class CONVSCOPE_API Claim {
 public:
  ~Claim();  // releases the claim unless it was lost
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Returns whether another process has taken the claim over, because this process gave no sign of
  // life for too long.
  bool lost() const;
  // Returns the open lock file. A child process that keeps the file open also holds the lock, so
  // waiting processes continue only when parent and child have ended.
  int lock() const;
  // Releases the claim and leaves a sentence for waiting processes.
  void give_up(const std::string& error);

 private:
  friend class ClaimWatch;
  struct Beat;
  explicit Claim(std::unique_ptr<Beat> beat);
  std::unique_ptr<Beat> beat_;
};

// Takes claims, and remembers which holders have incremented their counters.
class CONVSCOPE_API ClaimWatch {
 public:
  explicit ClaimWatch(ClaimTimes times = {}) : times_(times) {}

  // Takes the claim and returns it. Returns null when another process holds the claim or may hold
  // it; the caller then tries again later. The claim sets number and counter of `self` itself.
  // Throws when the folder is not writable.
  std::unique_ptr<Claim> try_take(const std::string& folder, const ClaimRecord& self);
  // Returns whether the holder is certainly alive, because it has the lock or its counter has
  // changed.
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

// Returns whether a process is working on the claimed member or sweep. It reads the folder once and
// writes nothing. The answer is yes if the lock is held, or if the record of a holder on another
// host says `held`.
CONVSCOPE_API bool is_claimed(const std::string& folder);

CONVSCOPE_API std::string name_of_this_host();

}  // namespace convscope
