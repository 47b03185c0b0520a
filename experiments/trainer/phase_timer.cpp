// SPDX-License-Identifier: Apache-2.0
// phase_timer.cpp: measures the times of the phases of a step on the training device.
#include "experiments/trainer/phase_timer.h"

#include "framework/check.h"

namespace convscope {

PhaseTimer::PhaseTimer(Device device) : device_(device), backend_(backend_of(device)) {
  for (void*& mark : marks_) mark = backend_.make_mark(device.index);
}

PhaseTimer::~PhaseTimer() {
  for (void* mark : marks_) backend_.free_mark(device_.index, mark);
}

void PhaseTimer::start() {
  readings_ = 0;
  lap();
}

void PhaseTimer::lap() {
  CONVSCOPE_CHECK(readings_ <= kMaxPhases, "phase_timer", "expected at most ", kMaxPhases,
                  " phases after start()");
  backend_.set_mark(device_.index, marks_[static_cast<std::size_t>(readings_++)]);
}

double PhaseTimer::seconds(int phase) const {
  CONVSCOPE_CHECK(phase >= 0 && phase + 1 < readings_, "phase_timer", "expected a phase below ",
                  readings_ - 1, ", got ", phase);
  const auto begin = static_cast<std::size_t>(phase);
  return 1e-3 * backend_.ms_between(device_.index, marks_[begin], marks_[begin + 1]);
}

}  // namespace convscope
