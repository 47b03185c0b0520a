// SPDX-License-Identifier: Apache-2.0
// trainer_files.cpp: the rows and files of a run. Rows are formatted in a buffer on the stack:
// logging a step allocates nothing.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "experiments/report/html/run_page.h"
#include "experiments/report/weight_size.h"
#include "experiments/run_folder/files/own_file.h"
#include "experiments/trainer/checkpoint.h"
#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/trainer.h"
#include "layers/dispatch/check_results.h"
#include "quant/quantize_network.h"

namespace convscope {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// A line of text of limited length.
class Line {
 public:
  void add(const char* text) { add("%s", text); }
  template <class... Args>
  void add(const char* format, Args... args) {
    const int written = std::snprintf(text_ + size_, sizeof text_ - size_, format, args...);
    if (written > 0) size_ = std::min(size_ + static_cast<std::size_t>(written), sizeof text_ - 1);
  }
  std::string_view text() const { return {text_, size_}; }

 private:
  char text_[1024];
  std::size_t size_ = 0;
};

// Adds an empty cell for a missing value.
void add_cell(Line& line, bool there, double value) {
  if (there) {
    line.add(",%.9g", value);
  } else {
    line.add(",");
  }
}

std::optional<double> when(bool there, double value) {
  return there ? std::optional<double>(value) : std::nullopt;
}

}  // namespace

void Trainer::write_train_row(double lr) {
  Line line;
  line.add("{\"t\":%.3f,\"step\":%lld,\"epoch\":%lld,\"split\":\"train\"", run_seconds(),
           static_cast<long long>(state_.step), static_cast<long long>(state_.epoch + 1));
  line.add(",\"loss\":%.9g,\"acc\":%.6g,\"lr\":%.9g,\"images_per_s\":%.6g}\n",
           state_.window_loss.loss(), state_.window_loss.accuracy(), lr,
           state_.epoch_steps.images_per_s());
  metrics_->append(line.text());
  if (tensorboard_) {
    tensorboard_->add(state_.step, {{"loss/train", state_.window_loss.loss()},
                                    {"accuracy/train", state_.window_loss.accuracy()},
                                    {"learning_rate", lr},
                                    {"speed/images_per_s", state_.epoch_steps.images_per_s()}});
  }
  state_.window_loss = {};
}

void Trainer::write_eval_row(const char* split, const Evaluation& result) {
  Line line;
  line.add("{\"t\":%.3f,\"step\":%lld,\"epoch\":%lld,\"split\":\"%s\"", run_seconds(),
           static_cast<long long>(state_.step), static_cast<long long>(state_.epoch + 1), split);
  line.add(",\"loss\":%.9g,\"acc\":%.6g}\n", result.loss, result.accuracy);
  metrics_->append(line.text());
  if (tensorboard_) {
    const bool val = std::string_view(split) == "val";
    tensorboard_->add(state_.step, {{val ? "loss/val" : "loss/test", result.loss},
                                    {val ? "accuracy/val" : "accuracy/test", result.accuracy}});
  }
}

