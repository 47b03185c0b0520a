// SPDX-License-Identifier: Apache-2.0
// recorded_steps.h: trains and evaluates without the host. The compiled kernel calls of a step are
// recorded once in a CUDA graph (DeviceBackend::begin_recording). Each launch replays several
// steps.
//
//   training     next batch (next_batch.h) · forward · loss · backward · [division by the loss
//                scale] · clipping · update
//   evaluation   next batch · forward · loss
//   shared       training with several processes: each computes its share of a batch. The sums of
//                losses, running statistics and gradients over all processes are recorded too
//                (optim/gradient_exchange.h). Every process records the same sums.
//   accumulating gradient accumulation: next batch · forward · loss · backward for each micro-batch
//                of a step, then the rest of the step
//
// The data set is on the device (datasets/device_data.h), and so is everything that changes from
// step to step: the start of the batch, the scalars of the update rule, the step number for
// dropout. The host sends these values for a whole launch. It reads the losses of a launch only
// after it has queued the next launch, so the device never waits for the host.
//
// After a non-finite loss the weights keep their bits in all later steps, because the update checks
// the loss on the device. The host notices the loss when it reads the results of that launch.
//
// Usage   std::string why;
//         auto steps = RecordedSteps::make(model, &optimizer, clip_norm, loader, device, &why);
//         steps->start_epoch(epoch, first_batch, step);
//         while (steps->queue(rate) > 0 || steps->in_flight() > 0) { ... steps->collect() ... }
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "datasets/device_data.h"
#include "experiments/trainer/next_batch.h"
#include "layers/plan/batch_gather.h"
#include "layers/plan/step_plan.h"
#include "optim/device_update.h"
#include "optim/gradient_exchange.h"
#include "optim/loss_scale.h"

namespace convscope {

// Properties of a run that are known before the network is built. recording_obstacle() returns why
// they make it impossible to record steps, or "".
struct RecordingFacts {
  bool augments = false;          // images, on the host
  bool has_pixel_labels = false;  // a class for each pixel
  bool counts_labels = false;     // of the whole batch, for class weights of its parts
};
CONVSCOPE_API std::string recording_obstacle(const RecordingFacts& facts);

class CONVSCOPE_API RecordedSteps {
 public:
  // The largest number of steps per launch. A launch costs the host some ten microseconds. A signal
  // or a non-finite loss is noticed after two launches at the latest.
  static constexpr int kMaxSteps = 32;

  // Returns the recorded steps. Returns null when steps cannot be recorded in this or another
  // process; `why_not` then has the reason. `optimizer` is null for an evaluation. `after_update`
  // queues work after the update of each step, such as restoring pruned weights. `exchange` is set
  // if several processes share the batches; the loader's options name the share of this process.
  // `loss_scale` multiplies the gradient of the loss; null means no scaling. An epoch begins with
  // the state of `loss_scale`, and collect() updates this state to that after the last step of a
  // launch. `exchange` and `loss_scale` must outlive the result.
  static std::unique_ptr<RecordedSteps> make(Module& model, Optimizer* optimizer, double clip_norm,
                                             const Loader& loader, Device device,
                                             std::string* why_not,
                                             std::function<void()> after_update = {},
                                             GradientExchange* exchange = nullptr,
                                             LossScale* loss_scale = nullptr,
                                             const Loss& loss = Loss());
  ~RecordedSteps();
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  // Returns false when weights or an optimiser's tensors have moved in memory. The caller must then
  // make new RecordedSteps.
  bool is_current() const;
  // Begins an epoch; no launch may be in flight. `step` is the number of updates before the first
  // batch.
  void start_epoch(std::int64_t epoch, std::int64_t first_batch, std::int64_t step);

  // Queues the next steps of the epoch, all of one batch size, at most kMaxSteps and at most
  // `most`. Returns their number: 0 at the end of the epoch, or when two launches are in flight.
  // rate(step) is the learning rate; evaluation does not use it.
  int queue(const std::function<double(std::int64_t step)>& rate, int most = kMaxSteps);
  int in_flight() const { return in_flight_; }  // launches
  // Records per-layer times in these clocks; the next launch of full batches is then a single step.
  // All calls must pass the same clocks. The times can be read after collect() has returned this
  // launch.
  void watch(WorkClock* forward, WorkClock* backward) {
    forward_clock_ = forward;
    backward_clock_ = backward;
    watch_next_ = true;
  }

