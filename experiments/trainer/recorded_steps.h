// SPDX-License-Identifier: Apache-2.0
// recorded_steps.h: steps that a device does by itself, several for each launch: the planned kernel
// calls of the whole step are recorded once (DeviceBackend::begin_recording; a CUDA graph) and then
// replayed.
//
//   training     next batch (next_batch.h) · forward · loss · backward · [division by the loss
//   scale]
//                · clipping · update
//   evaluation   next batch · forward · loss
//   shared     a training whose batches several processes share: each takes its part of a batch.
//              The sums of losses, running statistics and gradients over all processes are part of
//              the recording (optim/gradient_exchange.h). Every process records the same sums.
// The data set lies on the device (datasets/device_data.h), and so does everything that changes
// from step to step: where the batch begins, the learning rate, Adam's factors, the number of the
// step for dropout. The host sends those for a whole launch, and reads the losses of a launch after
// it has queued the next one, so the device never waits for it.
//
// After a loss that is not finite the weights keep their bits, in all steps to come: the update
// looks at the loss on the device. The host notices when it reads that launch.
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
#include "layers/plan/step_plan.h"
#include "optim/device_update.h"
#include "optim/gradient_exchange.h"
#include "optim/loss_scale.h"

namespace convscope {

// What may keep steps from being recorded, known before there is a network: "" or the reason.
struct RecordingFacts {
  bool augments = false;  // images, on the host
};
CONVSCOPE_API std::string recording_obstacle(const RecordingFacts& facts);

class CONVSCOPE_API RecordedSteps {
 public:
  // Steps of one launch. A launch costs the host some ten microseconds, once for all of them; and a
  // signal, or a loss that is not finite, is noticed after two launches at the latest.
  static constexpr int kMostSteps = 32;

  // after_update: queues what follows the update of each step, such as putting pruned weights back.
  // optimizer null: evaluation. exchange: of the processes that share the batches (which part is
  // this one's is among the loader's options); it outlives the steps; null: this process is alone.
  // loss_scale: what the gradient of the loss is multiplied by; an epoch begins with its state, and
  // it has that behind the last step of a launch when collect() returns; it outlives the steps;
  // null: nothing.
  // Null when the steps cannot be recorded, here or in another process; `why_not` says why.
  static std::unique_ptr<RecordedSteps> make(Module& model, Optimizer* optimizer, double clip_norm,
                                             const Loader& loader, Device device,
                                             std::string* why_not,
                                             std::function<void()> after_update = {},
                                             GradientExchange* exchange = nullptr,
                                             LossScale* loss_scale = nullptr);
  ~RecordedSteps();
  RecordedSteps(const RecordedSteps&) = delete;
  RecordedSteps& operator=(const RecordedSteps&) = delete;

  // False when weights have moved or an optimiser's tensors have: make new ones.
  bool is_current() const;
  // Nothing may be in flight. `step`: updates done before the first batch.
  void start_epoch(std::int64_t epoch, std::int64_t first_batch, std::int64_t step);

  // Queues the next steps of the epoch, at most kMostSteps and `most`, all of one batch size, and
  // says how many: 0 at the end of the epoch, or when two launches are in flight. rate(step) is the
  // learning rate; evaluation does not ask.
  int queue(const std::function<double(std::int64_t step)>& rate, int most = kMostSteps);
  int in_flight() const { return in_flight_; }  // launches
  // The next launch, when it is one of full batches, is of one step in which these clocks are told
  // who works when; they are the same in all calls. Read them after its collect().
  void watch(WorkClock* forward, WorkClock* backward) {
    forward_clock_ = forward;
    backward_clock_ = backward;
    watch_next_ = true;
  }

  // Of one launch; valid until the next queue().
  struct Launch {
    std::int64_t first_step = 0;
    int steps = 0;
    std::int64_t images_per_step = 0;  // of all processes, like the outcomes
    double seconds = 0;                // that the device took
    const StepOutcome* outcomes = nullptr;
    bool watched = false;
  };
  // Waits for the oldest launch in flight.
  Launch collect();

  const StepPlan& plan() const { return *full_.plan; }  // of a full batch
  std::int64_t data_bytes() const { return data_->bytes(); }
  // Overlap of neighbouring kernels in recordings (programmatic dependent launch) is on by default.
  std::string text() const;  // one line for the log

 private:
  // Steps of one batch size.
  struct Form {
    std::int64_t whole = 0;          // images of a batch; 0: there is no such form
    std::int64_t first = 0;          // of them, of this process
    std::int64_t batch = 0;          // images of this process
    std::unique_ptr<StepPlan> plan;  // null: it has none of them
    Tensor x;
    bool ran = false;                 // once without a recording: kernels and libraries are loaded
    std::map<int, void*> recordings;  // by number of steps; 0: one step that is watched
  };
  // What the host reads and writes while the device works; a few, so that it never waits for
  // itself.
  struct Slot {
    LaunchStart* start = nullptr;     // pinned
    StepOutcome* outcomes = nullptr;  // pinned
    void *begin = nullptr, *end = nullptr;
    Launch launch;
  };
  static constexpr int kSlots = 3;

  RecordedSteps(Module& model, Optimizer* optimizer, double clip_norm, const Loader& loader,
                Device device);
  void scale_loss(LossScale& loss_scale);
  std::string prepare();  // "" or why the steps cannot be recorded
  bool plan_form(Form& form, std::int64_t whole, std::string* why_not);
  void queue_calls(Form& form, int steps) const;
  bool joins_update(const Form& form, int step, const UpdateGate& gate,
                    DeviceLossScale* scale) const;
  void queue_shared_backward(const Form& form) const;
  const float* loss_of(const Form& form) const;
  BatchGather batch_gather(const Form& form, int step) const;
  void next_batch(const Form& form, int step, bool gathers) const;
  void launch(Form& form, int steps, bool watched);

  Module& model_;
  Optimizer* optimizer_;
  double clip_norm_;
  const Loader& loader_;
  Device device_;
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
