// SPDX-License-Identifier: Apache-2.0
// lr_schedule.h: the learning rate as a pure function of the step, so resuming needs no state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/options.h"
#include "framework/registry.h"

namespace convscope {

struct SchedulePoint {
  std::int64_t step = 0;         // number of updates before this one
  std::int64_t total_steps = 1;  // of the whole run
  std::int64_t steps_per_epoch = 1;
};

struct ScheduleType {
  std::string doc;
  std::vector<OptionField> fields;
  // Returns the learning rate at a point of the schedule, for base rate `lr`.
  std::function<double(const Options&, double lr, const SchedulePoint&)> rate;
};
CONVSCOPE_API Registry<ScheduleType>& schedule_types();

// Returns the rate of schedule `type`, multiplied by (step + 1) / warmup_steps in the first
// `warmup_steps` updates: a linear rise to the full rate, without an update at rate 0.
CONVSCOPE_API double scheduled_rate(const std::string& type, const Options& options, double lr,
                                    std::int64_t warmup_steps, const SchedulePoint& point);

}  // namespace convscope

#define CONVSCOPE_REGISTER_SCHEDULE(name, ...)                         \
  namespace {                                                          \
  const bool registered_schedule_##name =                              \
      ::convscope::schedule_types().add(#name, __VA_ARGS__, __FILE__); \
  }