  // Results of one launch; valid until the next queue().
  struct Launch {
    std::int64_t first_step = 0;
    int steps = 0;
    std::int64_t images_per_step = 0;  // over all processes, like the outcomes
    double seconds = 0;                // device time
    const StepOutcome* outcomes = nullptr;
    bool watched = false;
  };
  // Waits for the oldest launch in flight and returns its results.
  Launch collect();

  // Returns the graph for a full batch, or for its first micro-batch.
  const StepPlan& plan() const { return *full_.front().plan; }
  std::int64_t data_bytes() const { return data_->bytes(); }
  // Returns a description of the recordings. By default, a recording lets adjacent kernels overlap
  // (programmatic dependent launch).
  std::string text() const;  // one line for the log

 private:
  // What this process computes at once: its share of a batch, or a micro-batch of this share.
  struct Chunk {
    std::int64_t first = 0;          // its first image in the batch
    std::int64_t batch = 0;          // its images
    std::shared_ptr<StepPlan> plan;  // null: no images. Chunks of equal size share graph and x.
    Tensor x;
  };
  // The recordings and tensors for one batch size.
  struct Form {
    std::int64_t whole = 0;  // images of a batch; 0: this batch size does not occur
    std::vector<Chunk> chunks;
    bool ran = false;                 // ran once unrecorded: kernels and libraries are loaded
    std::map<int, void*> recordings;  // by number of steps; 0: one timed step
    const Chunk& front() const { return chunks.front(); }
  };
  // Host memory of a launch in flight; there are several, so that the device never waits.
  struct Slot {
    LaunchStart* start = nullptr;     // pinned
    StepOutcome* outcomes = nullptr;  // pinned
    void *begin = nullptr, *end = nullptr;
    Launch launch;
  };
  static constexpr int kSlots = 3;

  RecordedSteps(Module& model, Optimizer* optimizer, double clip_norm, const Loader& loader,
                Device device, const Loss& loss);
  void scale_loss(LossScale& loss_scale);
  std::string prepare();  // "" or why the steps cannot be recorded
  bool plan_form(Form& form, std::int64_t whole, std::string* why_not);
  bool plan_chunk(Form& form, Chunk& chunk, std::string* why_not) const;
  template <class Body>
  void for_each_plan(const Body& body) const;
  void queue_calls(Form& form, int steps, bool watched) const;
  void queue_chunk(const Form& form, int step, const Chunk& chunk) const;
  bool joins_update(const Form& form, int step, const UpdateGate& gate,
                    DeviceLossScale* scale) const;
  void queue_shared_backward(const Form& form, const Chunk& chunk) const;
  std::int64_t parts_of(const Form& form) const;
  const float* loss_of(const Form& form) const;
  BatchGather batch_gather(const Form& form, int step) const;
  void next_batch(const Form& form, int step, const Chunk* chunk) const;
  void launch(Form& form, int steps, bool watched);

  Module& model_;
  Optimizer* optimizer_;
  double clip_norm_;
  const Loader& loader_;
  Device device_;
  Loss loss_;
  const DeviceBackend& backend_;
  std::unique_ptr<DeviceData> data_;
  std::unique_ptr<DeviceUpdate> update_;
  std::function<void()> after_update_;
  GradientExchange* exchange_ = nullptr;
  Tensor facts_;      // f32 [2]: loss and correct answers of all processes
  Form full_, last_;  // last_: the smaller batch at the end of an epoch, if there is one
  Tensor start_, outcomes_, halted_;
  LossScale* loss_scale_ = nullptr;
  Tensor device_scale_;  // DeviceLossScale, as bytes
  std::array<Slot, kSlots> slots_;
  int next_slot_ = 0, in_flight_ = 0;
  WorkClock *forward_clock_ = nullptr, *backward_clock_ = nullptr;
  bool watch_next_ = false;
  std::int64_t batch_ = 0, batches_ = 0, step_ = 0;
};

}  // namespace convscope
