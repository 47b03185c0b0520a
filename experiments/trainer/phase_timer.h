// SPDX-License-Identifier: Apache-2.0
// phase_timer.h: measures the times of the phases of a step on the training device.
//
//   PhaseTimer timer(device);
//   timer.start();
//   ...            // forward
//   timer.lap();   // ends phase 0
//   ...            // backward
//   timer.lap();   // ends phase 1
//   timer.seconds(0), timer.seconds(1)
//
// Readings are marks (events) in the device's work queue (framework/device.h). The host continues
// after it has queued a mark, and seconds() waits for the mark. The CPU works synchronously, so a
// mark on the CPU is a clock reading.
#pragma once

#include <array>

#include "framework/device.h"

namespace convscope {

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

}  // namespace convscope
