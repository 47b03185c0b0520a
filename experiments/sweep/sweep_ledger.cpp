// SPDX-License-Identifier: Apache-2.0
// sweep_ledger.cpp: the state of each member of a sweep, for any launcher.
#include "experiments/sweep/sweep_ledger.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "experiments/trainer/progress.h"
#include "framework/check.h"

namespace convscope {
namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

SweepLedger::SweepLedger(const SweepPlan& plan, const SweepOptions& options)
    : plan_(plan),
      options_(options),
      screen_(options.quiet),
      folder_(options.root + "/" + plan.name, plan, options.overrides,
              [this](const std::string& text) { screen_.line(text); }),
      outcomes_(plan.members.size()),
      took_(plan.members.size()) {
  for (const SweepMember& member : plan.members) {
    width_ = std::max(width_, label_of(member).size());
  }
}

std::string SweepLedger::label(std::size_t member) const { return label_of(plan_.members[member]); }

MemberState SweepLedger::look_at(std::size_t member) const {
  return member_state(folder_.path(), plan_.members[member], plan_.varies_threads);
}

void SweepLedger::take_stock() {
  std::map<MemberProgress, int> counts;
  int failed_before = 0;
  for (std::size_t i = 0; i < plan_.members.size(); ++i) {
    SweepOutcome& outcome = outcomes_[i];
    outcome.state = look_at(i);
    const MemberProgress progress = outcome.state.progress;
    ++counts[progress];
    if (progress != MemberProgress::missing) outcome.jobs = folder_.jobs_before(plan_.members[i]);
    if (progress == MemberProgress::done) {
      ++finished_;
    } else if (progress == MemberProgress::failed && !options_.retry_failed) {
      outcome.error = outcome.state.error;
      ++finished_;
      ++failed_before;
    } else {
      if (progress == MemberProgress::failed) retried_.push_back(outcome.state.run);
      queue_.push_back(i);
    }
  }
  std::string text = cat("sweep  ", folder_.path(), ": ", plan_.members.size(), " members");
  const auto say = [&](int count, const char* what) {
    if (count > 0) text += cat(", ", count, what);
  };
  say(counts[MemberProgress::done], " done already");
  say(failed_before, " failed before (--retry-failed trains them again)");
  say(counts[MemberProgress::partial] + counts[MemberProgress::running], " to go on with");
  say(counts[MemberProgress::missing], " to train");
  screen_.line(text);
}

std::string SweepLedger::counter() {
  ++finished_;
  const std::string all = std::to_string(plan_.members.size());
  std::string number = std::to_string(finished_);
  number.insert(0, all.size() - std::min(all.size(), number.size()), ' ');
  return "[" + number + "/" + all + "] ";
}

void SweepLedger::report_done(std::size_t member, double seconds) {
  took_[member] = seconds;
  const std::optional<RunSummary>& summary = outcomes_[member].state.summary;
  std::string acc = "acc     -  ";
  if (summary && summary->acc) {
    char text[32];
    std::snprintf(text, sizeof text, "acc %5.2f %%", *summary->acc);
    acc = text;
  }
  screen_.line(counter() + padded(label(member), width_) + "  " + acc + "  " +
               duration_text(seconds) + "  left " + duration_text(seconds_left()));
}

void SweepLedger::report_failure(std::size_t member, const std::string& sentence) {
  outcomes_[member].error = sentence;
  screen_.line(counter() + padded(label(member), width_) + "  failed: " + sentence);
}

void SweepLedger::started(std::size_t member) { active_.try_emplace(member, Clock::now()); }
void SweepLedger::stopped(std::size_t member) { active_.erase(member); }

// The duration of a member is estimated by the duration of the same row with another seed, else by
// the mean of all finished members.
double SweepLedger::seconds_left() const {
  std::map<std::string, std::vector<double>> rows;
  std::vector<double> all;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    const MemberState& state = outcomes_[i].state;
    if (state.progress != MemberProgress::done || !state.summary) continue;
    const double seconds = std::max(state.summary->seconds, took_[i]);
    rows[plan_.members[i].row].push_back(seconds);
    all.push_back(seconds);
  }
  double left = 0;
  for (std::size_t index : queue_) {
    const SweepOutcome& outcome = outcomes_[index];
    if (outcome.state.progress == MemberProgress::done || !outcome.error.empty()) continue;
    const auto row = rows.find(plan_.members[index].row);
    double seconds = mean_std(row != rows.end() ? row->second : all).mean;
    const auto at_work = active_.find(index);
    if (at_work != active_.end()) {
      seconds -= std::chrono::duration<double>(Clock::now() - at_work->second).count();
    }
    left += std::max(0.0, seconds);
  }
  return left / std::max(1, side_by_side_);
}

std::string SweepLedger::live_text() const {
  std::string text;
  for (const auto& [index, start] : active_) {
    const SweepMember& member = plan_.members[index];
    const MemberState state = look_at(index);
    const std::int64_t epoch = state.summary ? state.summary->epochs : 0;
    text += cat(text.empty() ? "       " : "; ", label_of(member), " epoch ",
                std::min(epoch + 1, member.config.train.epochs), "/", member.config.train.epochs,
                " ", duration_text(std::chrono::duration<double>(Clock::now() - start).count()));
    if (text.size() > 400) break;  // wider than any terminal
  }
  return text;
}

SweepResult SweepLedger::finish() {
  const auto failed = std::count_if(outcomes_.begin(), outcomes_.end(),
                                    [](const SweepOutcome& one) { return !one.error.empty(); });
  write(failed > 0 ? "FAILED" : "DONE");
  screen_.line(cat(failed > 0 ? cat("failed ", failed, failed == 1 ? " member" : " members", "; ")
                              : std::string("done   "),
                   "table: ", folder_.path(), "/sweep.md, sweep.csv"));
  return {failed > 0 ? exit_code(ErrorKind::kRun) : 0, std::move(outcomes_)};
}

SweepResult SweepLedger::interrupt(int signal, const std::string& sentence) {
  write("INTERRUPTED");
  screen_.line(sentence);
  return {128 + signal, std::move(outcomes_)};
}

SweepResult SweepLedger::leave(int signal, const std::string& sentence) {
  write("RUNNING");
  screen_.line(sentence);
  return {128 + signal, std::move(outcomes_)};
}

}  // namespace convscope
