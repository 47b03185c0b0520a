// SPDX-License-Identifier: Apache-2.0
// operator_contender.cpp: an algorithm in a benchmark, with its tensors and workspace, and the
// check of its result.
#include "experiments/bench/operator_contender.h"

#include <algorithm>
#include <chrono>
#include <random>

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

MovingInputs* BenchContender::moving(bool) { return nullptr; }

bool weights_may_move(const std::vector<std::unique_ptr<BenchContender>>& sharing) {
  return std::ranges::all_of(sharing, [](const auto& one) { return one->weights_may_move(); });
}

namespace {

// A check takes about as long as a few runs, so not every round is checked: only the first ones, a
// random eighth of the later ones, and the last one.
constexpr int kFirstLooks = 3, kOneIn = 8;

BetweenRuns between_runs_of(BenchContender& one, std::function<bool()> weights) {
  if (one.device().type != DeviceType::cpu) return {};
  const auto moved = [&one, weights = std::move(weights)]() -> MovingInputs* {
    return one.moving(weights && weights());
  };
  const auto look = [&one, moved, turn = 0](bool last) mutable {
    const bool now = turn++ < kFirstLooks || last || std::random_device()() % kOneIn == 0;
    if (!now || !one.wrong().empty()) return;
    MovingInputs* const inputs = moved();
    std::string wrong = inputs == nullptr ? "" : inputs->not_written();
    if (wrong.empty()) wrong = one.look();
    if (!wrong.empty()) one.refuse(cat("in the timed calls: ", wrong));
  };
  return {.turn =
              [moved] {
                if (MovingInputs* m = moved()) m->turn();
              },
          .sample =
              [moved] {
                if (MovingInputs* m = moved()) m->sample();
              },
          .run =
              [moved] {
                if (MovingInputs* m = moved()) m->run();
              },
          .after = look};
}

}  // namespace

// Estimates the time of a run. The first run includes one-time costs, so a second run is timed
// unless it would take long. For short runs the estimate is the shortest of several runs. A page
// fault can make a single run too long; with such an estimate, a sample would have too few runs for
// the clock. The output is poisoned before each run, so a contender cannot reuse it.
TimedThing timed(BenchContender& contender, double first_seconds, std::function<bool()> weights) {
  double estimate = first_seconds;
  for (int i = 0; i < (first_seconds > 1e-3 ? 1 : 8) && first_seconds <= 1; ++i) {
    contender.poison_output();
    estimate = std::min(estimate, seconds_of_run(contender));
  }
  const auto on_cpu = [&contender] { contender.run(); };
  const auto on_device = [&contender] { contender.queue(); };
  return {.run = contender.device().type == DeviceType::cpu ? std::function<void()>(on_cpu)
                                                            : std::function<void()>(on_device),
          .estimate_seconds = estimate,
          .seconds = {},
          .between = between_runs_of(contender, std::move(weights))};
}

}  // namespace convscope
