// SPDX-License-Identifier: Apache-2.0
// phase_timer.h: how long the phases of a step take, on the device that works.
//
//   PhaseTimer timer(device);
//   timer.start();
//   ...            // forward
//   timer.lap();   // ends phase 0
//   ...            // backward
//   timer.lap();   // ends phase 1
//   timer.seconds(0), timer.seconds(1)
//
// Readings are marks in the device's queue of work (framework/device.h): the host goes on, and
// seconds() waits for the mark. The CPU works while it is told to, so there a mark is a moment.
#pragma once

#include <array>

#include "framework/device.h"

namespace convscope {

class CONVSCOPE_API PhaseTimer {
 public:
  static constexpr int kMostPhases = 4;
  explicit PhaseTimer(Device device);
  ~PhaseTimer();
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

  void start();
  void lap();
  double seconds(int phase) const;  // of a phase that lap() has ended

 private:
  Device device_;
  const DeviceBackend& backend_;
  int readings_ = 0;
  std::array<void*, kMostPhases + 1> marks_{};
};

}  // namespace convscope
