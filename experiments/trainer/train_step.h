// SPDX-License-Identifier: Apache-2.0
// train_step.h: one training step, with its times and memory.
//
//   forward   network and loss                        avg_forward, avg_forward_mem
//   backward  gradients of the loss                   avg_backward, avg_backward_mem
//   update    gradient clipping and the optimiser
// Times are measured between marks (events) in the device's work queue (PhaseTimer). Forward
// memory is the memory in use after the forward minus the memory before it: what the graph keeps
// for the backward. Backward memory is the peak number of bytes in use during the backward. Both
// are counted by the framework's allocator and contain tensors and workspace.
//
// A step is compiled when its shapes are first seen, and then replayed (plan/step_plan.h). Steps in
// which a quantiser calibrates or counts clipped values need the host and run as dynamic graphs. A
// compiled step holds one memory block all the time. Its forward memory is the part of the block
// that the forward keeps for the backward.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "datasets/loader.h"
#include "experiments/trainer/batch_feed.h"
#include "experiments/trainer/ranks/share.h"
#include "framework/device.h"
#include "layers/module.h"
#include "layers/plan/step_plan.h"
#include "optim/gradient_exchange.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"

namespace convscope {

struct StepResult {
  double loss = 0;  // mean over the batch; not finite: no update
  std::int64_t images = 0;
  std::int64_t labels_per_image = 1;  // the pixels of an image, if each has a class
  std::int64_t correct = 0;           // labels
  double forward_s = 0, backward_s = 0, update_s = 0;
  double whole_s = 0;                     // of a step without separate phases: then the three are 0
  std::int64_t forward_bytes = 0;         // kept by the forward
  std::int64_t backward_peak_bytes = 0;   // all memory in use, at its peak, without base_bytes
  std::int64_t workspace_peak_bytes = 0;  // peak over forward and backward
  bool skipped = false;                   // no update: a scaled gradient was not finite
  double exchange_s = 0;                  // part of the backward spent waiting for other processes
  int stop_signal = 0;                    // received by a process of the group, or 0
  bool planned = false;                   // compiled, run by the host: not dynamic or recorded
};

// Phases of a step, which are timed separately. In kReadPhase, between forward and backward, the
// host reads the loss.
enum StepPhase : int { kForwardPhase, kReadPhase, kBackwardPhase, kUpdatePhase };

// Measures the times of the phases of a step: start(), then lap() at the end of each phase.
// Readings are marks (events) in the device's work queue (framework/device.h). The host continues
// after it has queued a mark, and seconds() waits for the mark. The CPU works synchronously, so a
// mark on the CPU is a clock reading.
class CONVSCOPE_API PhaseTimer {
 public:
  static constexpr int kMaxPhases = 4;
  explicit PhaseTimer(Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  void start();
  void lap();
  double seconds(int phase) const;  // time of a phase that lap() has ended

 private:
  Device device_;
  const DeviceBackend& backend_;
  int readings_ = 0;
  std::array<void*, kMaxPhases + 1> marks_{};
};

class CONVSCOPE_API TrainStep {
 public:
  // Prepares steps. clip_norm: limit of the L2 norm of all gradients together; 0 = no clipping.
  // base_bytes: bytes of memory outside of steps, such as data sets, which are subtracted from the
  // backward's peak. plans: false runs every step as a dynamic graph.
  TrainStep(Module& model, Optimizer& optimizer, double clip_norm, Device device,
            std::int64_t base_bytes = 0, bool plans = true, const Loss& loss = Loss());
  // Multiplies the loss by `scale` before the backward pass (f16).
  void scale_loss(LossScale* scale) { loss_scale_ = scale; }
  // Shares each batch with other processes, or computes a batch in chunks. The loss and gradients
  // are those of the whole batch. `signal` returns the stop signal that this process has received,
  // or 0.
  void share(GradientExchange* exchange, const Share& share, int (*signal)()) {
    exchange_ = exchange;
    share_ = share;
    signal_ = signal;
  }
  // Makes the next run() record per-layer times in these clocks; later runs do not.
  void watch(WorkClock* forward, WorkClock* backward) {
    forward_clock_ = forward;
    backward_clock_ = backward;
  }
  // Runs one step. Allocates nothing from the system once its shapes have been seen.
  StepResult run(const Batch& batch, double lr);

  // Returns the compiled graph of the last step. Returns null for a dynamic graph; why_dynamic()
  // then has the reason.
  const StepPlan* plan() const { return plan_; }
  const std::string& why_dynamic() const { return why_dynamic_; }
  std::string text() const;  // one line for the log

 private:
  void count_labels(const Batch& batch);
  void choose_plan(const Shape& input);
  bool run_part(const Batch& batch, int chunk, StepResult& result);
  void queue_facts();
  void read_facts(StepResult& result);
  double forward(const Batch& batch, StepResult& result);
  void backward();
  void shared_backward(float weight, bool is_last, StepResult& result);
  void backward_of_graph();
  bool unscale(double lr);
  void send_scale();
  void update(double lr);

  Module& model_;
  Optimizer& optimizer_;
  double clip_norm_;
  Device device_;
  std::int64_t base_bytes_;
  std::vector<OptimParameter> parameters_;  // for clipping
  bool may_plan_;
  Loss loss_type_;
  std::vector<std::unique_ptr<StepPlan>> plans_;
  StepPlan* plan_ = nullptr;
  Variable loss_;  // loss of a dynamic step
  std::string why_dynamic_;
  LossScale* loss_scale_ = nullptr;
  Tensor scale_;                          // f64 [1], read by a compiled step
  GradientExchange* exchange_ = nullptr;  // null: a batch is computed as a whole
  Share share_;
  int (*signal_)() = nullptr;
  std::vector<double> facts_;  // losses by part, correct answers, signals
  ProcessGroup::Ticket facts_ticket_ = 0;
  WorkClock *forward_clock_ = nullptr, *backward_clock_ = nullptr;
  PhaseTimer timer_;
  BatchFeed feed_;
};

}  // namespace convscope
