// SPDX-License-Identifier: Apache-2.0
// process_group.h: the processes that train one network together, and what they say to each other.
//
// What is asked for is done in its order: by a thread of the group while this one computes, and by
// this one while it waits. So a sum travels while the backward pass still computes, and a process
// that is silent is noticed whatever the others wait for.
//
// Signs of life   Every process and process 0 send each other a few bytes twice a second. One that
//                 is silent for kPatienceSeconds is lost: it was stopped, or its host is gone.
//                 Process 0 says so in one sentence, and all end with exit code 8. A stop signal
//                 (SIGTERM) at one process reaches the others in the same way.
// Order           Every process asks for the same things in the same order.
// Usage           auto group = ProcessGroup::join(*rank_environment());
//                 const std::string config = group->broadcast(text);    // process 0's
//                 auto ticket = group->queue_sum(data, count, 0.5f);    // goes on beside the work
//                 group->wait(ticket);
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/check.h"
#include "framework/distributed/rank_environment.h"

namespace convscope {

// How sums over processes are taken.
enum class SumOrder : std::uint8_t {
  // As MPI finds quickest (a ring, say). The same bits in each process; others with another number
  // of processes.
  any,
  // A tree of pairs: ((g0+g1)+(g2+g3))+... Each process that sums an aligned part of 2^k terms in
  // the same way leaves the sum of all terms with the same bits for any number of processes that is
  // a power of two. Sends log2(P) times the data; MPI's own sends less than twice.
  tree,
};

class CONVSCOPE_API ProcessGroup {
 public:
  static constexpr double kPatienceSeconds = 5;
  // Exit code of a process whose group has lost one.
  static constexpr int kLostExitCode = 8;

  // Opens MPI and meets the others; errors of kind kUnavailable say what is missing.
  static std::unique_ptr<ProcessGroup> join(const RankEnvironment& environment);
  // Leaves: waits for the others to do the same.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  using Ticket = std::int64_t;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  int local_rank() const { return environment_.local_rank; }
  int local_size() const { return environment_.local_size; }
  // How many of them, this one included, may run on the same cores of this host. A launcher that
  // binds each process to its own cores leaves 1.
  int sharers() const { return sharers_; }
  const std::string& library() const { return library_; }  // "Open MPI v4.1.4"
  const std::string& launcher() const { return environment_.launcher; }
  // "process 1 of 4, host node2, pid 4711"
  std::string name_of(int rank) const;
  const std::string& host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  // These wait. Bytes of process 0 to all; bytes of each to all, by rank; sums of doubles, taken in
  // the order of the ranks.
  std::string broadcast(const std::string& bytes);
  std::vector<std::string> gather(const std::string& bytes);
  void sum(double* values, std::int64_t count);
  Ticket queue_sum(double* values, std::int64_t count);  // the same, beside the work
  // The largest of all.
  double most(double value);

  // data := the sum over all processes of weight * data, beside the work of this thread. The data
  // belong to the group until wait().
  Ticket queue_sum(float* data, std::int64_t count, float weight, SumOrder order);
  // Any other work that shall run in that thread, in this order: such as a copy from a device.
  Ticket queue(std::function<void()> work);
  void wait(Ticket ticket);
  double waited_seconds() const { return waited_s_; }  // in wait(), so far

  // A stop signal that another process has got; 0: none.
  int signal_of_others() const { return their_signal_.load(std::memory_order_relaxed); }
  // Says which one this process has got, when the group's thread asks; the others learn of it.
  void watch_signal(int (*received)() noexcept) { received_signal_ = received; }
  // Called in the group's thread when a process is lost or has failed alone, before this one ends:
  // with the exit code that all of them get, and the sentence.
  void on_lost(std::function<void(int, const std::string&)> call);

  // This process has failed, while others may go on: tells process 0 and ends all of them with this
  // exit code. One sentence is printed for all of them: process 0's own if it fails, too, which is
  // by far the most common case (a loss that is not finite is so everywhere). Does not return.
  [[noreturn]] void fail_all(int exit_code, const std::string& sentence);

 private:
  struct Impl;
  explicit ProcessGroup(const RankEnvironment& environment);

  RankEnvironment environment_;
  std::string library_;
  std::vector<std::string> hosts_, pids_;
  int sharers_ = 1;
  std::atomic<int (*)() noexcept> received_signal_{nullptr};
  std::atomic<int> their_signal_{0};
  double waited_s_ = 0;
  std::unique_ptr<Impl> impl_;
};

// The group of this process, once it has joined one; null: it works alone.
CONVSCOPE_API ProcessGroup* process_group();
CONVSCOPE_API void set_process_group(ProcessGroup* group);
// Rank 0 alone talks: to the terminal, into folders.
inline bool is_first_process() {
  return process_group() == nullptr || process_group()->rank() == 0;
}

}  // namespace convscope
