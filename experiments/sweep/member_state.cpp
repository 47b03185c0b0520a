// SPDX-License-Identifier: Apache-2.0
// member_state.cpp: the progress of a member of a sweep, read from its run folders.
#include "experiments/sweep/member_state.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "experiments/run_folder/run_search.h"
#include "experiments/run_folder/stillborn.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

std::string identity(ExperimentConfig config, bool threads_matter) {
  if (!threads_matter) config.threads = 0;
  return to_yaml(config);
}

bool has_config(const std::string& run, const std::string& wanted, bool threads_matter) {
  try {
    return identity(load_config(run + "/config.yaml"), threads_matter) == wanted;
  } catch (const Error&) {  // of another version, or damaged
    return false;
  }
}

std::optional<RunSummary> summary_of(const std::string& run) {
  const std::optional<std::string> text = text_if_there(run + "/summary.json");
  if (!text) return std::nullopt;
  try {
    return parse_summary(*text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

MemberState state_of_run(const std::string& run) {
  MemberState state;
  const RunStatus status = read_run_status(run, /*exactly=*/true);
  state.run = run;
  state.pid = status.pid;
  state.host = status.host;
  state.epoch = status.epoch;
  state.step = status.step;
  state.summary = summary_of(run);
  if (status.state == "DONE") {
    state.progress = MemberProgress::done;
  } else if (status.state == "RUNNING") {
    state.progress = MemberProgress::running;
  } else if (status.state == "FAILED" && status.exit_code == exit_code(ErrorKind::kRun)) {
    state.progress = MemberProgress::failed;
    state.error = status.reason;
  } else {
    state.progress = MemberProgress::partial;
    state.error = status.reason;
  }
  return state;
}

// Several runs of a member may exist. Their names contain times of different hosts, so the newest
// run cannot be told from the names, and the run with the most progress is chosen. A failed run
// ranks lowest, because it was followed by another run.
int rank_of(MemberProgress progress) {
  switch (progress) {
    case MemberProgress::missing:
      return 0;
    case MemberProgress::failed:
      return 1;
    case MemberProgress::partial:
      return 2;
    case MemberProgress::running:
      return 3;
    case MemberProgress::done:
      break;
  }
  return 4;
}

}  // namespace

std::string_view name_of(MemberProgress progress) {
  switch (progress) {
    case MemberProgress::missing:
      return "missing";
    case MemberProgress::partial:
      return "partial";
    case MemberProgress::running:
      return "running";
    case MemberProgress::failed:
      return "failed";
    case MemberProgress::done:
      break;
  }
  return "done";
}

std::string label_of(const SweepMember& member) {
  return cat(member.row, " seed ", member.config.seed);
}

MemberState member_state(const std::string& folder, const SweepMember& member,
                         bool threads_matter) {
  const std::string wanted = identity(member.config, threads_matter);
  MemberState best;
  for (const std::string& run : find_runs(folder + "/" + member.row)) {  // the newest last
    if (is_stillborn(run) || !has_config(run, wanted, threads_matter)) continue;
    MemberState state = state_of_run(run);
    if (rank_of(state.progress) >= rank_of(best.progress)) best = std::move(state);
  }
  return best;
}

void remove_stillborn_runs(const std::string& folder, const SweepMember& member) {
  std::error_code error;
  const std::string seed =
      cat("-s", member.config.seed);  // "2026-11-21_054156-s1", then maybe "-2"
  for (fs::directory_iterator it(folder + "/" + member.row, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    const std::size_t tail = name.find_last_not_of("0123456789");
    if (!name.ends_with(seed) && tail != std::string::npos && name[tail] == '-') name.resize(tail);
    std::error_code ignored;
    if (!name.ends_with(seed) || it->is_symlink(ignored) || !it->is_directory(ignored)) continue;
    if (is_stillborn(it->path().string())) fs::remove_all(it->path(), ignored);
  }
}

}  // namespace convscope
