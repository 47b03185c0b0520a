// SPDX-License-Identifier: Apache-2.0
// sweep_runner.cpp: trains the unfinished members of a sweep, each in a separate process, and
// continues where an earlier call stopped.
#include "experiments/sweep/sweep_runner.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "experiments/sweep/member_process.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_ledger.h"
#include "experiments/sweep/sweep_members.h"
#include "experiments/trainer/signals.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(10);
constexpr double kPatienceSeconds = 60;  // for a member left by an earlier, killed call

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Runner {
 public:
  Runner(const SweepPlan& plan, const SweepOptions& options)
      : plan_(plan), options_(options), ledger_(plan, options) {
    set_num_threads(0);
    cores_ = num_threads();
    ledger_.set_side_by_side(options.jobs);
  }

  SweepResult run() {
    refuse_array(ledger_.path());
    ledger_.take_stock();
    const std::vector<std::size_t>& queue = ledger_.queue();
    if (!queue.empty()) check_data(plan_, queue);
    // Signals are caught only from here on. Until now a signal ends the process at once, because
    // loading the data may take minutes and there is nothing to save.
    const StopSignals signals;
    write_sweep_members(ledger_.path(), {plan_, "local", queue, ledger_.retried()});
    ledger_.write("RUNNING");
    std::size_t next = 0;
    while (next < queue.size() || !active_.empty()) {
      if (StopSignals::received() != 0) return stop();
      while (next < queue.size() && active_.size() < static_cast<std::size_t>(options_.jobs)) {
        start(queue[next++]);
        if (StopSignals::received() != 0) return stop();
      }
      std::this_thread::sleep_for(kPoll);
      reap();
      if (ledger_.screen().due() && !active_.empty()) {
        ledger_.screen().live(ledger_.live_text());
      }
    }
    return ledger_.finish();
  }

 private:
  struct Active {
    std::size_t member;
    std::unique_ptr<Claim> claim;  // released when the process has ended
    std::unique_ptr<MemberProcess> process;
    Clock::time_point start;
  };

  std::int64_t threads_for(const ExperimentConfig& config) const {
    if (options_.jobs == 1) return config.threads;
    const std::int64_t wanted = config.threads == 0 ? cores_ : config.threads;
    return std::max<std::int64_t>(1, std::min<std::int64_t>(wanted, cores_ / options_.jobs));
  }

  void start(std::size_t index) {
    const SweepMember& member = plan_.members[index];
    SweepOutcome& outcome = ledger_.outcome(index);
    std::unique_ptr<Claim> claim = wait_until_free(index);
    if (!claim) return;
    const bool resume = outcome.state.progress == MemberProgress::partial;
    outcome.jobs = resume ? std::max(outcome.jobs, options_.jobs) : options_.jobs;
    outcome.error.clear();
    remove_stillborn_runs(ledger_.path(), member);
    const std::string path = ledger_.folder().prepare(member);
    ledger_.write("RUNNING");  // before it starts: the note must survive a kill
    const std::vector<std::string> words = member_words(
        ledger_.path(), member, resume ? outcome.state.run : "", threads_for(member.config));
    auto process = std::make_unique<MemberProcess>(words, path + ".log", claim->lock());
    active_.push_back({index, std::move(claim), std::move(process), Clock::now()});
    ledger_.started(index);
  }

  // Waits for the claim of a member: after a sweep was killed, its members need a moment to stop.
  // Returns null if the wait took too long, or after a signal.
  std::unique_ptr<Claim> wait_until_free(std::size_t index) {
    const SweepMember& member = plan_.members[index];
    SweepOutcome& outcome = ledger_.outcome(index);
    const std::string folder = claim_folder(ledger_.path(), member);
    const ClaimRecord self = {.host = name_of_this_host(),
                              .pid = static_cast<std::int64_t>(getpid()),
                              .jobs = options_.jobs};
    const Clock::time_point begin = Clock::now();
    for (bool said = false;; said = true) {
      std::unique_ptr<Claim> claim = watch_.try_take(folder, self);
      // A worker may have finished the member before it released the claim.
      if (claim || said) outcome.state = ledger_.look_at(index);
      const bool running = outcome.state.progress == MemberProgress::running;
      if (claim && !running) {
        if (outcome.state.progress != MemberProgress::done) return claim;
        ledger_.report_done(index, 0);
        return nullptr;
      }
      const ClaimRecord holder = read_claim(folder);
      const std::string worker =
          running ? cat("process ", outcome.state.pid, " on ", outcome.state.host, " works on ",
                        outcome.state.run)
                  : cat("process ", holder.pid, " on ", holder.host, " works on it");
      if (!said) ledger_.screen().line(cat("wait   ", ledger_.label(index), ": ", worker));
      if (StopSignals::received() != 0) return nullptr;
      const bool is_far = !claim && holder.held && !watch_.seen_alive(folder);
      if (seconds_since(begin) > (is_far ? 2 : 1) * kPatienceSeconds) {
        ledger_.report_failure(index, worker);
        return nullptr;
      }
      claim.reset();
      std::this_thread::sleep_for(10 * kPoll);
    }
  }

  void reap() {
    for (std::size_t i = 0; i < active_.size();) {
      if (active_[i].process->running()) {
        ++i;
        continue;
      }
      const Active ended = std::move(active_[i]);
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
      finish(ended);
    }
  }

  void finish(const Active& ended) {
    ledger_.stopped(ended.member);
    SweepOutcome& outcome = ledger_.outcome(ended.member);
    outcome.state = ledger_.look_at(ended.member);
    if (outcome.state.progress == MemberProgress::done) {
      // The duration includes the start of the program, because it is used to estimate the time of
      // the next members, which also have to start.
      ledger_.report_done(ended.member, seconds_since(ended.start));
    } else {
      const std::string failure = ended.process->failure();
      ledger_.report_failure(ended.member,
                             failure.empty() ? "it ended without a finished run" : failure);
    }
    ledger_.write("RUNNING");
  }

  // Each member that is being trained writes its checkpoint.
  SweepResult stop() {
    const int signal = StopSignals::received();
    ledger_.screen().line(cat("stop   signal ", signal, "; ", active_.size(),
                              active_.size() == 1 ? " member writes its checkpoint"
                                                  : " members write their checkpoints"));
    for (const Active& active : active_) active.process->send(signal);
    for (const Active& active : active_) {
      while (active.process->running()) std::this_thread::sleep_for(kPoll);
      ledger_.outcome(active.member).state = ledger_.look_at(active.member);
    }
    return ledger_.interrupt(signal, "stopped; the same command resumes");
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  SweepLedger ledger_;
  ClaimWatch watch_;
  std::vector<Active> active_;
  int cores_ = 1;
};

}  // namespace

SweepResult run_sweep(const SweepPlan& plan, const SweepOptions& options) {
  CONVSCOPE_CHECK(options.jobs == 1 || !plan.varies_threads, "sweep",
                  "expected --jobs 1, because this sweep is about the number of threads, got ",
                  options.jobs);
  return Runner(plan, options).run();
}

}  // namespace convscope
