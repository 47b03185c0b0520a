// SPDX-License-Identifier: Apache-2.0
// slurm_sweep.cpp: `convscope sweep CONFIG --launcher slurm`.
#include "experiments/sweep/cluster/slurm_sweep.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "experiments/run_folder/files/own_file.h"
#include "experiments/sweep/cluster/slurm_calls.h"
#include "experiments/sweep/cluster/slurm_script.h"
#include "experiments/sweep/cluster/surroundings.h"
#include "experiments/sweep/cluster/workers_view.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_ledger.h"
#include "experiments/sweep/sweep_members.h"
#include "experiments/trainer/signals.h"
#include "framework/check.h"
#include "framework/io/bytes.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr auto kPoll = std::chrono::milliseconds(200);
constexpr auto kAskSlurm = std::chrono::seconds(2);
constexpr auto kSilentSlurm = std::chrono::minutes(5);  // then a remark, once
constexpr int kTimesAgain = 3;                          // for tasks that Slurm has lost
constexpr auto kEnding = std::chrono::minutes(3);       // for members to write their checkpoints

std::string this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected to find this program in /proc/self/exe, got: ", error.message()));
  }
  return path.string();
}

// By default Slurm gives a member one core. Requests as many cores as the config has threads.
SlurmSettings settings_for(const SweepPlan& plan, const SweepOptions& options) {
  SlurmSettings out = plan.slurm;
  out.take(options.slurm);
  std::int64_t threads = 0;
  for (const SweepMember& member : plan.members) {
    threads = std::max(threads, member.config.threads);
  }
  if (out.of("cpus").empty() && threads > 1) out.set("cpus", std::to_string(threads));
  return out;
}

SlurmScript script_for(const SweepPlan& plan, const SweepOptions& options,
                       const std::vector<std::size_t>& queue, const std::string& call = "") {
  std::error_code error;
  return {.name = plan.name,
          .folder = absolute_path(options.root + "/" + plan.name),
          .start_folder = fs::current_path(error).string(),
          .program = this_program(),
          .queue = queue,
          .settings = settings_for(plan, options),
          .plugins = options.plugins,
          .call = call};
}

std::string new_call() {
  std::random_device random;
  return cat("c", static_cast<std::uint64_t>(random()), "-", static_cast<std::int64_t>(getpid()));
}

std::string without_threads(ExperimentConfig config) {
  config.threads = 0;
  return to_yaml(config);
}

// Throws if the running array has other members than this call.
void refuse_other_members(const std::string& folder, const std::string& job, const SweepPlan& plan,
                          const SweepMembers& theirs) {
  bool same = same_members(plan, theirs.plan);
  for (std::size_t i = 0; same && i < theirs.queue.size(); ++i) {
    const std::size_t at = theirs.queue[i];
    same =
        without_threads(plan.members[at].config) == without_threads(theirs.plan.members[at].config);
  }
  if (same) return;
  fail(ErrorKind::kInvalid, "sweep",
       cat("expected the members that job ", job, " of Slurm trains, because it works on ", folder,
           ", got others; wait for it, end it with `convscope sweep ", folder,
           " --cancel`, or choose another --name"));
}

class SlurmSweep {
 public:
  SlurmSweep(const SweepPlan& plan, const SweepOptions& options)
      : plan_(plan), options_(options), ledger_(plan, options) {}

  SweepResult run() {
    job_ = slurm_job_in(ledger_.path(), plan_.name);
    wait_for_cancelled();
    const bool attached = !job_.empty();
    SweepMembers members;
    if (attached) {
      ledger_.folder().set_launcher("slurm", job_);
      members = read_sweep_members(ledger_.path());
      refuse_other_members(ledger_.path(), job_, plan_, members);
    }
    ledger_.take_stock();
    const std::vector<std::size_t>& queue = ledger_.queue();
    if (queue.empty() && !attached) return ledger_.finish();
    if (!attached) {
      check_data(plan_, queue);
      const StopSignals signals;  // from here on the array must not be lost
      members = {plan_, new_call(), queue, ledger_.retried()};
      submit(members);
    } else {
      // A noted array may have been cancelled by another command.
      if (read_slurm_note(ledger_.path()).job != job_) {
        write_slurm_note(ledger_.path(), {.job = job_, .cancelled = false});
      }
    }
    ledger_.folder().set_launcher("slurm", job_);
    ledger_.write("RUNNING");
    ledger_.screen().line(cat(attached ? "follow" : "submit", " job ", job_,
                              " of Slurm: ", members.queue.size(),
                              members.queue.size() == 1 ? " member" : " members"));
    if (options_.detach) {
      ledger_.screen().line(cat("look   convscope sweep ", shell_word(ledger_.path()),
                                " --status; end it: --cancel"));
      return {0, {}};
    }
    const StopSignals signals;
    return wait(members);
  }

