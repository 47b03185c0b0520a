// SPDX-License-Identifier: Apache-2.0
// workers_view.h: the progress of workers on other nodes, from the folder of the sweep, for the
// command that waits for them.
#pragma once

#include <set>
#include <vector>

#include "experiments/sweep/sweep_ledger.h"

namespace convscope {

class CONVSCOPE_API WorkersView {
 public:
  // Uses `call` from sweep.members.json. Members that a worker of an earlier call gave up do not
  // count.
  WorkersView(SweepLedger& ledger, std::string call);

  // Reads the claims, and the run folders of members whose claims have changed. Prints a line for
  // each member that has ended.
  void look();
  // Returns whether a member is at work or to do.
  bool is_left(std::size_t member) const { return left_.contains(member); }
  const std::set<std::size_t>& left() const { return left_; }
  // Reads each member once more after the last worker has gone, whatever its claim says. Repeats
  // the reads for some seconds, because file systems may show changes of another node late. Members
  // that then are still unfinished have ended without a reason.
  void settle();
  void give_up(std::size_t member, const std::string& sentence);
  // Changes the call for which the remaining members are trained.
  void follow(const std::string& call) { call_ = call; }
  // Writes the state file when something has changed.
  void write();

 private:
  void read(std::size_t member, bool at_the_end);
  SweepLedger& ledger_;
  std::string call_;
  std::set<std::size_t> left_;
  std::vector<ClaimRecord> seen_;  // indexed like the members of the plan
  bool changed_ = true;
};

}  // namespace convscope
