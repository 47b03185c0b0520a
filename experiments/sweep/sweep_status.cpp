// SPDX-License-Identifier: Apache-2.0
// sweep_status.cpp: progress and host of each member of a sweep.
#include "experiments/sweep/sweep_status.h"

#include <algorithm>
#include <map>
#include <vector>

#include "experiments/sweep/claim.h"
#include "experiments/sweep/cluster/slurm_calls.h"
#include "experiments/sweep/sweep_refresh.h"
#include "framework/check.h"

namespace convscope {
namespace {

// Returns the unfinished tasks of the sweep's job array. Returns nothing if Slurm is not available;
// the status then comes from the files only.
std::map<std::size_t, SlurmTask> tasks_in(const std::string& folder, const SweepMembers& members,
                                          std::string& job) {
  if (read_slurm_note(folder).job.empty() || find_program("squeue").empty()) return {};
  try {
    job = slurm_job_in(folder, members.plan.name);
    if (job.empty()) return {};
    return slurm_tasks(job).value_or(std::map<std::size_t, SlurmTask>{});
  } catch (const Error&) {
    return {};
  }
}

TableCell text(const std::string& word) { return word.empty() ? TableCell() : TableCell(word); }

}  // namespace

SweepStatus sweep_status(const std::string& folder) {
  const SweepMembers members = read_sweep_members(folder);
  std::string job;
  const std::map<std::size_t, SlurmTask> tasks = tasks_in(folder, members, job);
  const std::vector<SweepOutcome> outcomes = outcomes_in(folder, members);
  SweepStatus out;
  for (const char* name :
       {"member", "name", "seed", "state", "host", "epoch", "epochs", "task", "error"}) {
    out.table.columns.push_back({.name = name, .digits = kWhole});
  }
  const std::vector<std::string> kOrder = {"done",   "failed",  "running",
                                           "queued", "stopped", "to do"};
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const SweepMember& member = members.plan.members[i];
    const MemberState& state = outcomes[i].state;
    const std::string place = claim_folder(folder, member);
    const ClaimRecord claim = read_claim(place);
    const auto task = tasks.find(i);
    const bool claimed = is_claimed(place);
    const std::string word = state.progress == MemberProgress::done                 ? "done"
                             : state.progress == MemberProgress::failed             ? "failed"
                             : state.progress == MemberProgress::running || claimed ? "running"
                             : task != tasks.end()                                  ? "queued"
                             : !outcomes[i].error.empty()                           ? "failed"
                             : state.progress == MemberProgress::partial            ? "stopped"
                                                                                    : "to do";
    ++counts[word];
    std::string where = claimed ? claim.task : "";
    if (task != tasks.end()) {
      where = cat(job, "_", i, " ", task->second.state);
      if (task->second.state == "PENDING") where += " " + task->second.reason;
      if (!task->second.node.empty()) where += " " + task->second.node;
    }
    const std::int64_t epochs =
        state.summary ? state.summary->epochs_planned : member.config.train.epochs;
    out.table.rows.push_back(
        {static_cast<std::int64_t>(i), member.row, member.config.seed, word,
         text(claimed && !claim.host.empty() ? claim.host : state.host), state.epoch,
         epochs > 0 ? TableCell(epochs) : TableCell(), text(where),
         text(outcomes[i].error.empty() && word == "stopped" ? state.error : outcomes[i].error)});
  }
  out.summary = cat(outcomes.size(), outcomes.size() == 1 ? " member:" : " members:");
  std::string comma = " ";
  for (const std::string& word : kOrder) {
    if (counts[word] == 0) continue;
    out.summary += cat(comma, counts[word], " ", word);
    comma = ", ";
  }
  if (!job.empty()) out.summary += cat("; job ", job, " of Slurm");
  return out;
}

}  // namespace convscope
