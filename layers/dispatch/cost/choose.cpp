// SPDX-License-Identifier: Apache-2.0
// choose.cpp: the choice among the schedules of one algorithm.
#include "layers/dispatch/cost/choose.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/cost/device_table.h"

namespace convscope {
namespace {

std::atomic<std::uint64_t> seed_now{0};

std::uint64_t mixed(std::uint64_t bits) {  // splitmix64
  bits += 0x9e3779b97f4a7c15;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

}  // namespace

CostModel::CostModel(const CostKey& key, const char* schedule, DeviceType device,
                     DType operand_type)
    : coefficients_(coefficients_of(key, schedule, device)),
      peaks_(machine_peaks(device)),
      device_(device),
      operand_type_(operand_type) {}

double CostModel::seconds(const Cost& cost) const {
  return estimated_seconds(seconds_of_schedule(cost, device_, peaks_, operand_type_),
                           coefficients_);
}

double ScheduleModels::seconds(const Cost& cost) {
  for (const auto& [schedule, model] : models_) {
    if (schedule == cost.schedule) return model.seconds(cost);
  }
  models_.emplace_back(cost.schedule, CostModel(key_, cost.schedule, device_, operand_type_));
  return models_.back().second.seconds(cost);
}

ExploreSchedules::ExploreSchedules(std::uint64_t seed) { seed_now = seed; }
ExploreSchedules::~ExploreSchedules() { seed_now = 0; }

std::uint64_t cost_state() {
  const auto isa = static_cast<std::uint64_t>(current_isa());
  return mixed(seed_now) + (device_table_changes() << 8) + isa;
}

std::uint64_t exploration_seed() { return seed_now; }

// A seed chooses evenly among the schedules up to some times the lowest estimate. An estimate that
// makes the chosen one hopeless takes its place, because the others were not kept.
bool ScheduleChoice::takes(double seconds) {
  ++offered_;
  const bool is_least = seconds < least_;
  if (is_least) least_ = seconds;
  if (seed_ == 0) return is_least;
  const double most = least_ * (seed_ % 3 == 0 ? 1.2 : 3);
  const std::uint64_t draw = mixed(mixed(seed_) + offered_);
  if (chosen_ <= most && (seconds > most || draw >= draw_)) return false;
  chosen_ = seconds;
  draw_ = draw;
  return true;
}

const char* schedule_name(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::scoped_lock lock(mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace convscope
