// SPDX-License-Identifier: Apache-2.0
// checkpoint_fields_test.cpp: tests that a checkpoint restores every number of a run's progress.
#include <vector>

#include "experiments/trainer/checkpoint.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

// Calls f(field) for every number of the struct except Evaluation::complete, which is not saved,
// and those of Evaluation::class_iou.
template <class F>
void each_field(TrainingState& s, F&& f) {
  for (std::int64_t* field :
       {&s.epoch, &s.batch, &s.step, &s.epoch_allocations, &s.best_epoch, &s.waited_evaluations,
        &s.waits_since_epoch, &s.metrics_bytes, &s.epochs_bytes, &s.alarm.window_steps,
        &s.loss_scale.good_steps, &s.loss_scale.skipped}) {
    f(*field);
  }
  for (double* field : {&s.epoch_s, &s.run_s, &s.best_accuracy, &s.waits_for, &s.alarm.window_sum,
                        &s.loss_scale.scale}) {
    f(*field);
  }
  for (LossTotals* t : {&s.epoch_loss, &s.last_epoch, &s.window_loss}) {
    f(t->loss_sum), f(t->images), f(t->correct), f(t->labels_per_image);
  }
  for (StepTotals* t : {&s.epoch_steps, &s.run_steps, &s.warmup_steps}) {
    f(t->steps), f(t->images), f(t->whole_steps), f(t->planned_steps), f(t->forward_s);
    f(t->backward_s), f(t->update_s), f(t->whole_s), f(t->wait_s), f(t->forward_bytes);
    f(t->exchange_s), f(t->backward_peak_bytes), f(t->workspace_peak_bytes);
  }
  for (Evaluation* e : {&s.val, &s.test}) f(e->loss), f(e->accuracy), f(e->images), f(e->top5);
  f(s.alarm.warned);
}

TEST(CheckpointFields, AllComeBack) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/last.safetensors";
  TrainingSetup setup = small_setup(1);
  TrainingState saved;
  double next = 0;
  each_field(saved, [&]<class T>(T& field) {
    ++next;
    field = std::is_floating_point_v<T> ? static_cast<T>(next + 0.25) : static_cast<T>(next);
  });
  // Each field of the struct takes eight bytes; a flag is padded to eight. If the number of fields
  // does not match the size of the struct, each_field() lacks a new field.
  const double flags_not_saved = 2, vectors = 2 * sizeof(std::vector<double>) / 8.0;
  ASSERT_EQ(next + flags_not_saved + vectors, sizeof(TrainingState) / 8.0);
  saved.val.class_iou = {1.5, -1};
  saved.test.class_iou = {2.5, 3.25, 100};
  save_checkpoint(path, *setup.model, setup.optimizer.get(), saved, "name: small\n");
  TrainingState back = load_checkpoint(path, *setup.model, setup.optimizer.get());
  std::vector<double> before, after;
  each_field(saved, [&](auto& field) { before.push_back(static_cast<double>(field)); });
  each_field(back, [&](auto& field) { after.push_back(static_cast<double>(field)); });
  EXPECT_EQ(before, after);
  EXPECT_EQ(back.val.class_iou, saved.val.class_iou);
  EXPECT_EQ(back.test.class_iou, saved.test.class_iou);
}

TEST(CheckpointFields, BuffersAndTheOptimisersStateComeBack) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/last.safetensors";
  const char* const yaml =
      "name: small\ndata: {set: synthetic_digits, train_size: 64, test_size: 16, batch_size: 16}\n"
      "layers: [{type: conv2d, out_channels: 2, kernel_size: 3}, {type: batch_norm2d},"
      " {type: flatten}, {type: linear, out_features: 10}]\ntrain: {epochs: 1}\n";
  TrainingSetup setup = setup_training(parse_config_text(yaml, "small.yaml"));
  float next = 1;
  const auto fill = [&](const Tensor& tensor) {
    for (std::int64_t i = 0; i < tensor.numel() && tensor.dtype() == DType::f32; ++i) {
      tensor.data<float>()[i] = next++;
    }
  };
  for (const NamedTensor& buffer : setup.model->buffers()) fill(buffer.tensor);
  for (const OptimState& entry : setup.optimizer->state()) fill(entry.tensor);
  ASSERT_GT(next, 100.0f);  // there are running means, and momenta
  save_checkpoint(path, *setup.model, setup.optimizer.get(), {}, yaml);
  TrainingSetup other = setup_training(parse_config_text(yaml, "small.yaml"));
  load_checkpoint(path, *other.model, other.optimizer.get());
  next = 1;
  const auto expect = [&](const std::string& name, const Tensor& tensor) {
    for (std::int64_t i = 0; i < tensor.numel() && tensor.dtype() == DType::f32; ++i) {
      ASSERT_EQ(tensor.data<float>()[i], next++) << name;
    }
  };
  for (const NamedTensor& buffer : other.model->buffers()) expect(buffer.name, buffer.tensor);
  for (const OptimState& entry : other.optimizer->state()) expect(entry.name, entry.tensor);
}

}  // namespace
}  // namespace convscope::testing
