// SPDX-License-Identifier: Apache-2.0
// process_group.h: the processes that train one network together, and the communication between
// them.
//
// Requests are executed in order. A background thread executes them while the calling thread
// computes. While the calling thread waits for a result, it executes them itself. So a sum overlaps
// the rest of the backward pass, and a silent process is detected regardless of what the others
// wait for.
//
// Signs of life   Process 0 and every other process exchange a short message twice a second. A
//                 process is lost if it is silent for kPatienceSeconds: it was stopped, or its host
//                 is gone. Process 0 reports the loss in one sentence, and all processes exit with
//                 code 8. A stop signal (SIGTERM) at one process is forwarded to the others.
// Order           Every process makes the same requests in the same order.
// Usage           auto group = ProcessGroup::join(*rank_environment());
//                 const std::string config = group->broadcast(text);    // process 0's
//                 auto ticket = group->queue_sum(data, count, 0.5f);    // runs in the background
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

// The order in which sums over processes are computed.
enum class SumOrder : std::uint8_t {
  // The fastest order for the MPI library (e.g. a ring). All processes get the same bits; the bits
  // change with the number of processes.
  any,
  // A tree of pairs: ((g0+g1)+(g2+g3))+... If each process sums an aligned block of 2^k terms in
  // this order, the total has the same bits for any power of two of processes. With P processes,
  // each process sends up to log2(P) times the data; MPI's own algorithm sends less than twice the
  // data.
  tree,
};

class CONVSCOPE_API ProcessGroup {
 public:
  static constexpr double kPatienceSeconds = 5;
  // Exit code of a process whose group has lost a process.
  static constexpr int kLostExitCode = 8;

  // Opens MPI and joins the other processes. Throws kUnavailable, naming what is missing.
  static std::unique_ptr<ProcessGroup> join(const RankEnvironment& environment);
  // Leaves the group: waits for the others to do the same.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  using Ticket = std::int64_t;

  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  int local_rank() const { return environment_.local_rank; }
  int local_size() const { return environment_.local_size; }
  // Returns how many processes, including this one, may run on the same cores of this host. The
  // number is 1 when the launcher binds each process to separate cores.
  int sharers() const { return sharers_; }
  const std::string& library() const { return library_; }  // "Open MPI v4.1.4"
  const std::string& launcher() const { return environment_.launcher; }
  // Returns "process 1 of 4, host node2, pid 4711".
  std::string name_of(int rank) const;
  const std::string& host_of(int rank) const { return hosts_[static_cast<std::size_t>(rank)]; }

  // Sends the bytes of process 0 to all processes (broadcast), collects the bytes of all processes
  // by rank (gather), or adds doubles in rank order (sum). Each call waits for its result.
  std::string broadcast(const std::string& bytes);
  std::vector<std::string> gather(const std::string& bytes);
  void sum(double* values, std::int64_t count);
  Ticket queue_sum(double* values, std::int64_t count);  // the same in the background
  // Returns the maximum over all processes.
  double most(double value);

  // Sets data to the sum over all processes of weight * data, in the background. Do not access the
  // data until wait().
  Ticket queue_sum(float* data, std::int64_t count, float weight, SumOrder order);
  // Queues other work for the background thread, such as waiting for a copy from a device.
  Ticket queue(std::function<void()> work);
  void wait(Ticket ticket);
  double waited_seconds() const { return waited_s_; }  // total time in wait()

  // Returns a stop signal that another process has received; 0: none.
  int signal_of_others() const { return their_signal_.load(std::memory_order_relaxed); }
  // Sets the function that returns a stop signal of this process; the background thread forwards
  // the signal.
  void watch_signal(int (*received)() noexcept) { received_signal_ = received; }
  // Sets a function that the background thread calls before this process exits because another
  // process is lost or has failed. The arguments are the common exit code and the sentence.
  void on_lost(std::function<void(int, const std::string&)> call);

  // Reports that this process has failed, and ends all processes with `exit_code`. One sentence is
  // printed for all. If process 0 fails, too, the sentence of process 0 is printed; this is usual,
  // because a non-finite loss is non-finite in all processes. Does not return.
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

// Returns the group that this process has joined; null if it runs by itself.
CONVSCOPE_API ProcessGroup* process_group();
CONVSCOPE_API void set_process_group(ProcessGroup* group);
// Returns true on the one process that writes to the terminal and to folders.
inline bool is_first_process() {
  return process_group() == nullptr || process_group()->rank() == 0;
}

}  // namespace convscope
