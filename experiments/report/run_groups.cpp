// SPDX-License-Identifier: Apache-2.0
// run_groups.cpp: runs that differ only in their seed, combined as mean and standard deviation.
#include "experiments/report/run_groups.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "experiments/config/experiment_config.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using RunFacts = std::map<std::string, std::string>;

// Returns whether runs that differ in this key are one group: training does not depend on it.
bool keeps_group(const std::string& key) {
  for (const char* prefix : {"expect.", "log.", "checkpoint."}) {
    if (key.starts_with(prefix)) return true;
  }
  return key == "seed" || key == "name" || key == "schema";
}

std::string seed_of(const RunData& run) {
  const auto it = run.config.find("seed");
  if (it != run.config.end()) return it->second;
  return run.summary ? std::to_string(run.summary->seed) : "?";
}

// Returns the group's name: the name of its runs without the seed ("lenet-s3" becomes "lenet").
std::string name_of(const RunData& run) {
  const std::string tail = "-s" + seed_of(run);
  const bool carries = run.name.size() > tail.size() && run.name.ends_with(tail);
  return carries ? run.name.substr(0, run.name.size() - tail.size()) : run.name;
}

RunFacts facts_of(const RunData& run) {
  RunFacts facts;
  for (const auto& [key, value] : run.config) {
    if (!keeps_group(key)) facts[key] = value;
  }
  if (run.config.empty()) facts["folder"] = run.path;  // nothing known: a separate group
  if (run.summary) {
    facts["device"] = run.summary->device;
    facts["isa"] = run.summary->isa;
    facts["threads"] = std::to_string(run.summary->threads);
    facts["ranks"] = std::to_string(run.summary->ranks);
  }
  return facts;
}

// Returns defaults ("quant.w_bits" -> "8") for configs without the key.
const RunFacts& defaults() {
  static const RunFacts table = [] {
    RunFacts out;
    for (const ConfigKey& key : config_keys()) {
      std::string path = key.path;  // "optim[sgd].momentum"
      if (const std::size_t open = path.find('['); open != std::string::npos) {
        path.erase(open, path.find(']') + 1 - open);
      }
      if (!key.field.required) out[path] = to_text(key.field.default_value);
    }
    return out;
  }();
  return table;
}

// Returns whether the key has its default value. `method` and `type` of a config block are always
// shown in labels, because they say that the block exists.
bool is_default(const std::string& key, const std::string& value) {
  if (key.ends_with(".method") || key.ends_with(".type")) return false;
  const auto known = defaults().find(key);
  if (known == defaults().end()) return false;
  if (value == known->second || value == "null") return true;
  double a = 0, b = 0;
  const auto is_number = [](const std::string& text, double& out) {
    return std::from_chars(text.data(), text.data() + text.size(), out).ec == std::errc();
  };
  return is_number(value, a) && is_number(known->second, b) && a == b;
}

// If several groups have the same name, adds their differences: "lenet data.batch_size=8". If only
// some of them have a block, such as `quant`, adds the values in it that differ from the defaults:
// "lenet" and "lenet quant.method=lsq
// quant.w_bits=4".
void tell_apart(std::vector<RunGroup>& groups, const std::vector<RunFacts>& facts) {
  std::map<std::string, std::vector<std::size_t>> by_name;
  for (std::size_t i = 0; i < groups.size(); ++i) by_name[groups[i].label].push_back(i);
  for (const auto& [name, members] : by_name) {
    if (members.size() < 2) continue;
    std::set<std::string> keys;
    for (std::size_t i : members) {
      for (const auto& [key, value] : facts[i]) keys.insert(key);
    }
    for (const std::string& key : keys) {
      const auto value = [&](std::size_t i) {
        const auto it = facts[i].find(key);
        return it == facts[i].end() ? std::string() : it->second;
      };
      const auto has = [&](std::size_t i) { return facts[i].contains(key); };
      const auto differs = [&, first = members[0]](std::size_t i) {
        return has(i) != has(first) || value(i) != value(first);
      };
      if (std::ranges::none_of(members, differs)) continue;
      const bool in_all = std::ranges::all_of(members, has);
      for (std::size_t i : members) {
        if (!has(i) || (!in_all && is_default(key, value(i)))) continue;
        groups[i].label += " " + key + "=" + value(i);
      }
    }
  }
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  std::vector<double> finite;
  for (double value : values) {
    if (std::isfinite(value)) finite.push_back(value);
  }
  Spread out = mean_std(finite);
  if (finite.empty()) out.mean = out.median = std::numeric_limits<double>::quiet_NaN();
  if (out.std < 1e-12 * std::abs(out.mean)) out.std = out.mad = 0;  // equal values up to rounding
  return out;
}

Spread RunGroup::of(const std::function<double(const RunData&)>& value) const {
  std::vector<double> values;
  for (const RunData& run : runs) values.push_back(value(run));
  return spread_of(values);
}

Spread RunGroup::summary_spread(const std::function<double(const RunSummary&)>& value) const {
  return of([&](const RunData& run) {
    return run.summary ? value(*run.summary) : std::numeric_limits<double>::quiet_NaN();
  });
}

Spread RunGroup::time_spread(const std::function<double(const RunSummary&)>& value) const {
  return as_median(summary_spread(value));
}

std::size_t RunGroup::disturbed() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      runs, [](const RunData& run) { return run.summary && run.summary->disturbed(); }));
}

RunSet group_runs(std::vector<RunData> runs) {
  RunSet set;
  std::vector<RunFacts> facts;
  for (RunData& run : runs) {
    for (const std::string& problem : run.problems)
      set.remarks.push_back(cat(run.path, "/", problem));
    const std::string name = name_of(run);
    RunFacts own = facts_of(run);
    std::size_t at = 0;
    while (at < set.groups.size() && (set.groups[at].label != name || facts[at] != own)) ++at;
    if (at == set.groups.size()) {
      set.groups.push_back({.label = name, .runs = {}});
      facts.push_back(std::move(own));
    }
    std::vector<RunData>& members = set.groups[at].runs;
    const auto same_seed = [&](const RunData& other) { return seed_of(other) == seed_of(run); };
    const auto twin = std::find_if(members.begin(), members.end(), same_seed);
    if (twin == members.end()) {
      members.push_back(std::move(run));
      continue;
    }
    // The later run replaces the earlier one, except when the later run has no results and the
    // earlier one has.
    if (run.epochs.empty() && !twin->epochs.empty()) std::swap(run, *twin);
    set.remarks.push_back(cat(twin->path, ": left out, because ", run.path,
                              " has the same config and seed and replaces it"));
    *twin = std::move(run);
  }
  tell_apart(set.groups, facts);
  return set;
}

}  // namespace convscope
