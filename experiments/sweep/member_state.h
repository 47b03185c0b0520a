// SPDX-License-Identifier: Apache-2.0
// member_state.h: how far a member of a sweep is, as its run folders tell. They are the only truth:
// a sweep that was killed at any moment reads them and goes on.
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
  failed,   // a run that failed and would fail again: it diverged, or missed its gate
  done,
};
CONVSCOPE_API std::string_view name_of(MemberProgress progress);

struct MemberState {
  MemberProgress progress = MemberProgress::missing;
  std::string run;                         // its folder; "" when missing
  std::string error;                       // why it failed, or stopped
  std::int64_t pid = 0;                    // of the process that works on it
  std::string host = {};                   // on which it ran last
  std::int64_t epoch = 0, step = 0;        // finished ones
  std::optional<RunSummary> summary = {};  // of the epochs done so far
};

// The state of a member of the sweep in `folder` (runs/<sweep>): of its run with the same resolved
// config that is farthest (done, running, partial, failed), and of several such of the newest one.
// The number of threads is no part of the config here, as it does not change results, unless the
// sweep is about threads.
CONVSCOPE_API MemberState member_state(const std::string& folder, const SweepMember& member,
                                       bool threads_matter);

// What a killed process left before its run had a status: of no use to anybody.
CONVSCOPE_API void remove_stillborn_runs(const std::string& folder, const SweepMember& member);

// "lenet_k5 seed 1"
CONVSCOPE_API std::string label_of(const SweepMember& member);

}  // namespace convscope