void Trainer::write_epoch_row(bool evaluated) {
  if (epochs_->size_bytes() == 0) {
    epochs_->append(
        "epoch,step,lr,train_loss,train_acc,val_loss,val_acc,test_loss,test_acc,seconds,"
        "images_per_s,avg_forward,avg_backward,avg_update,avg_wait,avg_forward_mem,"
        "avg_backward_mem,peak_workspace,system_allocations,avg_step,phases\n");
  }
  const StepTotals& steps = state_.epoch_steps;
  const bool has_val = evaluated && setup_.val != nullptr;
  const bool has_test = evaluated && setup_.test != nullptr;
  Line line;
  line.add("%lld,%lld,%.9g,%.9g,%.6g", static_cast<long long>(state_.epoch),
           static_cast<long long>(state_.step), learning_rate(state_.step - 1),
           state_.last_epoch.loss(), state_.last_epoch.accuracy());
  add_cell(line, has_val, state_.val.loss);
  add_cell(line, has_val, state_.val.accuracy);
  add_cell(line, has_test, state_.test.loss);
  add_cell(line, has_test, state_.test.accuracy);
  line.add(",%.3f,%.6g,%.6g,%.6g,%.6g,%.6g", state_.epoch_s, steps.images_per_s(),
           steps.phase(steps.forward_s), steps.phase(steps.backward_s), steps.phase(steps.update_s),
           steps.mean(steps.wait_s));
  line.add(",%.6g,%.6g,%.6g,%lld", steps.mean(steps.forward_bytes) / kMiB,
           steps.mean(steps.backward_peak_bytes) / kMiB,
           static_cast<double>(steps.workspace_peak_bytes) / kMiB,
           static_cast<long long>(state_.epoch_allocations));
  line.add(",%.6g,%s\n", steps.mean(steps.busy_s()), steps.phases());
  epochs_->append(line.text());
  if (tensorboard_) {
    tensorboard_->add(state_.step,
                      {{"time/epoch_s", state_.epoch_s},
                       {"time/forward_s", steps.phase(steps.forward_s)},
                       {"time/backward_s", steps.phase(steps.backward_s)},
                       {"memory/forward_mib", steps.mean(steps.forward_bytes) / kMiB},
                       {"memory/backward_mib", steps.mean(steps.backward_peak_bytes) / kMiB}});
  }

  Line shown;
  if (state_.epoch == 1 || steps_in_process_ <= setup_.train->batches_per_epoch()) {
    progress_.line("epoch      loss   train%    val%   test%     img/s     time");
  }
  shown.add("%3lld/%-3lld  %7.4f  %6.2f", static_cast<long long>(state_.epoch),
            static_cast<long long>(setup_.epochs), state_.last_epoch.loss(),
            state_.last_epoch.accuracy());
  if (has_val) {
    shown.add("  %6.2f", state_.val.accuracy);
  } else {
    shown.add("       -");
  }
  if (has_test) {
    shown.add("  %6.2f", state_.test.accuracy);
  } else {
    shown.add("       -");
  }
  shown.add("  %8.0f  %7s", steps.images_per_s(), duration_text(state_.epoch_s).c_str());
  progress_.line(shown.text());
  folder_.log(shown.text());
}

// During a run, returns the execution that the config asks for. After the run, returns the
// execution that the inference kernels show.
std::string Trainer::execution() const {
  Arithmetic arithmetic = setup_.quant ? setup_.quant->arithmetic(state_.step) : Arithmetic::f32;
  Form form = setup_.form;
  if (inference_) {
    const StepKernels& kernels = inference_->kernels;
    if (arithmetic == Arithmetic::int8 && !kernels.any("int8")) arithmetic = Arithmetic::fake_quant;
    const bool in_training =
        arithmetic != Arithmetic::int8 && step_kernels_ && step_kernels_->any("block_sparse");
    if (form == Form::sparse && !in_training && !kernels.any("block_sparse")) form = Form::masked;
  }
  return execution_text(arithmetic, form);
}

RunSummary Trainer::summary() const {
  RunSummary out = setup_.facts;
  // A run that has only warm-up steps reports their times.
  const StepTotals& steps = state_.run_steps.steps > 0 ? state_.run_steps : state_.warmup_steps;
  out.execution = execution();
  out.id = folder_.id();
  out.step = steps.way();
  out.avg_forward = steps.phase(steps.forward_s);
  out.avg_backward = steps.phase(steps.backward_s);
  out.avg_update = steps.phase(steps.update_s);
  out.avg_step = steps.mean(steps.busy_s());
  out.phases = steps.phases();
  out.avg_wait = steps.mean(steps.wait_s);
  out.avg_exchange = steps.mean(steps.exchange_s);
  if (inference_) out.avg_inference = inference_->batch_s;
  out.weight_bytes = weight_bytes_;
  out.avg_forward_mem = steps.mean(steps.forward_bytes) / kMiB;
  out.avg_backward_mem = steps.mean(steps.backward_peak_bytes) / kMiB;
  out.peak_workspace = static_cast<double>(steps.workspace_peak_bytes) / kMiB;
  out.images_per_s = steps.images_per_s();
  out.timed_steps = steps.steps;
  out.acc = when(state_.test.images > 0, state_.test.accuracy);
  out.test_loss = when(state_.test.images > 0, state_.test.loss);
  out.val_acc = when(state_.val.images > 0, state_.val.accuracy);
  out.val_loss = when(state_.val.images > 0, state_.val.loss);
  out.best_acc = when(state_.best_accuracy >= 0, state_.best_accuracy);
  out.best_epoch = state_.best_epoch;
  out.best_split = setup_.val ? "val" : "test";
  out.train_acc = state_.last_epoch.accuracy();
  out.train_loss = state_.last_epoch.loss();
  out.epochs = state_.epoch;
  out.epochs_planned = setup_.epochs;
  out.steps = state_.step;
  out.seconds = state_.run_s;
  out.system_allocations = state_.epoch_allocations;
  out.cores_of_others = rounded_load(load_.others());
  out.cores = cores_online();
  return out;
}

