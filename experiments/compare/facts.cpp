// SPDX-License-Identifier: Apache-2.0
// facts.cpp: the configuration and environment of a comparison's sides, and how they differ.
#include "experiments/compare/facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "experiments/report/csv_table.h"
#include "framework/io/former_names.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 8;           // objects in objects; our own files have three
constexpr std::size_t kMaxWords = 4;  // different values of one side that are listed

std::string values_of(const Facts& side, const std::string& key) {
  const auto at = side.find(key);
  if (at == side.end()) return "-";
  std::vector<std::string> words = at->second;
  if (words.size() > kMaxWords) {
    words.resize(kMaxWords);
    words.push_back(cat("... (", at->second.size(), ")"));
  }
  return join(words, " / ");
}

// These facts are not compared: they differ in every call, or are measured values, which are never
// equal.
bool is_left_out(const std::string& path) {
  for (const char* key : {"started", "arguments", "cuda.reason", "project.path", "format"}) {
    if (path == key || path.starts_with(std::string(key) + ".")) return true;
  }
  return path.starts_with("peaks.") || path.ends_with(".free_bytes");
}

void flatten(Facts& facts, const Json& value, const std::string& path, int depth) {
  const auto inside = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (is_left_out(path) || depth > kDeepest) return;
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) flatten(facts, child, inside(key), depth + 1);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      flatten(facts, value[i], inside(std::to_string(i)), depth + 1);
    }
  } else if (path == "load_average" && value.is_string()) {
    const std::string text = value.get<std::string>();  // "0.32 0.28 0.20 1/108 6479"
    add_fact(facts, "load", text.substr(0, text.find(' ')));
  } else if (!value.is_null()) {
    add_fact(facts, path, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

double largest(const Facts& side, const std::string& key) {
  double out = 0;
  const auto at = side.find(key);
  if (at == side.end()) return out;
  for (const std::string& value : at->second) {
    const double number = number_in(value);
    if (number > out) out = number;
  }
  return out;
}

}  // namespace

void add_fact(Facts& facts, const std::string& key, const std::string& value) {
  std::vector<std::string>& values = facts[key];
  if (std::ranges::count(values, value) == 0) values.push_back(value);
}

std::vector<FactRow> differing(const std::vector<const Facts*>& sides) {
  std::set<std::string> keys;
  for (const Facts* side : sides) {
    for (const auto& [key, values] : *side) keys.insert(key);
  }
  std::vector<FactRow> out;
  for (const std::string& key : keys) {
    FactRow row{.key = key, .values = {}};
    for (const Facts* side : sides) row.values.push_back(values_of(*side, key));
    const bool several = std::ranges::any_of(sides, [&](const Facts* side) {
      const auto at = side->find(key);
      return at != side->end() && at->second.size() > 1;
    });
    const auto same = [&](const std::string& value) { return value == row.values.front(); };
    if (several || !std::ranges::all_of(row.values, same)) out.push_back(std::move(row));
  }
  return out;
}

void add_environment(Facts& facts, const std::string& json_text) {
  const Json value =
      Json::parse(with_todays_names(json_text, "env.json"), nullptr, /*allow_exceptions=*/false);
  if (value.is_object()) flatten(facts, value, "", 0);
}

std::vector<std::string> machine_warnings(const std::vector<std::string>& names,
                                          const std::vector<const Facts*>& sides) {
  std::vector<std::string> machine, setting, out;
  for (const FactRow& row : differing(sides)) {
    const bool algorithm = row.key.starts_with("cuda.devices.") && row.key.ends_with(".name");
    if (row.key == "cpu" || row.key == "cpu_features" || algorithm) machine.push_back(row.key);
    for (const char* key : {"isa", "threads", "ranks.processes", "build_type", "compiler"}) {
      if (row.key == key) setting.push_back(row.key);
    }
  }
  if (!machine.empty()) {
    out.push_back(
        cat("the machines differ (", join(machine), "): times are not comparable, accuracies are"));
  }
  if (!setting.empty()) {
    out.push_back(
        cat("the sides differ in ", join(setting), ", which may explain a difference in times"));
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const double load = largest(*sides[i], "load"), threads = largest(*sides[i], "threads");
    if (threads > 0 && load > threads) {
      out.push_back(cat(names[i], " began on a busy machine (load ", load, ", ", threads,
                        threads == 1 ? " thread" : " threads", "): its times may be too long"));
    }
  }
  return out;
}

}  // namespace convscope
