// SPDX-License-Identifier: Apache-2.0
// sweep_check.cpp: what a config alone cannot tell: whether the network of each member can be
// built.
#include "experiments/sweep/sweep_check.h"

#include <algorithm>
#include <optional>
#include <set>

#include "datasets/dataset.h"
#include "experiments/config/build.h"
#include "experiments/config/build_pruner.h"
#include "experiments/sweep/member_state.h"
#include "framework/memory/memory.h"
#include "framework/registry.h"

namespace convscope {
namespace {

void build(const ExperimentConfig& config) {
  backend_of(config.device);
  if (!dataset_types().get(config.data.set).sample_shape) return;
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  build_optimizer(config, *model);
  build_pruner(config, *model, nullptr, sample.shape, 0);
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

void check_members(const SweepPlan& plan) {
  std::set<std::string> rows;
  std::vector<std::string> lines;
  for (const SweepMember& member : plan.members) {
    if (!rows.insert(member.row).second) continue;  // the same with another seed
    try {
      build(member.config);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kUnavailable) throw;
      lines.push_back(cat(member.place, ": error: member '", member.row, "': ", error.what()));
    }
  }
  if (!lines.empty()) fail(ErrorKind::kConfig, "config", join(lines, "\n"));
}

void check_data(const SweepPlan& plan, const std::vector<std::size_t>& members) {
  std::set<std::string> tried;
  std::optional<Error> first;
  for (std::size_t index : members) {
    const DataConfig& data = plan.members[index].config.data;
    std::string key = data.set;
    for (const auto& [name, value] : data.options.values())
      key += cat(" ", name, "=", to_text(value));
    if (!tried.insert(key).second) continue;
    try {
      dataset_types().get(data.set).load(data.options);
      release_cached(Device{});  // the members need it
      return;
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (first) throw Error(*first);
}

std::string list_members(const SweepPlan& plan, const std::string& folder) {
  std::size_t name_width = 0, seed_width = 0;
  for (const SweepMember& member : plan.members) {
    name_width = std::max(name_width, member.row.size());
    seed_width = std::max(seed_width, std::to_string(member.config.seed).size());
  }
  std::string out;
  for (const SweepMember& member : plan.members) {
    const MemberState state = member_state(folder, member, plan.varies_threads);
    std::string line = padded(member.row, name_width) + "  seed " +
                       padded(std::to_string(member.config.seed), seed_width) + "  " +
                       padded(std::string(name_of(state.progress)), 7);
    for (const auto& [key, value] : member.overrides) line += "  " + key + "=" + value;
    out += line + "\n";
  }
  return out;
}

}  // namespace convscope
