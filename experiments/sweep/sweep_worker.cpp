// SPDX-License-Identifier: Apache-2.0
// sweep_worker.cpp: trains members of a prepared sweep.
#include "experiments/sweep/sweep_worker.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <thread>

#include "experiments/sweep/cluster/surroundings.h"
#include "experiments/sweep/member_process.h"
#include "experiments/sweep/member_state.h"
#include "experiments/sweep/sweep_members.h"
#include "experiments/sweep/sweep_refresh.h"
#include "experiments/sweep/sweep_screen.h"
#include "experiments/trainer/signals.h"
#include "framework/check.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(20);
constexpr auto kLookAgain = std::chrono::milliseconds(500);
// If a run on another host shows no sign of life, the run is taken over after two minutes. The
// claim of its member is taken over after one minute.
constexpr double kPatienceSeconds = 600;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Worker {
 public:
  explicit Worker(const WorkerOptions& options)
      : options_(options),
        members_(read_sweep_members(options.folder)),
        where_(worker_surroundings()),
        screen_(options.quiet),
        watch_(options.times) {
    if (!where_.call.empty() && where_.call != members_.call) {
      fail(ErrorKind::kInvalid, "sweep",
           cat("expected the members that this task was submitted for, got those of a later call "
               "in ",
               options.folder));
    }
    set_num_threads(0);
    cores_ = std::max(1, where_.cores > 0 ? std::min(where_.cores, num_threads())
                                          : num_threads() / where_.beside);
  }

  int train_one(std::size_t index) {
    if (index >= members_.plan.members.size()) {
      fail(ErrorKind::kInvalid, "sweep",
           cat("expected --member from 0 to ", members_.plan.members.size() - 1, ", got ", index));
    }
    const StopSignals signals;
    const Clock::time_point begin = Clock::now();
    while (true) {
      const Result result = try_member(index);
      if (stopped_by_ != 0) return 128 + stopped_by_;
      if (result == Result::busy) {
        if (StopSignals::received() != 0) return 128 + StopSignals::received();
        if (seconds_since(begin) > kPatienceSeconds) {
          say_failure(index, busy_text(index));
          return exit_code(ErrorKind::kRun);
        }
        std::this_thread::sleep_for(kLookAgain);
        continue;
      }
      refresh_sweep(options_.folder);
      return result == Result::failed ? exit_code(ErrorKind::kRun) : 0;
    }
  }

  int train_all() {
    const StopSignals signals;
    std::vector<std::size_t> left = members_.queue;
    while (!left.empty()) {
      bool any = false;
      std::erase_if(left, [&](std::size_t index) {
        if (stopped_by_ != 0 || StopSignals::received() != 0) return false;
        const bool settled = try_member(index) != Result::busy;
        any = any || settled;
        return settled;
      });
      if (stopped_by_ == 0) stopped_by_ = StopSignals::received();
      if (stopped_by_ != 0) return 128 + stopped_by_;
      if (!left.empty() && !any) std::this_thread::sleep_for(kLookAgain);
    }
    refresh_sweep(options_.folder);
    return 0;
  }

 private:
  enum class Result { done, failed, busy };

  const SweepMember& member(std::size_t index) const { return members_.plan.members[index]; }
  MemberState look_at(std::size_t index) const {
    return member_state(options_.folder, member(index), members_.plan.varies_threads);
  }

  std::string busy_text(std::size_t index) const {
    const ClaimRecord holder = read_claim(claim_folder(options_.folder, member(index)));
    return cat("process ", holder.pid, " on ", holder.host, " works on it");
  }

  void say_failure(std::size_t index, const std::string& sentence) {
    screen_.line(cat("failed ", label_of(member(index)), ": ", sentence));
  }

  bool is_settled(const MemberState& state) const {
    if (state.progress == MemberProgress::done) return true;
    return state.progress == MemberProgress::failed &&
           std::ranges::find(members_.retried, state.run) == members_.retried.end();
  }

  Result result_of(const MemberState& state) const {
    return state.progress == MemberProgress::done ? Result::done : Result::failed;
  }

  Result try_member(std::size_t index) {
    const std::string folder = claim_folder(options_.folder, member(index));
    const ClaimRecord before = read_claim(folder);
    // Another worker of this call has given up on the member. The reason may apply to this worker
    // as well.
    if (!options_.member && before.number > 0 && !before.held && !before.error.empty() &&
        before.call == members_.call) {
      return Result::failed;
    }
    const std::unique_ptr<Claim> claim =
        watch_.try_take(folder, {.host = name_of_this_host(),
                                 .pid = static_cast<std::int64_t>(getpid()),
                                 .call = members_.call,
                                 .task = where_.task,
                                 .jobs = where_.beside});
    if (!claim) return Result::busy;
    const MemberState state = look_at(index);
    if (is_settled(state)) return result_of(state);
    if (state.progress == MemberProgress::running) return Result::busy;  // its worker was killed
    return train(index, state, *claim);
  }

  std::int64_t threads_for(std::size_t index) const {
    const std::int64_t wanted = member(index).config.threads;
    if (members_.plan.varies_threads) return wanted;
    return wanted == 0 ? cores_ : std::min<std::int64_t>(wanted, cores_);
  }

  Result train(std::size_t index, const MemberState& before, Claim& claim) {
    const SweepMember& own = member(index);
    remove_stillborn_runs(options_.folder, own);
    const std::string run = before.progress == MemberProgress::partial ? before.run : "";
    screen_.line(cat("begin  ", label_of(own), run.empty() ? "" : " again", ", ", where_.task,
                     where_.task.empty() ? "" : ", ", threads_for(index), " threads"));
    MemberProcess process(member_words(options_.folder, own, run, threads_for(index)),
                          cat(options_.folder, "/", own.row, "/s", own.config.seed, ".log"),
                          claim.lock());
    bool sent = false;
    while (process.running()) {
      const int signal = StopSignals::received();
      if ((signal != 0 || claim.lost()) && !sent) {
        process.send(signal != 0 ? signal : SIGTERM);
        sent = true;
        stopped_by_ = signal;
      }
      std::this_thread::sleep_for(kPoll);
    }
    // Slurm sends a stop signal to the worker and to the member's process. The member may end
    // before the loop has seen the signal, so the worker asks once more.
    if (stopped_by_ == 0) stopped_by_ = StopSignals::received();
    const MemberState after = look_at(index);
    if (is_settled(after)) {
      stopped_by_ = 0;  // it finished before the signal; the next look finds the signal
      screen_.line(cat(after.progress == MemberProgress::done ? "done   " : "failed ",
                       label_of(own), after.error.empty() ? "" : ": ", after.error));
      if (result_of(after) == Result::failed) claim.give_up(after.error);
      return result_of(after);
    }
    if (claim.lost()) {
      say_failure(index,
                  "another worker has taken it over, because this worker gave no sign of life for "
                  "too long");
      return Result::busy;
    }
    if (stopped_by_ != 0) {
      stop(index, after.step > before.step, claim);
      return Result::failed;
    }
    const std::string failure = process.failure();
    const std::string sentence = failure.empty() ? "it ended without a finished run" : failure;
    say_failure(index, sentence);
    claim.give_up(sentence);
    return Result::failed;
  }

  // A signal was received, and the member has written its checkpoint.
  void stop(std::size_t index, bool moved, Claim& claim) {
    screen_.line(cat("stop   ", label_of(member(index)), ": signal ", stopped_by_,
                     "; its checkpoint is written"));
    if (!time_is_up()) return;  // cancelled, or killed by its user
    if (!moved) {
      const std::string sentence =
          "expected a time limit that allows at least one step and a checkpoint, because the "
          "member is queued again with the same limit, got none; raise --slurm time";
      say_failure(index, sentence);
      claim.give_up(sentence);
      return;
    }
    const std::string problem = queue_this_task_again();
    if (!problem.empty()) {
      const std::string sentence = cat("expected Slurm to queue it again, got: ", problem);
      say_failure(index, sentence);
      claim.give_up(sentence);
      return;
    }
    screen_.line(cat("queued ", label_of(member(index)), " again, to go on"));
  }

  const WorkerOptions& options_;
  const SweepMembers members_;
  const WorkerSurroundings where_;
  SweepScreen screen_;
  ClaimWatch watch_;
  int cores_ = 1, stopped_by_ = 0;
};

}  // namespace

int work_on_sweep(const WorkerOptions& options) {
  Worker worker(options);
  return options.member ? worker.train_one(*options.member) : worker.train_all();
}

}  // namespace convscope
