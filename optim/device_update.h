// SPDX-License-Identifier: Apache-2.0
// device_update.h: an optimiser's steps on a device that runs ahead of the host: the update is
// recorded once, together with the forward and backward passes, and replayed many times. Values
// that change from step to step (the scalars of the update rule) are in device memory and are
// uploaded for several steps at once.
//
// Results have the same bits as Optimizer::step(). The state (momentum, counts) stays in the
// optimiser, so checkpoints and dynamic steps use the same state.
//
// Usage   DeviceUpdate update(*optimizer, device, 32);   // the gradients are allocated
//         backend.begin_recording(...);
//         for (int i = 0; i < 32; ++i) { plan.forward(); plan.backward(); update.launch(i); }
//         recording = backend.end_recording(...);
//         for each replay:  update.upload(rates, 32);  backend.replay(..., recording);
#pragma once

#include <cstdint>
#include <memory>

#include "framework/ops/update_rule.h"
#include "optim/optimizer.h"

namespace convscope {

struct DeviceLossScale;  // loss_scale.h

class CONVSCOPE_API DeviceUpdate {
 public:
  // Makes an update of every parameter whose gradient is allocated now. Every step updates all of
  // these parameters, so a step must not lack any of their gradients. An upload holds at most
  // `most_steps` steps.
  DeviceUpdate(Optimizer& optimizer, Device device, int most_steps);
  ~DeviceUpdate();
  DeviceUpdate(const DeviceUpdate&) = delete;
  DeviceUpdate& operator=(const DeviceUpdate&) = delete;

  // Returns false when a tensor has moved or a gradient was added. Then make and record a new
  // DeviceUpdate.
  bool is_current();
  // Queues the upload of the learning rates of the next `steps` steps, and counts these steps as
  // done in the optimiser. Later replays read the rates. Allocates nothing.
  void upload(const double* rates, int steps);
  // Queues the update of step `step` of the upload. The call may be recorded, because it neither
  // allocates nor waits. Weights and state do not change when the loss of `gate` is not finite, or
  // when one of the flags of `gate` is not 0.
  void launch(int step, const UpdateGate& gate = {}) const;
  // Returns the update of step `step` for kernels that compute gradients and update the weights at
  // once. Returns null when a parameter is not f32, because such kernels support f32 only, with
  // averages or Lookahead (slow_weights.h), and with Muon.
  std::unique_ptr<JoinedUpdate> joined(int step, const UpdateGate& gate = {}) const;
  // Queues the division of all gradients by the scale, before clip(). Sets scale->overflow when a
  // gradient is not finite.
  void unscale(DeviceLossScale* scale) const;
  // Queues the scaling of all gradients to a joint norm of at most max_norm, before launch().
  void clip(double max_norm) const;
  // Waits, and returns the joint norm before the last clip().
  double norm() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace convscope
