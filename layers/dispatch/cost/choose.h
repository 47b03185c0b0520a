// SPDX-License-Identifier: Apache-2.0
// choose.h: the choice among the schedules of one algorithm, such as tile sizes and parts of a
// reduction, by the same model that chooses among algorithms.
//
//   Cheapest<Tiling> best({"conv2d", "cluster_gemm", direction}, DeviceType::cuda, z.dtype);
//   for (const Tiling& tiling : possible) best.offer(tiling, counts_of(tiling, z));
//   return best.found();
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "layers/dispatch/cost/model.h"

namespace convscope {

// Estimates schedules of one kernel. It looks the coefficients and peaks up once, so a search over
// thousands of schedules is fast.
class CONVSCOPE_API CostModel {
 public:
  CostModel(const CostKey& key, const char* schedule, DeviceType device, DType operand_type);
  // Returns the seconds of a call whose weights are used once.
  double seconds(const Cost& cost) const;

 private:
  Coefficients coefficients_;
  MachinePeaks peaks_;
  DeviceType device_;
  DType operand_type_;
};

// Schedules that estimates do not favour are never run, so `convscope tune` could not learn their
// times. While a seed is set, a random one is chosen of those that may be fast. It depends only on
// the seed and on the schedules that are offered, so all functions of an algorithm choose the same.
class CONVSCOPE_API ExploreSchedules {
 public:
  explicit ExploreSchedules(std::uint64_t seed);
  ~ExploreSchedules();
  ExploreSchedules(const ExploreSchedules&) = delete;
  ExploreSchedules& operator=(const ExploreSchedules&) = delete;
};
// Returns a number that changes with the seed and with the table in use. A cache of schedules has
// it in its keys.
CONVSCOPE_API std::uint64_t cost_state();
CONVSCOPE_API std::uint64_t exploration_seed();  // 0: none

// Chooses among schedules by their estimates: the lowest, or with a seed a random one.
class CONVSCOPE_API ScheduleChoice {
 public:
  // Returns whether to replace the schedule that was chosen before by this one.
  bool takes(double seconds);
  bool can_take(double seconds) const { return seed_ != 0 || seconds < least_; }

 private:
  std::uint64_t seed_ = exploration_seed(), offered_ = 0, draw_ = 0;
  double least_ = std::numeric_limits<double>::infinity(), chosen_ = least_;
};

// Estimates the schedules of one kernel by their costs.
class CONVSCOPE_API ScheduleModels {
 public:
  ScheduleModels(const CostKey& key, DeviceType device, DType operand_type)
      : key_(key), device_(device), operand_type_(operand_type) {}
  double seconds(const Cost& cost);

 private:
  CostKey key_;
  DeviceType device_;
  DType operand_type_;
  std::vector<std::pair<const char*, CostModel>> models_;  // by Cost::schedule
};

template <class Schedule>
class Cheapest {
 public:
  Cheapest(const CostKey& key, DeviceType device, DType operand_type)
      : models_(key, device, operand_type) {}

  void offer(const Schedule& schedule, const Cost& cost) {
    if (choice_.takes(models_.seconds(cost))) found_ = schedule;
  }
  // Returns whether a schedule whose time is at least that of `bound` may still be chosen.
  bool can_win(const Cost& bound) { return choice_.can_take(models_.seconds(bound)); }
  // Returns the chosen schedule, or a default one where none was offered.
  const Schedule& found() const { return found_; }

 private:
  ScheduleModels models_;
  ScheduleChoice choice_;
  Schedule found_ = {};
};

// Returns a text for Cost::schedule that is never freed. Equal texts are stored once.
CONVSCOPE_API const char* schedule_name(const std::string& text);

}  // namespace convscope
