// SPDX-License-Identifier: Apache-2.0
// quantization.cpp: starts the quantisers at their step and writes quant.csv, with one row per
// quantiser when all are calibrated and at the end of each epoch.
#include "experiments/run_folder/append_file.h"
#include "experiments/trainer/compression/kept_weights.h"
#include "experiments/trainer/trainer.h"
#include "quant/quant_report.h"

namespace convscope {
namespace {

class Quantization final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override { on_new_network(); }

  void on_new_network() override {
    if (!run_.setup.quant) return;
    tensors_ = quantized_tensors(*run_.setup.model);
    begun_ = observing_ = false;
    count_kept(*run_.setup.model);
    // A resumed run writes the rows of later steps again.
    const std::string path = run_.folder.file("quant.csv");
    csv_ = std::make_unique<AppendFile>(path, bytes_until_step(path, run_.state.step));
    if (csv_->size_bytes() == 0) csv_->append(quant_csv_header());
  }

  // The host is needed when quantisation begins, a quantiser calibrates, or a quantiser counts
  // clipped values.
  bool needs_host(std::int64_t step, bool ends_epoch) const override {
    if (!run_.setup.quant || step < run_.setup.quant->begin_step) return false;
    return !begun_ || ends_epoch ||
           step <= run_.setup.quant->begin_step + run_.setup.quant->calibration_batches;
  }

  void before_step() override {
    if (!run_.setup.quant) return;
    count_changed_masks();
    const QuantPlan& plan = *run_.setup.quant;
    const std::int64_t step = run_.state.step;
    const bool is_first = step == plan.begin_step;
    if (!begun_ && step >= plan.begin_step) {
      begun_ = true;
      for (const QuantizedTensor& tensor : tensors_) tensor.quantizer->begin();
      if (is_first && step > 0) run_.folder.log(cat("quantisers begin after step ", step));
    }
    const bool ends_epoch = run_.state.batch + 1 == run_.setup.train->batches_per_epoch();
    const bool is_calibrated = step + 1 == plan.begin_step + plan.calibration_batches;
    const bool is_due = begun_ && (ends_epoch || is_calibrated);
    if (is_due != observing_) observe(is_due);
    if (!is_first) return;
    run_.runner->expect_other_kernels(/*also_log=*/true);
    run_.restart_averages();
  }

  void after_step(const Step&) override {
    if (!run_.setup.quant) return;
    count_changed_masks();
    if (!observing_) return;
    csv_->append(quant_csv_rows(tensors_, run_.state.step, run_.state.epoch + 1));
    // Stop counting clipped values at once. While a quantiser counts, the network cannot be
    // compiled and its steps cannot be recorded.
    observe(false);
  }

 private:
  void count_changed_masks() {
    if (std::exchange(counted_changes_, run_.mask_changes) != run_.mask_changes) {
      count_kept(*run_.setup.model);
    }
  }
  void observe(bool on) {
    observing_ = on;
    for (const QuantizedTensor& tensor : tensors_) tensor.quantizer->observe(on);
  }

  std::vector<QuantizedTensor> tensors_;
  std::unique_ptr<AppendFile> csv_;
  std::int64_t counted_changes_ = 0;  // of the masks
  bool begun_ = false;
  bool observing_ = false;  // a row is due after this step
};

}  // namespace

HookPointer quantization_hook(Training& run) { return std::make_unique<Quantization>(run); }

}  // namespace convscope
