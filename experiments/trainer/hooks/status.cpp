// SPDX-License-Identifier: Apache-2.0
// status.cpp: shows the progress of a run on the terminal and in status.json, and how it ended.
#include "experiments/report/html/run_page.h"
#include "experiments/run_folder/check_lines.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/process_group.h"

namespace convscope {
namespace {

constexpr double kHeartbeatSeconds = 10;

class Status final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override {
    run_.progress.start(run_.state.step, run_.setup.train->batches_per_epoch() * run_.setup.epochs);
    write({.state = "RUNNING"});
  }

  void after_step(const Step&) override {
    const TrainingState& state = run_.state;
    const double seconds = state.epoch_s;
    run_.progress.step(
        {.epoch = state.epoch,
         .epochs = run_.setup.epochs,
         .batch = state.batch,
         .batches = run_.setup.train->batches_per_epoch(),
         .loss = state.epoch_loss.loss(),
         .images_per_s = seconds > 0 ? static_cast<double>(state.epoch_loss.images) / seconds : 0});
    if (RunClock::now() - heartbeat_s_ > kHeartbeatSeconds) write({.state = "RUNNING"});
  }

  void after_epoch() override { write({.state = "RUNNING"}); }

  void on_stop(const RunStatus& status) override {
    const bool failed = status.state == "FAILED";  // the loop has logged the failure
    if (!failed) {
      for (const std::string& line : check_lines()) run_.say(line);
      run_.folder.log(cat(status.state == "DONE" ? "done" : "stopped",
                          status.reason.empty() ? "" : ": ", status.reason));
    }
    write(status);
    // Writes the page again, because it now includes the end of the run.
    const std::string problem = is_first_process() ? write_run_page(run_.folder) : "";
    if (problem.empty()) return;
    if (failed) return run_.folder.log(problem);
    run_.progress.line(cat("warning: ", problem));
    try {  // the earlier status stays true
      run_.folder.log(cat("warning: ", problem));
      RunStatus warned = status;
      warned.reason += cat(status.reason.empty() ? "" : "; ", problem);
      write(warned);
    } catch (const Error&) {
    }
  }

 private:
  void write(RunStatus status) {
    heartbeat_s_ = RunClock::now();
    status.epoch = run_.state.epoch;
    status.step = run_.state.step;
    run_.folder.set_status(status);
  }

  double heartbeat_s_ = 0;
};

}  // namespace

HookPointer status_hook(Training& run) { return std::make_unique<Status>(run); }

}  // namespace convscope
