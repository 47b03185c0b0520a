// SPDX-License-Identifier: Apache-2.0
// pruning.cpp: runs the pruner before and after each step, and writes sparsity.csv, with one row
// per layer whenever the masks change.
#include <algorithm>

#include "experiments/run_folder/append_file.h"
#include "experiments/trainer/trainer.h"

namespace convscope {
namespace {

class Pruning final : public Hook {
 public:
  using Hook::Hook;

  void on_start() override {
    if (!run_.setup.pruner) return;
    if (ProcessGroup* const group = run_.setup.share.group; group != nullptr) {
      run_.setup.pruner->use_gradients_of_all([this, group](const Tensor& gradient) {
        group->wait(group->queue_sum(gradient.data<float>(), gradient.numel(),
                                     static_cast<float>(own_weight_), SumOrder::any));
      });
    }
    const std::string path = run_.folder.file("sparsity.csv");
    const std::int64_t steps = run_.state.step;
    // A resumed run writes the rows of later steps again. A run that resumes without a checkpoint
    // starts from the beginning; it writes the rows of step 0 again, too.
    csv_ = std::make_unique<AppendFile>(path, steps == 0 ? 0 : bytes_until_step(path, steps));
    if (csv_->size_bytes() == 0) csv_->append(sparsity_csv_header());
  }

  bool needs_host(std::int64_t step, bool) const override {
    return run_.setup.pruner && run_.setup.pruner->step_needs_host(step);
  }

  void before_step() override {
    if (run_.setup.pruner && run_.setup.pruner->before_step(run_.state.step)) write();
  }

  void after_step(const Step& step) override {
    if (!run_.setup.pruner || step.recorded) return;
    const std::int64_t images = step.result.images;
    const std::int64_t rank = run_.setup.share.rank(), size = run_.setup.share.size();
    own_weight_ = static_cast<double>(first_of_part(images, rank + 1, size) -
                                      first_of_part(images, rank, size)) /
                  static_cast<double>(std::max<std::int64_t>(1, images));
    if (!run_.setup.pruner->after_step(run_.state.step)) return;
    write();
    if (run_.setup.form == Form::sparse) run_.runner->expect_other_kernels(/*also_log=*/false);
  }

 private:
  void write() {
    ++run_.mask_changes;
    const Pruner& pruner = *run_.setup.pruner;
    const std::int64_t steps = run_.state.step;
    const SparsityReport report = pruner.report(steps);
    csv_->append(sparsity_csv_rows(report));
    if (!pruner.finished(steps)) return;
    const std::string text = cat("masks are final after step ", steps, "\n", sparsity_text(report));
    run_.folder.log(text);
    run_.progress.line(text.substr(0, text.size() - 1));
  }

  std::unique_ptr<AppendFile> csv_;
  double own_weight_ = 1;  // this process's part of the last batch
};

}  // namespace

HookPointer pruning_hook(Training& run) { return std::make_unique<Pruning>(run); }

}  // namespace convscope
