// SPDX-License-Identifier: Apache-2.0
// heavy_contender.cpp: an algorithm of a heavy layer that takes part in a benchmark: its arrays,
// its scratch memory, and whether its result is right.
#include "experiments/bench/heavy_contender.h"

#include <algorithm>
#include <chrono>

#include "framework/parallel.h"

namespace convscope {
namespace {

void set(Isa isa, int threads) {
  if (isa != current_isa()) set_isa(isa);
  if (threads != num_threads()) set_num_threads(threads);
}

double seconds_of_run(const BenchContender& one) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  one.run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Switched::Switched(const Switches& to) : isa_(current_isa()), threads_(num_threads()) {
  set(to.isa < 0 ? isa_ : static_cast<Isa>(to.isa), to.threads == 0 ? threads_ : to.threads);
}
Switched::~Switched() { set(isa_, threads_); }

BenchContender::~BenchContender() = default;

void BenchContender::run() const {
  queue();
  backend_of(device()).synchronize(device().index);
}

double BenchContender::check(const std::function<Judgement()>& judge) {
  double seconds = 0;
  try {
    poison();
    prepare();
    seconds = seconds_of_run(*this);
    const Judgement verdict = judge();
    error_ratio_ = verdict.error_ratio;
    wrong_ = verdict.wrong;
  } catch (const Error& error) {
    wrong_ = error.what();
  }
  return seconds;
}

// The first run is slow for reasons of its own, so a second one counts, unless it would take long.
// Of short runs the least of several: one that a page fault or another process made long would be
// timed in samples of few runs, which the readings of the clock make longer still.
TimedThing timed(const BenchContender& contender, double first_seconds) {
  double estimate = first_seconds;
  for (int i = 0; i < (first_seconds > 1e-3 ? 1 : 8) && first_seconds <= 1; ++i) {
    estimate = std::min(estimate, seconds_of_run(contender));
  }
  const auto on_cpu = [&contender] { contender.run(); };
  const auto on_device = [&contender] { contender.queue(); };
  return {.run = contender.device().type == DeviceType::cpu ? std::function<void()>(on_cpu)
                                                            : std::function<void()>(on_device),
          .estimate_seconds = estimate,
          .seconds = {}};
}

}  // namespace convscope
