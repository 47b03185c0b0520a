// SPDX-License-Identifier: Apache-2.0
// results.cpp: writes the results of a run: summary.json, layers.csv, report.html, and at the end
// the model file. Measures the inference of the final network, and checks `expect:` of the config.
#include <filesystem>

#include "experiments/report/html/run_page.h"
#include "experiments/report/weight_size.h"
#include "experiments/run_folder/files/own_file.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/process_group.h"
#include "layers/dispatch/check_results.h"
#include "optim/slow_weights.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

std::optional<double> when(bool there, double value) {
  return there ? std::optional<double>(value) : std::nullopt;
}

// During a run, returns the execution that the config asks for. After the run, returns the
// execution that the inference kernels show.
std::string execution_of(const Training& run) {
  const TrainingSetup& setup = run.setup;
  Arithmetic arithmetic = setup.quant ? setup.quant->arithmetic(run.state.step) : Arithmetic::f32;
  Form form = setup.form;
  if (run.inference) {
    const StepKernels& kernels = run.inference->kernels;
    if (arithmetic == Arithmetic::int8 && !kernels.any("int8")) arithmetic = Arithmetic::fake_quant;
    const bool in_training =
        arithmetic != Arithmetic::int8 && run.runner && run.runner->any_kernel("block_sparse");
    if (form == Form::sparse && !in_training && !kernels.any("block_sparse")) form = Form::masked;
  }
  return execution_text(arithmetic, form);
}

// Fails when the final network misses a gate. `what` is measured in `unit`.
void check_gate(const char* key, const char* what, const std::optional<double>& limit, double got,
                bool is_least, const char* unit, std::int64_t epoch) {
  if (!limit || (is_least ? got >= *limit : got <= *limit)) return;
  fail(ErrorKind::kRun, "expect",
       cat("expected a ", what, " of at ", is_least ? "least " : "most ", *limit, unit,
           " after epoch ", epoch, ", because the config says expect.", key, ", got ", got, unit,
           "; expect.", key, "=VALUE changes this limit, expect=null removes it"));
}

void check_expectations(const ExpectConfig& expect, const TrainingState& state) {
  const Evaluation& test = state.test;
  check_gate("test_acc_min", "test accuracy", expect.test_acc_min, test.accuracy, true, " %",
             state.epoch);
  check_gate("test_iou_min", "mean test IoU", expect.test_iou_min, test.mean_iou().value_or(0),
             true, " %", state.epoch);
  check_gate("test_loss_max", "test loss", expect.test_loss_max, test.loss, false, "", state.epoch);
}

class Results final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override {
    written_s_ = run_.state.run_s;
    // Readers find summary.json before the first epoch has ended.
    if (run_.state.step == 0) run_.folder.write("summary.json", to_json_text(run_.summary()));
  }

  // Writes results for readers of a running run, but less often if writing would take more than a
  // hundredth of the run's time. At the end of the run they are always written.
  void after_epoch() override {
    if (run_.goes_on() && run_.clock.seconds() - written_s_ >= 100 * writing_s_) return write();
    unwritten_summary_ = to_json_text(run_.summary());
  }

  void on_stop(const RunStatus& status) override {
    if (status.state != "FAILED") {
      if (run_.state.epoch < run_.setup.epochs && run_.stops_early()) {
        run_.say(cat("stopped early after epoch ", run_.state.epoch, " of ", run_.setup.epochs,
                     ": ", run_.setup.early_stop.metric, " was best after epoch ",
                     run_.state.waits_since_epoch));
      }
      write();
    } else if (!unwritten_summary_.empty()) {
      run_.folder.write("summary.json", unwritten_summary_);
    }
    if (status.state == "DONE") check_expectations(run_.setup.expect, run_.state);
  }

 private:
  void write() {
    const double begun = run_.clock.seconds();
    const bool ends = run_.state.epoch == run_.setup.epochs || run_.stops_early();
    if (ends && is_first_process()) measure();
    if (run_.runner) run_.runner->write_layers(run_.inference ? &run_.inference->kernels : nullptr);
    if (!run_.test_classes.matrix.empty()) {
      run_.folder.write("confusion.csv",
                        run_.test_classes.csv(run_.setup.test->dataset().class_names));
    }
    run_.folder.write("summary.json", to_json_text(run_.summary()));
    const std::string problem = is_first_process() ? write_run_page(run_.folder) : "";
    if (!problem.empty()) run_.folder.log(problem);
    unwritten_summary_.clear();
    written_s_ = run_.clock.seconds();
    writing_s_ = written_s_ - begun;
  }

  // Measures what is known only at the end of a run.
  void measure() {
    const AveragedWeights averages(run_.setup.averaged());
    write_model_file();
    if (!run_.weight_bytes) {
      const double bytes = weight_size(read_run(run_.folder.path())).stored_bytes;
      if (bytes > 0) run_.weight_bytes = bytes;
    }
    if (!run_.inference) measure_inference_once();
  }

  void write_model_file() const {
    TrainingSetup& setup = run_.setup;
    const std::int64_t steps = run_.state.step;
    const auto is_missing = [&](const char* name) {
      return !std::filesystem::exists(run_.folder.file(name));
    };
    if (setup.quant && setup.quant->has_begun(steps) && is_missing(kQuantizedModel)) {
      save_quantized_model(own_path(run_.folder.path(), kQuantizedModel), *setup.model, run_.state,
                           setup.config_yaml);
    }
    // A quantised model file already contains the masks, because pruned weights are stored as 0. So
    // a sparse model file is written only for a network without quantisers.
    if (setup.pruner && !setup.quant && setup.pruner->finished(steps) && is_missing(kSparseModel)) {
      save_sparse_model(own_path(run_.folder.path(), kSparseModel), *setup.model, run_.state,
                        setup.config_yaml);
    }
  }

  void measure_inference_once() {
    std::optional<Evaluator>& evaluator = run_.test ? run_.test : run_.val;
    if (!evaluator) return;
    const std::vector<CheckResult> compared = check_results();
    const double before = run_.clock.seconds();
    run_.inference = evaluator->time();
    run_.clock.leave_out(run_.clock.seconds() - before);  // because nothing was learned
    forget_check_results();                               // of the timed batches
    for (const CheckResult& one : compared) note_check(one);
    if (!run_.inference) return;
    const TrainingSetup& setup = run_.setup;
    if (setup.quant && setup.quant->has_begun(run_.state.step)) {
      const std::string why =
          why_not_on_integers(*setup.model, setup.device, run_.inference->kernels.any("int8"));
      if (!why.empty()) run_.say(why);
    }
    run_.add_event({{"time/inference_s", run_.inference->batch_s}});
  }

  std::string unwritten_summary_;  // of the last epoch, if its results were not due
  double writing_s_ = 0.01;        // time to write results; an estimate before the first time
  double written_s_ = 0;           // run time when they were written
};

}  // namespace

