// SPDX-License-Identifier: Apache-2.0
// mpi_sweep.cpp: `convscope sweep CONFIG --launcher mpi`.
#include "experiments/sweep/cluster/mpi_sweep.h"

#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "experiments/launchers/outside_program.h"
#include "experiments/sweep/cluster/surroundings.h"
#include "experiments/sweep/cluster/workers_view.h"
#include "experiments/sweep/sweep_check.h"
#include "experiments/sweep/sweep_ledger.h"
#include "experiments/sweep/sweep_members.h"
#include "experiments/trainer/signals.h"
#include "framework/check.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(100);

class MpiSweep {
 public:
  MpiSweep(const SweepPlan& plan, const SweepOptions& options, Launcher mpirun)
      : plan_(plan), options_(options), mpirun_(std::move(mpirun)), ledger_(plan, options) {
    ledger_.folder().set_launcher("mpi", "");
    ledger_.set_side_by_side(options.jobs);
  }

  SweepResult run() {
    refuse_array(ledger_.path());
    ledger_.take_stock();
    const std::vector<std::size_t>& queue = ledger_.queue();
    if (queue.empty()) return ledger_.finish();
    check_data(plan_, queue);
    const StopSignals signals;
    std::random_device random;
    const SweepMembers members = {plan_, cat("m", static_cast<std::uint64_t>(random())), queue,
                                  ledger_.retried()};
    for (const std::size_t index : queue) ledger_.folder().prepare(plan_.members[index]);
    write_sweep_members(ledger_.path(), members);
    ledger_.write("RUNNING");
    WorkersView view(ledger_, members.call);
    OutsideProcess mpirun(mpirun_words(plan_, options_, mpirun_),
                          ledger_.path() + "/sweep.mpi.log");
    while (mpirun.running()) {
      view.look();
      view.write();
      if (StopSignals::received() != 0) return stop(mpirun, view);
      if (ledger_.screen().due()) ledger_.screen().live(ledger_.live_text());
      std::this_thread::sleep_for(kPoll);
    }
    if (StopSignals::received() != 0) return stop(mpirun, view);
    if (mpirun.exit_code() != 0) {
      ledger_.screen().line(cat("end    mpirun ended with exit code ", mpirun.exit_code(), ": ",
                                mpirun.last_words(), " (", ledger_.path(), "/sweep.mpi.log)"));
    }
    view.settle();
    const std::set<std::size_t> left = view.left();
    for (const std::size_t member : left) {
      view.give_up(member, "its worker ended too early (sweep.mpi.log); the same command resumes");
    }
    return ledger_.finish();
  }

 private:
  // mpirun ends the workers, and each worker asks its member to stop.
  SweepResult stop(OutsideProcess& mpirun, WorkersView& view) {
    const int signal = StopSignals::received();
    ledger_.screen().line(
        cat("stop   signal ", signal, "; the members at work write their checkpoints"));
    mpirun.send(SIGTERM);
    while (mpirun.running()) std::this_thread::sleep_for(kPoll);
    view.look();
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    for (const std::size_t member : view.left()) {
      do {
        ledger_.outcome(member).state = ledger_.look_at(member);
        if (ledger_.outcome(member).state.progress != MemberProgress::running) break;
        std::this_thread::sleep_for(kPoll);
      } while (std::chrono::steady_clock::now() < end);
    }
    return ledger_.interrupt(signal, "stopped; the same command resumes");
  }

  const SweepPlan& plan_;
  const SweepOptions& options_;
  Launcher mpirun_;
  SweepLedger ledger_;
};

}  // namespace

std::vector<std::string> mpirun_words(const SweepPlan& plan, const SweepOptions& options,
                                      const Launcher& mpirun) {
  std::error_code error;
  LaunchRequest request;
  if (options.jobs > 1 || !options.jobs_by_default) request.processes = options.jobs;
  if (!options.hosts.empty()) request.hosts = absolute_path(options.hosts);
  request.command = {fs::read_symlink("/proc/self/exe", error).string(), "sweep",
                     absolute_path(options.root + "/" + plan.name), "--work"};
  for (const std::string& plugin : options.plugins) {
    request.command.insert(request.command.end(), {"--plugin", plugin});
  }
  return launcher_words(mpirun, request);
}

SweepResult run_mpi_sweep(const SweepPlan& plan, const SweepOptions& options) {
  CONVSCOPE_CHECK(!plan.varies_threads, "sweep",
                  "expected --launcher local or slurm, because this sweep is about the number of "
                  "threads and workers share their cores, got mpi");
  if (find_program("mpirun").empty()) {
    fail(ErrorKind::kUnavailable, "sweep",
         "expected the program mpirun in $PATH, because it starts the workers, got none; install "
         "Open MPI or MPICH (Debian: openmpi-bin)");
  }
  let_root_launch();
  return MpiSweep(plan, options, find_launcher("mpirun")).run();
}

}  // namespace convscope
