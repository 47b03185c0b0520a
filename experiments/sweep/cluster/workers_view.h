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
  // Shows the progress of the call with the id `call` (from sweep.members.json). If a worker of an
  // earlier call gave up on a member, the member still counts as to do.
  WorkersView(SweepLedger& ledger, std::string call);

  // Reads the claims, and the run folders of members whose claims have changed. Prints a line for
  // each member that has ended.
  void look();
  // Returns whether a member is at work or to do.
  bool is_left(std::size_t member) const { return left_.contains(member); }
  const std::set<std::size_t>& left() const { return left_; }
  // Reads the remaining members once more after the last worker has gone, even if their claims have
  // not changed. Repeats this for some seconds, because a file system may show changes of another
  // node late. A member that is still unfinished afterwards has ended without giving a reason.
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
