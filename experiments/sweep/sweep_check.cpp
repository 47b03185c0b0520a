// SPDX-License-Identifier: Apache-2.0
// sweep_check.cpp: checks that need more than the config: whether the network of each member can be
// built and trained.
#include "experiments/sweep/sweep_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "datasets/dataset.h"
#include "experiments/config/build.h"
#include "experiments/config/no_memory.h"
#include "experiments/sweep/member_state.h"
#include "experiments/trainer/setup.h"
#include "framework/memory/memory.h"
#include "framework/registry.h"
#include "layers/dispatch/operator_use.h"

namespace convscope {
namespace {

// Asks the algorithms of a training step whether they accept their problems. The policy "measure"
// is skipped, because it would time some algorithms.
void check_algorithms(const ExperimentConfig& config, Module& model, const Shape& sample) {
  const Shape input = batch_shape(config.data.batch_size, sample);
  bool is_first = true;
  model.walk({input}, [&](Module& layer, const Shapes& arrives) {
    const std::unique_ptr<OperatorUse> heavy = layer.operator_use(arrives[0]);
    if (heavy == nullptr) return;
    for (const Direction direction : kDirections) {
      // The first layer does not compute the gradient of the images, so its backward_data is
      // skipped.
      if (is_first && direction == Direction::backward_data) continue;
      if (heavy->policy().of(direction) == "measure") continue;
      heavy->choose(direction, config.device, WeightUse::once);
    }
    is_first = false;
  });
}

void build(const ExperimentConfig& config) {
  backend_of(config.device);
  if (!dataset_types().get(config.data.set).sample_shape) return;
  const auto unbacked = no_memory(config);
  const SampleInfo sample = sample_info(config);
  const std::shared_ptr<Module> model = build_model(config, sample.shape, sample.classes);
  check_labels_fit(config, *model, sample);
  build_optimizer(config, *model);
  build_pruner(config, *model, nullptr, sample.shape, 0);
  check_algorithms(config, *model, sample.shape);
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Members whose data configs have the same text share their images.
std::string source_of(const DataConfig& data) {
  std::string out = data.set;
  for (const auto& [name, value] : data.options.values()) {
    out += cat(" ", name, "=", to_text(value));
  }
  return out;
}

void check_sizes(const SweepPlan& plan, const std::vector<std::size_t>& members,
                 const std::string& source, std::int64_t images) {
  std::vector<RefusedRow> refused;
  std::set<std::string> rows;
  for (std::size_t index : members) {
    const SweepMember& member = plan.members[index];
    if (source_of(member.config.data) != source || !rows.insert(member.row).second) continue;
    try {
      check_data_sizes(member.config.data, images);
    } catch (const Error& error) {
      refused.push_back({.row = member.row, .place = member.place, .reason = error.what()});
    }
  }
  refuse(refused);
}

}  // namespace

std::vector<RefusedRow> refused_rows(const SweepPlan& plan) {
  std::set<std::string> rows;
  std::vector<RefusedRow> out;
  for (const SweepMember& member : plan.members) {
    if (!rows.insert(member.row).second) continue;  // other seeds give the same result
    try {
      build(member.config);
    } catch (const Error& error) {
      out.push_back({.row = member.row,
                     .place = member.place,
                     .reason = error.what(),
                     .is_unavailable = error.kind() == ErrorKind::kUnavailable});
    }
  }
  return out;
}

void refuse(const std::vector<RefusedRow>& refused) {
  if (refused.empty()) return;
  std::vector<std::string> lines;
  bool has_config_error = false;
  for (const RefusedRow& row : refused) has_config_error = has_config_error || !row.is_unavailable;
  for (const RefusedRow& row : refused) {
    lines.push_back(cat(row.place, has_config_error ? ": error" : "", ": member '", row.row,
                        "': ", row.reason));
  }
  if (has_config_error) fail(ErrorKind::kConfig, "config", join(lines, "\n"));
  fail(
      ErrorKind::kUnavailable, "sweep",
      cat("expected members that can run here, so nothing is trained, got ", refused.size(),
          refused.size() == 1 ? " row that cannot:\n" : " rows that cannot:\n", join(lines, "\n")));
}

void check_members(const SweepPlan& plan) { refuse(refused_rows(plan)); }

void check_data(const SweepPlan& plan, const std::vector<std::size_t>& members) {
  std::set<std::string> tried;
  std::optional<Error> first;
  for (std::size_t index : members) {
    const DataConfig& data = plan.members[index].config.data;
    const std::string key = source_of(data);
    if (!tried.insert(key).second) continue;
    try {
      const std::int64_t images = dataset_types().get(data.set).load(data.options).train.size();
      release_cached(Device{});  // the members need the memory
      check_sizes(plan, members, key, images);
      return;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kConfig) throw;
      if (!first) first = error;
    }
  }
  if (first) throw Error(*first);
}

std::string list_members(const SweepPlan& plan, const std::string& folder,
                         const std::vector<RefusedRow>& refused) {
  std::size_t name_width = 0, seed_width = 0;
  for (const SweepMember& member : plan.members) {
    name_width = std::max(name_width, member.row.size());
    seed_width = std::max(seed_width, std::to_string(member.config.seed).size());
  }
  std::string out;
  for (const SweepMember& member : plan.members) {
    const MemberState state = member_state(folder, member, plan.varies_threads);
    const bool is_refused = std::ranges::count(refused, member.row, &RefusedRow::row) > 0;
    const std::string_view word = is_refused ? "refused"
                                  : state.progress == MemberProgress::missing
                                      ? "to do"
                                      : name_of(state.progress);
    std::string line = padded(member.row, name_width) + "  seed " +
                       padded(std::to_string(member.config.seed), seed_width) + "  " +
                       padded(std::string(word), 7);
    for (const auto& [key, value] : member.overrides) line += "  " + key + "=" + value;
    out += line + "\n";
  }
  return out;
}

}  // namespace convscope
