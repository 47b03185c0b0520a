// SPDX-License-Identifier: Apache-2.0
// metrics.cpp: writes the rows of a run: metrics.jsonl, epochs.csv, the event file for TensorBoard,
// and the table on the terminal. Rows are formatted in a buffer on the stack: logging a step
// allocates nothing.
#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/files/kept_rows.h"
#include "experiments/trainer/trainer.h"
#include "framework/distributed/process_group.h"

namespace convscope {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// A line of text. Up to 500 characters need no memory from the system.
class Line {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  void add_cell(bool there, double value) { there ? add(",{:.9g}", value) : add(","); }
  void add_column(bool there, double value) { there ? add("  {:6.2f}", value) : add("       -"); }
  std::string_view text() const { return {text_.data(), text_.size()}; }

 private:
  fmt::memory_buffer text_;
};

class Metrics final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override {
    const TrainingState& state = run_.state;
    metrics_ = reopened("metrics.jsonl", state.metrics_bytes, [&](std::string_view row) {
      return place_of_metrics_row(row, state.epoch, state.step);
    });
    epochs_ = reopened("epochs.csv", state.epochs_bytes,
                       [&](std::string_view row) { return place_of_epoch_row(row, state.epoch); });
    if (run_.setup.tensorboard) {
      run_.events =
          std::make_unique<TensorboardLog>(run_.folder.file(kTensorboardFile), state.step);
    }
  }

  void after_step(const Step& step) override {
    TrainingState& state = run_.state;
    if (state.step % run_.setup.log_every != 0) return;
    const double loss = state.window_loss.loss(), accuracy = state.window_loss.accuracy();
    const double images_per_s = state.epoch_steps.images_per_s();
    Line line;
    begin_row(line, "train");
    line.add(",\"loss\":{:.9g},\"acc\":{:.6g},\"lr\":{:.9g},\"images_per_s\":{:.6g}}}\n", loss,
             accuracy, step.lr, images_per_s);
    metrics_->append(line.text());
    run_.add_event({{"loss/train", loss},
                    {"accuracy/train", accuracy},
                    {"learning_rate", step.lr},
                    {"speed/images_per_s", images_per_s}});
    state.window_loss = {};
  }

  bool evaluate() override {
    const TrainingState& state = run_.state;
    if (!run_.setup.evaluates_after(state.epoch + 1)) return true;
    if (run_.setup.val) write_evaluation("val", "loss/val", "accuracy/val", state.val);
    if (run_.setup.test) write_evaluation("test", "loss/test", "accuracy/test", state.test);
    return true;
  }

  void after_epoch() override {
    const bool evaluated = run_.setup.evaluates_after(run_.state.epoch);
    const bool has_val = evaluated && run_.setup.val != nullptr;
    const bool has_test = evaluated && run_.setup.test != nullptr;
    write_epoch(has_val, has_test);
    show_epoch(has_val, has_test);
  }

  // Files whose lengths the checkpoint stores must reach the disk before the checkpoint.
  void before_checkpoint() override {
    metrics_->flush_to_disk();
    epochs_->flush_to_disk();
    run_.state.metrics_bytes = metrics_->size_bytes();
    run_.state.epochs_bytes = epochs_->size_bytes();
  }

 private:
  // Opens a file that an earlier process may have begun, and keeps its rows up to the checkpoint.
  template <class PlaceOf>
  std::unique_ptr<AppendFile> reopened(const char* name, std::int64_t counted,
                                       const PlaceOf& place_of) const {
    const KeptRows kept = kept_rows(run_.folder.file(name), counted, place_of);
    if (!kept.as_counted && is_first_process()) {
      run_.say(cat("warning: ", name, " was changed since the checkpoint, which counts ", counted,
                   " bytes of it; its rows up to step ", run_.state.step, " are kept, ", kept.bytes,
                   " bytes"));
    }
    auto file = std::make_unique<AppendFile>(run_.folder.file(name), kept.bytes);
    if (kept.lacks_line_end) file->append("\n");
    return file;
  }

  // Returns whether the images have a class for each pixel. Then epochs.csv and the table on the
  // terminal have one more column.
  bool has_iou() const { return run_.setup.train->dataset().label_shape().rank() > 0; }

  void begin_row(Line& line, const char* split) const {
    line.add(R"({{"t":{:.3f},"step":{},"epoch":{},"split":"{}")", run_.clock.seconds(),
             run_.state.step, run_.state.epoch + 1, split);
  }

