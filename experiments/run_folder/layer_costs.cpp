// SPDX-License-Identifier: Apache-2.0
// layer_costs.cpp: the cost of each layer in a training step: seconds and memory.
#include "experiments/run_folder/layer_costs.h"

#include <algorithm>
#include <utility>

namespace convscope {
namespace {

constexpr std::int64_t kEachOnCpu = 8;
constexpr std::int64_t kFirstOnGpu = 16;
constexpr std::int64_t kEachOnGpu = 512;

constexpr const char* kLoss = "loss";
constexpr const char* kTogether = "all layers";

std::string name_of(const StepPlan::Work& work) {
  if (work.layers.empty()) return kTogether;
  return work.layers.front().empty() ? kLoss : work.layers.front();
}

// Returns the row to which the work of module `name` is added. It is the row of this name, or else
// the row with the longest name that is a prefix of `name`, such as "c1" for "c1.quantizer".
std::string row_of(const std::string& name, const std::set<std::string>& rows) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    if (rows.contains(name.substr(0, end))) return name.substr(0, end);
  }
  return name;
}

}  // namespace

LayerCosts::LayerCosts(Device device)
    : device_(device),
      forward_(device),
      backward_(device),
      next_look_(device.type == DeviceType::cpu ? kEachOnCpu : kFirstOnGpu) {}

bool LayerCosts::look(std::int64_t step) {
  if (step < next_look_) return false;
  next_look_ = step + (device_.type == DeviceType::cpu ? kEachOnCpu : std::min(step, kEachOnGpu));
  return true;
}

LayerCost& LayerCosts::sums(const std::string& layer) {
  LayerCost& sum = sums_[layer];
  sum.timed = true;
  return sum;
}

void LayerCosts::add(const StepPlan& plan) {
  const auto add_shares = [&](const WorkClock& clock, double LayerCost::*into) {
    for (const WorkClock::Share& share : clock.shares()) {
      if (share.worker == nullptr) continue;
      sums(name_of(*static_cast<const StepPlan::Work*>(share.worker))).*into += share.seconds;
    }
  };
  add_shares(forward_, &LayerCost::forward_s);
  add_shares(backward_, &LayerCost::backward_s);
  for (const StepPlan::Work& work : plan.works()) {
    const std::string name = name_of(work);
    if (work.kept_bytes > 0) sums(name).kept_bytes += static_cast<double>(work.kept_bytes);
    for (const std::string& layer : work.layers) {
      if (layer != name && !layer.empty()) sums_[layer].timed_with = name;
    }
  }
  ++steps_;
}

void LayerCosts::add(Module& model) {
  std::map<const void*, std::string> names;
  for (const NamedModule& part : model.modules()) names.emplace(part.module, part.name);
  const auto layer_of = [&](const void* worker) {
    const auto at = names.find(worker);
    return at == names.end() || at->second.empty() ? std::string(kLoss) : at->second;
  };
  for (const WorkClock::Share& share : forward_.shares()) {
    LayerCost& layer = sums(layer_of(share.worker));
    layer.forward_s += share.seconds;
    layer.kept_bytes += static_cast<double>(share.kept_bytes);
  }
  for (const WorkClock::Share& share : backward_.shares()) {
    sums(layer_of(share.worker)).backward_s += share.seconds;
  }
  ++steps_;
}

std::map<std::string, LayerCost> LayerCosts::means(const std::set<std::string>& rows) const {
  std::map<std::string, LayerCost> out;
  const auto steps = static_cast<double>(steps_);
  for (const auto& [name, sum] : sums_) {
    LayerCost& mean = out[row_of(name, rows)];
    mean.timed = mean.timed || sum.timed;
    mean.forward_s += sum.forward_s / steps;
    mean.backward_s += sum.backward_s / steps;
    mean.kept_bytes += sum.kept_bytes / steps;
    const std::string with = sum.timed_with.empty() ? "" : row_of(sum.timed_with, rows);
    if (!with.empty() && with != row_of(name, rows)) mean.timed_with = with;
  }
  // If one kernel computes several layers, its time is in the row of one of them. The other work of
  // these layers, such as a quantiser, is added to the same row. So a row contains either all work
  // of its layers, or nothing.
  for (auto& [name, mean] : out) {
    if (mean.timed_with.empty() || !mean.timed) continue;
    LayerCost& whole = out[mean.timed_with];
    whole.forward_s += std::exchange(mean.forward_s, 0);
    whole.backward_s += std::exchange(mean.backward_s, 0);
    whole.kept_bytes += std::exchange(mean.kept_bytes, 0);
    mean.timed = false;
  }
  return out;
}

}  // namespace convscope