// Measures what is known only at the end of a run: writes its model file, and measures the stored
// size of the weights and the time of an inference.
void Trainer::measure_result() {
  const std::string codes = folder_.file(kQuantizedModel);
  if (setup_.quant && setup_.quant->has_begun(state_.step) && !std::filesystem::exists(codes)) {
    save_quantized_model(own_path(folder_.path(), kQuantizedModel), *setup_.model, state_,
                         setup_.config_yaml);
  }
  // A quantised model file already contains the masks, because pruned weights are stored as 0. So a
  // sparse model file is written only for a network without quantisers.
  const std::string kept = folder_.file(kSparseModel);
  if (setup_.pruner && !setup_.quant && setup_.pruner->finished(state_.step) &&
      !std::filesystem::exists(kept)) {
    save_sparse_model(own_path(folder_.path(), kSparseModel), *setup_.model, state_,
                      setup_.config_yaml);
  }
  if (!weight_bytes_) {
    const double bytes = weight_size(read_run(folder_.path())).stored_bytes;
    if (bytes > 0) weight_bytes_ = bytes;
  }
  Loader* const images = setup_.test ? setup_.test.get() : setup_.val.get();
  if (inference_ || images == nullptr) return;
  std::unique_ptr<Evaluator>& evaluator = setup_.test ? test_ : val_;
  if (!evaluator) {
    evaluator = std::make_unique<Evaluator>(*setup_.model, *images, setup_.device, setup_.plan);
  }
  const std::vector<CheckResult> compared = check_results();
  const double before = run_seconds();
  inference_ = evaluator->time();
  start_s_ += run_seconds() - before;  // the run's clock is stopped, because nothing was learned
  forget_check_results();              // of the timed batches
  for (const CheckResult& one : compared) note_check(one);
  if (inference_ && setup_.quant && setup_.quant->has_begun(state_.step)) {
    const std::string why =
        why_not_on_integers(*setup_.model, setup_.device, inference_->kernels.any("int8"));
    if (!why.empty()) {
      progress_.line(why);
      folder_.log(why);
    }
  }
  if (tensorboard_ && inference_) {
    tensorboard_->add(state_.step, {{"time/inference_s", inference_->batch_s}});
  }
}

// Returns whether to write results after this epoch, for readers of a running run. The files are
// written less often if writing would take more than a hundredth of the run's time. At the end of
// the run they are always written.
bool Trainer::results_are_due() const {
  return run_seconds() - results_s_ >= 100 * results_took_s_;
}

void Trainer::write_results() {
  const double begun = run_seconds();
  const bool ends = state_.epoch == setup_.epochs || stops_early();
  if (ends && is_first_process()) measure_result();
  if (step_kernels_) {
    Shape input = {images_at_once(setup_.train->options().batch_size, setup_.share)};
    for (const std::int64_t size : setup_.train->dataset().sample_shape()) input.push_back(size);
    write_layers(layer_table(*setup_.model, input, *step_kernels_, layer_costs_.get(),
                             inference_ ? &inference_->kernels : nullptr));
  }
  folder_.write("summary.json", to_json_text(summary()));
  write_report();
  unwritten_summary_.clear();
  results_s_ = run_seconds();
  results_took_s_ = results_s_ - begun;
}

void Trainer::write_report() {
  if (!is_first_process()) return;
  const std::string problem = write_run_page(folder_);
  if (!problem.empty()) folder_.log(problem);
}

}  // namespace convscope
