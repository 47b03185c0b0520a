// SPDX-License-Identifier: Apache-2.0
// sweep_refresh.cpp: writes the state file and table of a sweep while no `convscope sweep` command
// waits for it.
#include "experiments/sweep/sweep_refresh.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/report/json_fields.h"
#include "experiments/sweep/claim.h"
#include "experiments/sweep/cluster/slurm_calls.h"
#include "experiments/sweep/sweep_folder.h"
#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr auto kBetweenQuestions = std::chrono::seconds(10);

// `watch` asks every second. Slurm itself is asked less often, at this interval.
bool is_in_slurm(const std::string& job) {
  struct Answer {
    Clock::time_point when{};
    bool going = false;
  };
  static std::map<std::string, Answer> answers;
  Answer& answer = answers[job];
  if (answer.when == Clock::time_point{} || Clock::now() - answer.when > kBetweenQuestions) {
    try {
      const auto tasks = slurm_tasks(job);
      answer.going = tasks && !tasks->empty();
    } catch (const Error&) {  // no Slurm on this machine
      answer.going = false;
    }
    answer.when = Clock::now();
  }
  return answer.going;
}

}  // namespace

std::vector<SweepOutcome> outcomes_in(const std::string& folder, const SweepMembers& members) {
  std::vector<SweepOutcome> out;
  for (const SweepMember& member : members.plan.members) {
    SweepOutcome outcome;
    outcome.state = member_state(folder, member, members.plan.varies_threads);
    const ClaimRecord claim = read_claim(claim_folder(folder, member));
    outcome.jobs = claim.jobs;
    if (outcome.state.progress == MemberProgress::failed) {
      outcome.error = outcome.state.error;
    } else if (outcome.state.progress != MemberProgress::done && !claim.held &&
               claim.call == members.call) {
      outcome.error = claim.error;
    }
    out.push_back(std::move(outcome));
  }
  return out;
}

void refresh_sweep(const std::string& folder) {
  try {
    const std::unique_ptr<SweepFolder> own = SweepFolder::open_if_free(folder);
    if (!own) return;
    const SweepMembers members = read_sweep_members(folder);
    const std::vector<SweepOutcome> outcomes = outcomes_in(folder, members);
    const auto is_left = [](const SweepOutcome& one) {
      return one.error.empty() && one.state.progress != MemberProgress::done;
    };
    const auto has_failed = [](const SweepOutcome& one) { return !one.error.empty(); };
    const std::string state = std::ranges::any_of(outcomes, is_left)      ? "RUNNING"
                              : std::ranges::any_of(outcomes, has_failed) ? "FAILED"
                                                                          : "DONE";
    const std::string job = read_slurm_note(folder).job;
    own->set_launcher(job.empty() ? "mpi" : "slurm", job);
    own->write(state, members.plan, outcomes);
  } catch (const Error&) {
    // A failure is ignored: the worker of the next member writes the table again, and only the run
    // folders matter.
  }
}

bool sweep_is_going(const std::string& folder) {
  const json state = json::parse(text_if_there(folder + "/sweep.state.json").value_or(""), nullptr,
                                 /*allow_exceptions=*/false);
  if (!state.is_object() || text_at(state, "state") != "RUNNING") return false;
  const json pid = state.value("pid", json());
  const std::string host = text_at(state, "host");
  const bool is_here = host.empty() || host == name_of_this_host();
  if (is_here && pid.is_number_integer() && (kill(pid.get<pid_t>(), 0) == 0 || errno != ESRCH)) {
    return true;
  }
  // The sweep may be in progress in three cases: a command elsewhere trains it, workers run without
  // a command, or a Slurm job array waits for nodes.
  if (is_claimed(folder + "/.sweep.claim")) return true;
  const std::string job = text_at(state, "job");
  return !job.empty() && is_in_slurm(job);
}

}  // namespace convscope