RunSummary Training::summary() const {
  RunSummary out = setup.facts;
  // A run that has only warm-up steps reports their times.
  const StepTotals& totals = state.run_steps.steps > 0 ? state.run_steps : state.warmup_steps;
  out.execution = execution_of(*this);
  out.id = folder.id();
  out.step = totals.way();
  out.avg_forward = totals.phase(totals.forward_s);
  out.avg_backward = totals.phase(totals.backward_s);
  out.avg_update = totals.phase(totals.update_s);
  out.avg_step = totals.mean(totals.busy_s());
  out.phases = totals.phases();
  out.avg_wait = totals.mean(totals.wait_s);
  out.avg_exchange = totals.mean(totals.exchange_s);
  if (inference) out.avg_inference = inference->batch_s;
  out.weight_bytes = weight_bytes;
  out.avg_forward_mem = totals.mean(totals.forward_bytes) / kMiB;
  out.avg_backward_mem = totals.mean(totals.backward_peak_bytes) / kMiB;
  out.peak_workspace = static_cast<double>(totals.workspace_peak_bytes) / kMiB;
  out.images_per_s = totals.images_per_s();
  out.timed_steps = totals.steps;
  out.acc = when(state.test.images > 0, state.test.accuracy);
  out.test_loss = when(state.test.images > 0, state.test.loss);
  out.test_top5 = when(state.test.top5 >= 0, state.test.top5);
  out.test_iou = state.test.mean_iou();
  for (std::size_t k = 0; k < state.test.class_iou.size(); ++k) {
    const std::vector<std::string>& names = setup.test->dataset().class_names;
    const double iou = state.test.class_iou[k];
    out.test_class_iou.emplace_back(k < names.size() ? names[k] : cat(k), when(iou >= 0, iou));
  }
  out.val_acc = when(state.val.images > 0, state.val.accuracy);
  out.val_loss = when(state.val.images > 0, state.val.loss);
  out.best_acc = when(state.best_accuracy >= 0, state.best_accuracy);
  out.best_epoch = state.best_epoch;
  out.best_split = setup.val ? "val" : "test";
  out.train_acc = state.last_epoch.accuracy();
  out.train_loss = state.last_epoch.loss();
  out.epochs = state.epoch;
  out.epochs_planned = setup.epochs;
  out.steps = state.step;
  out.seconds = state.run_s;
  out.system_allocations = state.epoch_allocations;
  out.cores_of_others = rounded_load(load.others());
  out.cores = cores_online();
  return out;
}

HookPointer result_hook(Training& run) { return std::make_unique<Results>(run); }

}  // namespace convscope
