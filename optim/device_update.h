// SPDX-License-Identifier: Apache-2.0
// device_update.h: an optimiser's steps on a device that runs ahead of the host: the update is
// recorded once, together with the forward and backward pass, and replayed many times. What changes
// from step to step (learning rate, Adam's corrections) lies in device memory and is sent there for
// several steps at once.
//
// The numbers are those of Optimizer::step(), and the state (momentum, counts) stays in the
// optimiser, so checkpoints and dynamic steps see one and the same state.
//
// Usage   DeviceUpdate update(*optimizer, device, 32);   // gradients have memory by now
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
  // Every parameter whose gradient has memory is updated in every step, so there must be no
  // parameter that a step leaves out. At most `most_steps` steps in one upload.
  DeviceUpdate(Optimizer& optimizer, Device device, int most_steps);
  ~DeviceUpdate();
  DeviceUpdate(const DeviceUpdate&) = delete;
  DeviceUpdate& operator=(const DeviceUpdate&) = delete;

  // False when a tensor has moved or a gradient has come: make a new one, and a new recording.
  bool is_current();
  // The learning rates of the next `steps` steps. Counts them as done in the optimiser. Queued:
  // what is replayed afterwards reads them. Allocates nothing.
  void upload(const double* rates, int steps);
  // Queues the update of step `step` of the upload. For recordings: allocates and waits for
  // nothing.
  // Weights and state keep their bits when the gate's loss is not finite, or when one of its words
  // is not 0.
  void launch(int step, const UpdateGate& gate = {}) const;
  // The same update for kernels that make the gradients and change the weights with them. Null
  // where it is none for such kernels: a parameter is not f32.
  std::unique_ptr<JoinedUpdate> joined(int step, const UpdateGate& gate = {}) const;
  // Queues the division of all gradients by the scale, before clip(); notes one that is not finite.
  void unscale(DeviceLossScale* scale) const;
  // Queues the scaling of all gradients to a joint norm of at most max_norm, before launch().
  void clip(double max_norm) const;
  // Norm before the last clip(); waits.
  double norm() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace convscope
