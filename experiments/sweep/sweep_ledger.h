// SPDX-License-Identifier: Apache-2.0
// sweep_ledger.h: the state of each member of a sweep, for any launcher: results of earlier calls,
// remaining members, messages of this call, state file and table.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/claim.h"
#include "experiments/sweep/sweep_folder.h"
#include "experiments/sweep/sweep_runner.h"
#include "experiments/sweep/sweep_screen.h"

namespace convscope {

class CONVSCOPE_API SweepLedger {
 public:
  // Takes the folder of the sweep; fails when another process works on it.
  SweepLedger(const SweepPlan& plan, const SweepOptions& options);

  const SweepPlan& plan() const { return plan_; }
  const std::string& path() const { return folder_.path(); }
  SweepFolder& folder() { return folder_; }
  SweepScreen& screen() { return screen_; }
  const std::vector<std::size_t>& queue() const { return queue_; }  // to train, in order
  // Returns failed runs that are in the queue again (--retry-failed).
  const std::vector<std::string>& retried() const { return retried_; }
  SweepOutcome& outcome(std::size_t member) { return outcomes_[member]; }
  std::string label(std::size_t member) const;

  // Reads the run folders, prints a line about them, and fills the queue.
  void take_stock();
  MemberState look_at(std::size_t member) const;
  void write(const std::string& state) { folder_.write(state, plan_, outcomes_); }

  // Prints one line about the member. `seconds`: duration in this call.
  void report_done(std::size_t member, double seconds);
  void report_failure(std::size_t member, const std::string& sentence);
  // Notes that a member is being trained from now on; the estimate of the remaining time subtracts
  // the elapsed time.
  void started(std::size_t member);
  void stopped(std::size_t member);
  // Returns "name seed 1 epoch 2/3 01:05; ..." for all members that are being trained.
  std::string live_text() const;
  // Sets the number of simultaneous members for the estimate.
  void set_side_by_side(int members) { side_by_side_ = members; }

  // Ends the sweep: state file, table, last line.
  SweepResult finish();
  // Ends after a signal: `sentence` is the last line.
  SweepResult interrupt(int signal, const std::string& sentence);
  // Ends after a signal while other processes continue the work.
  SweepResult leave(int signal, const std::string& sentence);

 private:
  using Clock = std::chrono::steady_clock;
  std::string counter();
  double seconds_left() const;

  const SweepPlan& plan_;
  const SweepOptions& options_;
  SweepScreen screen_;
  SweepFolder folder_;
  std::vector<SweepOutcome> outcomes_;
  std::vector<double> took_;  // seconds of the members finished by this call
  std::vector<std::size_t> queue_;
  std::vector<std::string> retried_;
  std::map<std::size_t, Clock::time_point> active_;
  std::size_t finished_ = 0, width_ = 0;
  int side_by_side_ = 1;
};

}  // namespace convscope