 private:
  // Waits until a cancelled job array has ended. The command cannot continue it; it has to submit a
  // new array.
  void wait_for_cancelled() {
    const SlurmNote note = read_slurm_note(ledger_.path());
    for (bool said = false; !job_.empty() && note.cancelled && note.job == job_; said = true) {
      if (!said) ledger_.screen().line(cat("wait   job ", job_, " is being cancelled"));
      std::this_thread::sleep_for(kPoll);
      job_ = slurm_job_in(ledger_.path(), plan_.name);
    }
  }

  void submit(const SweepMembers& members) {
    for (const std::size_t index : members.queue) {
      ledger_.folder().prepare(plan_.members[index]);
      refuse_link(cat(ledger_.path(), "/sweep.slurm-", index, ".log"));  // written by Slurm
    }
    write_sweep_members(ledger_.path(), members);
    job_ = submit_to_slurm(ledger_.path(),
                           slurm_script(script_for(plan_, options_, members.queue, members.call)));
    write_slurm_note(ledger_.path(), {.job = job_, .cancelled = false});
  }

  SweepResult wait(const SweepMembers& members) {
    WorkersView view(ledger_, members.call);
    for (int again = 0;; ++again) {
      if (!wait_for_array(view)) return stop(view);
      if (read_slurm_note(ledger_.path()).cancelled) return cancelled(view, SIGINT);
      view.settle();
      if (!begin_lost_ones_again(view, again < kTimesAgain)) return ledger_.finish();
    }
  }

  // Returns false after a signal.
  bool wait_for_array(WorkersView& view) {
    Clock::time_point asked{}, answered = Clock::now();
    while (true) {
      view.look();
      view.write();
      if (StopSignals::received() != 0) return false;
      if (Clock::now() - asked >= kAskSlurm) {
        asked = Clock::now();
        const auto tasks = slurm_tasks(job_);
        if (tasks) {
          answered = Clock::now();
          tell(*tasks);
          if (tasks->empty()) return true;
        } else if (Clock::now() - answered > kSilentSlurm) {
          answered = Clock::now();
          ledger_.screen().line("wait   Slurm does not answer; its jobs continue");
        }
      }
      if (ledger_.screen().due()) ledger_.screen().live(live());
      std::this_thread::sleep_for(kPoll);
    }
  }

