// SPDX-License-Identifier: Apache-2.0
// workers_view.h: what workers on other nodes have done, as the folder of the sweep tells the
// command that waits for them.
#pragma once

#include <set>
#include <vector>

#include "experiments/sweep/sweep_ledger.h"

namespace convscope {

class CONVSCOPE_API WorkersView {
 public:
  // `call`: of sweep.members.json; what a worker of an earlier call gave up does not count.
  WorkersView(SweepLedger& ledger, std::string call);

  // Looks at the claims, and at the run folders of those that have changed; a line for each member
  // that has ended.
  void look();
  // Of members that are at work or to do.
  bool is_left(std::size_t member) const { return left_.contains(member); }
  const std::set<std::size_t>& left() const { return left_; }
  // After the last worker has gone: each member once more, whatever its claim says. File systems
  // may show the last words of another node late, so it looks for some seconds. What is left then
  // is not through, and nobody says why.
  void settle();
  void give_up(std::size_t member, const std::string& sentence);
  // The members that are left are trained for another call.
  void follow(const std::string& call) { call_ = call; }
  // Writes the state file when something has changed.
  void write();

 private:
  void read(std::size_t member, bool at_the_end);
  SweepLedger& ledger_;
  std::string call_;
  std::set<std::size_t> left_;
  std::vector<ClaimRecord> seen_;  // beside the members of the plan
  bool changed_ = true;
};

}  // namespace convscope