  void write_evaluation(const char* split, const char* loss, const char* accuracy,
                        const Evaluation& result) const {
    Line line;
    begin_row(line, split);
    line.add(",\"loss\":{:.9g},\"acc\":{:.6g}", result.loss, result.accuracy);
    if (result.top5 >= 0) line.add(",\"top5\":{:.6g}", result.top5);
    if (const auto iou = result.mean_iou()) line.add(",\"iou\":{:.6g}", *iou);
    line.add("}}\n");
    metrics_->append(line.text());
    run_.add_event({{loss, result.loss}, {accuracy, result.accuracy}});
    if (result.top5 >= 0) run_.add_event({{cat("accuracy_top5/", split), result.top5}});
    if (const auto iou = result.mean_iou()) run_.add_event({{cat("iou/", split), *iou}});
  }

  void write_epoch(bool has_val, bool has_test) const {
    if (epochs_->size_bytes() == 0) {
      epochs_->append(
          "epoch,step,lr,train_loss,train_acc,val_loss,val_acc,test_loss,test_acc,seconds,"
          "images_per_s,avg_forward,avg_backward,avg_update,avg_wait,avg_forward_mem,"
          "avg_backward_mem,peak_workspace,system_allocations,avg_step,phases");
      epochs_->append(has_iou() ? ",test_iou\n" : "\n");
    }
    const TrainingState& state = run_.state;
    const StepTotals& steps = run_.last_epoch_steps;
    const double forward_mib = steps.mean(steps.forward_bytes) / kMiB;
    const double backward_mib = steps.mean(steps.backward_peak_bytes) / kMiB;
    Line line;
    line.add("{},{},{:.9g},{:.9g},{:.6g}", state.epoch, state.step,
             run_.learning_rate(state.step - 1), state.last_epoch.loss(),
             state.last_epoch.accuracy());
    line.add_cell(has_val, state.val.loss);
    line.add_cell(has_val, state.val.accuracy);
    line.add_cell(has_test, state.test.loss);
    line.add_cell(has_test, state.test.accuracy);
    line.add(",{:.3f},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g}", run_.last_epoch_s, steps.images_per_s(),
             steps.phase(steps.forward_s), steps.phase(steps.backward_s),
             steps.phase(steps.update_s), steps.mean(steps.wait_s));
    line.add(",{:.6g},{:.6g},{:.6g},{},{:.6g},{}", forward_mib, backward_mib,
             static_cast<double>(steps.workspace_peak_bytes) / kMiB, state.epoch_allocations,
             steps.mean(steps.busy_s()), steps.phases());
    const std::optional<double> iou = state.test.mean_iou();
    if (has_iou()) line.add_cell(has_test && iou, iou.value_or(0));
    line.add("\n");
    epochs_->append(line.text());
    run_.add_event({{"time/epoch_s", run_.last_epoch_s},
                    {"time/forward_s", steps.phase(steps.forward_s)},
                    {"time/backward_s", steps.phase(steps.backward_s)},
                    {"memory/forward_mib", forward_mib},
                    {"memory/backward_mib", backward_mib}});
  }

  void show_epoch(bool has_val, bool has_test) const {
    const TrainingState& state = run_.state;
    if (state.epoch == 1 || run_.steps_in_process <= run_.setup.train->batches_per_epoch()) {
      run_.progress.line(cat("epoch      loss   train%    val%   test%",
                             has_iou() ? "    iou%" : "", "     img/s     time"));
    }
    Line line;
    line.add("{:3}/{:<3}  {:7.4f}  {:6.2f}", state.epoch, run_.setup.epochs,
             state.last_epoch.loss(), state.last_epoch.accuracy());
    line.add_column(has_val, state.val.accuracy);
    line.add_column(has_test, state.test.accuracy);
    const std::optional<double> iou = state.test.mean_iou();
    if (has_iou()) line.add_column(has_test && iou, iou.value_or(0));
    line.add("  {:8.0f}  {:>7}", run_.last_epoch_steps.images_per_s(),
             duration_text(run_.last_epoch_s));
    run_.progress.line(line.text());
    run_.folder.log(line.text());
  }

  std::unique_ptr<AppendFile> metrics_, epochs_;
};

}  // namespace

HookPointer metrics_hook(Training& run) { return std::make_unique<Metrics>(run); }

}  // namespace convscope