  // Slurm queues the tasks of a lost node again, except tasks that it started on the node before it
  // noticed the loss, which end as NODE_FAIL. The members of such tasks are submitted once more.
  bool begin_lost_ones_again(WorkersView& view, bool may) {
    static const std::set<std::string> kLost = {"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "TIMEOUT"};
    const std::map<std::size_t, std::string> ends =
        view.left().empty() ? std::map<std::size_t, std::string>{} : slurm_ends(job_);
    const std::set<std::size_t> left = view.left();
    std::vector<std::size_t> again;
    for (const std::size_t member : left) {
      const auto end = ends.find(member);
      if (may && end != ends.end() && kLost.contains(end->second)) {
        again.push_back(member);
        continue;
      }
      view.give_up(member, cat("task ", job_, "_", member, " of Slurm ended too early",
                               end == ends.end() ? "" : ", as " + std::string(end->second),
                               " (sweep.slurm-", member, ".log); the same command resumes"));
    }
    if (again.empty()) return false;
    const SweepMembers members = {plan_, new_call(), again, ledger_.retried()};
    view.follow(members.call);
    submit(members);
    ledger_.folder().set_launcher("slurm", job_);
    ledger_.screen().line(
        cat("again  ", again.size(),
            again.size() == 1 ? " member whose node was lost" : " members whose nodes were lost",
            ": job ", job_, " of Slurm"));
    return true;
  }

  // Prints why tasks wait, unless they only wait for their turn.
  void tell(const std::map<std::size_t, SlurmTask>& tasks) {
    static const std::set<std::string> kHarmless = {"",         "None",       "Resources",
                                                    "Priority", "Dependency", "JobArrayTaskLimit"};
    int running = 0, waiting = 0;
    for (const auto& [number, task] : tasks) {
      (task.state == "PENDING" ? waiting : running)++;
      if (task.state != "PENDING" || kHarmless.contains(task.reason)) continue;
      if (!told_.insert(task.reason).second) continue;
      ledger_.screen().line(
          cat("wait   ", number < plan_.members.size() ? ledger_.label(number) : "a task",
              " is queued: ", task.reason,
              task.reason == "BeginTime" ? " (Slurm pauses before it begins a task again)" : ""));
    }
    ledger_.set_side_by_side(std::max(1, running));
    counts_ = cat(running, " running, ", waiting, " queued");
  }

  std::string live() {
    const std::string members = ledger_.live_text();
    return cat("       job ", job_, ": ", counts_, members.empty() ? "" : "; ",
               members.substr(std::min<std::size_t>(7, members.size())));
  }

  // SIGHUP and SIGPIPE: the terminal has gone, but the array may continue.
  SweepResult stop(WorkersView& view) {
    const int signal = StopSignals::received();
    if (signal == SIGHUP || signal == SIGPIPE) {
      return ledger_.leave(signal,
                           cat("left   job ", job_, " goes on; the same command follows it"));
    }
    ledger_.screen().line(cat("stop   signal ", signal, "; job ", job_,
                              " is cancelled, its members write their checkpoints"));
    write_slurm_note(ledger_.path(), {.job = job_, .cancelled = true});
    cancel_in_slurm(job_);
    const Clock::time_point end = Clock::now() + kEnding;
    while (Clock::now() < end) {
      const auto tasks = slurm_tasks(job_);
      if (tasks && tasks->empty()) break;
      std::this_thread::sleep_for(kPoll);
    }
    return cancelled(view, signal);
  }

  SweepResult cancelled(WorkersView& view, int signal) {
    view.look();
    for (const std::size_t member : view.left()) {
      ledger_.outcome(member).state = ledger_.look_at(member);
    }
    return ledger_.interrupt(signal,
                             cat("stopped; job ", job_, " is cancelled, the same command resumes"));
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  SweepLedger ledger_;
  std::string job_, counts_;
  std::set<std::string> told_;
};

}  // namespace

SweepResult run_slurm_sweep(const SweepPlan& plan, const SweepOptions& options) {
  for (const char* program : {"sbatch", "squeue", "scancel"}) ask_for_slurm(program);
  return SlurmSweep(plan, options).run();
}

std::string cancel_slurm_sweep(const std::string& folder) {
  const std::string name = fs::path(absolute_path(folder)).filename().string();
  const std::string job = slurm_job_in(
      folder, holds_sweep_members(folder) ? read_sweep_members(folder).plan.name : name);
  if (job.empty()) {
    fail(ErrorKind::kInvalid, "sweep",
         cat("expected a sweep that Slurm runs, got ", folder,
             ", which has no job in its queue; a command that trains members itself ends with "
             "Ctrl-C"));
  }
  write_slurm_note(folder, {.job = job, .cancelled = true});
  cancel_in_slurm(job);
  return job;
}

std::string slurm_script_of(const SweepPlan& plan, const SweepOptions& options) {
  std::vector<std::size_t> queue;
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    const MemberState state =
        member_state(options.root + "/" + plan.name, plan.members[i], plan.varies_threads);
    const bool settled = state.progress == MemberProgress::done ||
                         (state.progress == MemberProgress::failed && !options.retry_failed);
    if (!settled) queue.push_back(i);
  }
  return queue.empty() ? "" : slurm_script(script_for(plan, options, queue));
}

void refuse_array(const std::string& folder) {
  const SlurmNote note = read_slurm_note(folder);
  if (note.job.empty() || find_program("squeue").empty()) return;  // claims separate members
  const auto tasks = slurm_tasks(note.job);
  if (!tasks || tasks->empty()) return;
  if (slurm_job_in(folder, fs::path(absolute_path(folder)).filename().string()) != note.job) return;
  fail(ErrorKind::kInvalid, "sweep",
       cat("expected a sweep that no process works on, got ", folder, ", whose members job ",
           note.job,
           " of Slurm trains; follow it with --launcher slurm, or end it with `convscope sweep ",
           folder, " --cancel`"));
}

}  // namespace convscope
