// SPDX-License-Identifier: Apache-2.0
// workers_view.cpp: the progress of workers on other nodes, from the folder of the sweep.
#include "experiments/sweep/cluster/workers_view.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "experiments/sweep/sweep_members.h"

namespace convscope {
namespace {

constexpr auto kLastWords = std::chrono::seconds(3);
constexpr auto kBetweenLooks = std::chrono::milliseconds(300);

}  // namespace

WorkersView::WorkersView(SweepLedger& ledger, std::string call)
    : ledger_(ledger),
      call_(std::move(call)),
      left_(ledger.queue().begin(), ledger.queue().end()),
      seen_(ledger.plan().members.size()) {}

void WorkersView::read(std::size_t member, bool at_the_end) {
  const ClaimRecord claim =
      read_claim(claim_folder(ledger_.path(), ledger_.plan().members[member]));
  ClaimRecord& seen = seen_[member];
  const bool is_new = claim.number != seen.number || claim.held != seen.held;
  seen = claim;
  if (!is_new && !at_the_end) return;
  changed_ = true;
  SweepOutcome& outcome = ledger_.outcome(member);
  outcome.state = ledger_.look_at(member);
  if (claim.number > 0) outcome.jobs = std::max(outcome.jobs, claim.jobs);
  const MemberState& state = outcome.state;
  const bool was_retried =
      std::ranges::find(ledger_.retried(), state.run) != ledger_.retried().end();
  if (state.progress == MemberProgress::done) {
    ledger_.stopped(member);
    ledger_.report_done(member, state.summary ? state.summary->seconds : 0);
  } else if (state.progress == MemberProgress::failed && !was_retried) {
    ledger_.stopped(member);
    ledger_.report_failure(member, state.error);
  } else if (!claim.held && !claim.error.empty() && claim.call == call_) {
    ledger_.stopped(member);
    ledger_.report_failure(member, claim.error);
  } else {
    if (claim.held && claim.number > 0) {
      ledger_.started(member);
    } else {
      ledger_.stopped(member);
    }
    return;
  }
  left_.erase(member);
}

void WorkersView::look() {
  const std::vector<std::size_t> members(left_.begin(), left_.end());
  for (const std::size_t member : members) read(member, false);
}

void WorkersView::settle() {
  const auto end = std::chrono::steady_clock::now() + kLastWords;
  while (true) {
    const std::vector<std::size_t> members(left_.begin(), left_.end());
    for (const std::size_t member : members) read(member, true);
    if (left_.empty() || std::chrono::steady_clock::now() > end) break;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void WorkersView::give_up(std::size_t member, const std::string& sentence) {
  ledger_.stopped(member);
  ledger_.report_failure(member, sentence);
  left_.erase(member);
}

void WorkersView::write() {
  if (!changed_) return;
  ledger_.write("RUNNING");
  changed_ = false;
}

}  // namespace convscope
