// SPDX-License-Identifier: Apache-2.0
// lr_schedule.cpp: the learning rate as a pure function of the step, so resuming needs no state.
#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace convscope {

Registry<ScheduleType>& schedule_types() {
  static Registry<ScheduleType> table("schedule");
  return table;
}

double scheduled_rate(const std::string& type, const Options& options, double lr,
                      std::int64_t warmup_steps, const SchedulePoint& point) {
  CONVSCOPE_CHECK(point.step >= 0 && point.total_steps >= 1 && point.steps_per_epoch >= 1,
                  "schedule", "expected step >= 0, total_steps >= 1 and steps_per_epoch >= 1, got ",
                  point.step, ", ", point.total_steps, ", ", point.steps_per_epoch);
  CONVSCOPE_CHECK(warmup_steps >= 0, "schedule", "expected warmup_steps >= 0, got ", warmup_steps);
  const double rate = schedule_types().get(type).rate(options, lr, point);
  if (point.step >= warmup_steps) return rate;
  return rate * static_cast<double>(point.step + 1) / static_cast<double>(warmup_steps);
}

namespace {

// Returns half a cosine from `from` at 0 to `to` at 1: flat at both ends.
double half_cosine(double from, double to, double part) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * part));
}

double constant_rate(const Options&, double lr, const SchedulePoint&) { return lr; }

double step_rate(const Options& options, double lr, const SchedulePoint& point) {
  const std::int64_t epoch = point.step / point.steps_per_epoch;
  const std::int64_t drops = epoch / std::max<std::int64_t>(1, options.integer("every_epochs"));
  return lr * std::pow(options.number("gamma"), static_cast<double>(drops));
}

double cosine_rate(const Options& options, double lr, const SchedulePoint& point) {
  const double done = static_cast<double>(std::min(point.step, point.total_steps));
  return half_cosine(lr, options.number("min_lr"), done / static_cast<double>(point.total_steps));
}

double one_cycle_rate(const Options& options, double lr, const SchedulePoint& point) {
  const double first = lr / options.number("div_factor");
  const double last = first / options.number("final_div_factor");
  const double total = static_cast<double>(point.total_steps);
  const double end = total - 1;  // the last update has the last rate
  const double top = std::max(0.0, options.number("pct_start") * total - 1);
  const double step = std::min(static_cast<double>(point.step), end);
  if (step < top) return half_cosine(first, lr, step / top);
  return end <= top ? lr : half_cosine(lr, last, (step - top) / (end - top));
}

}  // namespace

CONVSCOPE_REGISTER_SCHEDULE(constant, {"the same rate in every step", {}, constant_rate})

CONVSCOPE_REGISTER_SCHEDULE(step, {"the rate drops by a factor after every so many epochs",
                                   {{.name = "every_epochs",
                                     .type = OptionType::integer,
                                     .default_value = std::int64_t{1},
                                     .doc = "epochs between two drops",
                                     .min = 1.0},
                                    {.name = "gamma",
                                     .type = OptionType::number,
                                     .default_value = 0.1,
                                     .doc = "factor of one drop, 0 to 1",
                                     .min = 0.0,
                                     .max = 1.0}},
                                   step_rate})

// Loshchilov, Hutter 2017, "SGDR: stochastic gradient descent with warm restarts", one cycle.
CONVSCOPE_REGISTER_SCHEDULE(cosine, {"half a cosine from lr down to min_lr over the whole run",
                                     {{.name = "min_lr",
                                       .type = OptionType::number,
                                       .default_value = 0.0,
                                       .doc = "learning rate at the end of the run",
                                       .min = 0.0}},
                                     cosine_rate})

// Smith, Topin 2018, "Super-convergence", arXiv 1708.07120; two half cosines, as in PyTorch.
CONVSCOPE_REGISTER_SCHEDULE(
    one_cycle, {"up from lr / div_factor to lr, then down, in half cosines over the whole run",
                {{.name = "pct_start",
                  .type = OptionType::number,
                  .default_value = 0.3,
                  .doc = "fraction of the run in which the rate rises, 0 to 1",
                  .min = 0.0,
                  .max = 1.0},
                 {.name = "div_factor",
                  .type = OptionType::number,
                  .default_value = 25.0,
                  .doc = "ratio of lr to the first rate, at least 1",
                  .min = 1.0},
                 {.name = "final_div_factor",
                  .type = OptionType::number,
                  .default_value = 1e4,
                  .doc = "ratio of the first rate to the last rate, at least 1",
                  .min = 1.0}},
                one_cycle_rate})

}  // namespace convscope
