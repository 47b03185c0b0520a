// SPDX-License-Identifier: Apache-2.0
// member_state.h: the progress of a member of a sweep, read only from its run folders. So a sweep
// can continue after it was killed at any moment.
#pragma once

#include <optional>
#include <string>

#include "experiments/config/sweep_block.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"

namespace convscope {

enum class MemberProgress {
  missing,  // no run with this config
  partial,  // a run that can go on
  running,  // a run that another process works on
  failed,   // a run that would fail again: it diverged or missed a value of `expect`
  done,
};
CONVSCOPE_API std::string_view name_of(MemberProgress progress);

struct MemberState {
  MemberProgress progress = MemberProgress::missing;
  std::string run;                         // its folder; "" when missing
  std::string error;                       // why it failed, or stopped
  std::int64_t pid = 0;                    // process that works on it
  std::string host = {};                   // host of its last run
  std::int64_t epoch = 0, step = 0;        // finished ones
  std::optional<RunSummary> summary = {};  // over the finished epochs
};

// Returns the state of a member of the sweep in `folder` (runs/<sweep>). The member may have
// several runs with its resolved config. A done run is chosen first, then a running, a partial, and
// a failed one; among equal states, the newest. The number of threads does not change results, so
// configs that differ only in it count as the same, unless the sweep varies it (`threads_matter`).
CONVSCOPE_API MemberState member_state(const std::string& folder, const SweepMember& member,
                                       bool threads_matter);

// Removes folders of processes that were killed before their run had a status.
CONVSCOPE_API void remove_stillborn_runs(const std::string& folder, const SweepMember& member);

// Returns "lenet_k5 seed 1".
CONVSCOPE_API std::string label_of(const SweepMember& member);

}  // namespace convscope
