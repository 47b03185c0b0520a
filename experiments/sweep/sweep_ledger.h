// SPDX-License-Identifier: Apache-2.0
// sweep_ledger.h: what each member of a sweep has come to, whoever trains it: what earlier calls
// have done, what is left, the lines that a call says about it, the state file and the table.
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
  // Takes the folder of the sweep; an error when another process works on it.
  SweepLedger(const SweepPlan& plan, const SweepOptions& options);

  const SweepPlan& plan() const { return plan_; }
  const std::string& path() const { return folder_.path(); }
  SweepFolder& folder() { return folder_; }
  SweepScreen& screen() { return screen_; }
  const std::vector<std::size_t>& queue() const { return queue_; }  // to train, in order
  // Runs that failed before and are in the queue all the same (--retry-failed).
  const std::vector<std::string>& retried() const { return retried_; }
  SweepOutcome& outcome(std::size_t member) { return outcomes_[member]; }
  std::string label(std::size_t member) const;

  // Looks at the run folders, and says in a line what is there. Fills the queue.
  void take_stock();
  MemberState look_at(std::size_t member) const;
  void write(const std::string& state) { folder_.write(state, plan_, outcomes_); }

  // One line each. `seconds`: that it took in this call.
  void report_done(std::size_t member, double seconds);
  void report_failure(std::size_t member, const std::string& sentence);
  // A member is at work since then; the estimate of the time left takes it off.
  void started(std::size_t member);
  void stopped(std::size_t member);
  // "name seed 1 epoch 2/3 01:05; ..." of all that are at work.
  std::string live_text() const;
  // Members that work side by side, for the estimate.
  void set_side_by_side(int members) { side_by_side_ = members; }

  // The end: state file, table, last line.
  SweepResult finish();
  // The end after a signal: `sentence` is the last line.
  SweepResult interrupt(int signal, const std::string& sentence);
  // The same while others work on.
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
  std::vector<double> took_;  // seconds of the members that this call has finished
  std::vector<std::size_t> queue_;
  std::vector<std::string> retried_;
  std::map<std::size_t, Clock::time_point> active_;
  std::size_t finished_ = 0, width_ = 0;
  int side_by_side_ = 1;
};

}  // namespace convscope
