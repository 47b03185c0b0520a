// SPDX-License-Identifier: Apache-2.0
// slurm_settings.cpp: resources that a sweep requests from Slurm.
#include "experiments/config/slurm/slurm_settings.h"

#include <algorithm>
#include <cstdlib>

#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr std::size_t kLongest = 100;
constexpr const char* kDigits = "0123456789";
constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool consists_of(const std::string& text, const std::string& letters) {
  return !text.empty() && text.size() <= kLongest &&
         text.find_first_not_of(letters) == std::string::npos;
}

bool is_name(const std::string& text) {
  return consists_of(text, cat(kLetters, kDigits, "_.-")) && text.front() != '-';
}

// Accepts "a100&fast|v100": features of nodes with Slurm's operators.
bool is_constraint(const std::string& text) {
  return consists_of(text, cat(kLetters, kDigits, "_.-&|*[]()")) && text.front() != '-';
}

bool is_count(const std::string& text) {
  return consists_of(text, kDigits) && text.size() <= 6 && std::atoi(text.c_str()) >= 1;
}

bool is_memory(const std::string& text) {
  if (text.empty()) return false;
  const bool has_unit = std::string("KMGT").find(text.back()) != std::string::npos;
  return is_count(has_unit ? text.substr(0, text.size() - 1) : text);
}

// Accepts "2" or "a100:2".
bool is_gpus(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return is_count(text);
  return is_name(text.substr(0, colon)) && is_count(text.substr(colon + 1));
}

bool is_time(const std::string& text) { return seconds_of_slurm_time(text) > 0; }

const SlurmKey* find_key(const std::string& name) {
  for (const SlurmKey& key : slurm_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

}  // namespace

const std::vector<SlurmKey>& slurm_keys() {
  static const char* const kNames = "letters, digits, '_', '.' and '-'";
  static const std::vector<SlurmKey> keys = {
      {"partition", "partition in which the members run", kNames, is_name},
      {"time", "time limit of one member; at the limit it writes a checkpoint and is queued again",
       "minutes, hours:minutes:seconds, or days-hours", is_time},
      {"mem", "memory of one member", "a number such as 8G (K, M, G or T; M without a unit)",
       is_memory},
      {"gpus", "GPUs of one member", "a number such as 1, or a type and a number such as a100:1",
       is_gpus},
      {"cpus", "cores of one member, equal to its threads", "a number from 1", is_count},
      {"at_once", "largest number of members that run at the same time", "a number from 1",
       is_count},
      {"account", "account that pays for the hours", kNames, is_name},
      {"qos", "the cluster's quality of service", kNames, is_name},
      {"constraint", "features that the nodes must have",
       "features of nodes, such as avx512 or a100|h100", is_constraint}};
  return keys;
}

long seconds_of_slurm_time(const std::string& text) {
  if (!consists_of(text, cat(kDigits, "-:")) || text.size() > 20) return -1;
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  long days = 0;
  if (has_days) {
    if (!consists_of(text.substr(0, dash), kDigits) || dash > 4) return -1;
    days = std::atol(text.substr(0, dash).c_str());
  }
  std::vector<long> parts;
  std::string rest = has_days ? text.substr(dash + 1) : text;
  for (std::size_t at = 0; at <= rest.size();) {
    const std::size_t colon = std::min(rest.find(':', at), rest.size());
    const std::string digits = rest.substr(at, colon - at);
    if (!consists_of(digits, kDigits) || digits.size() > 7) return -1;
    parts.push_back(std::atol(digits.c_str()));
    at = colon + 1;
  }
  if (parts.size() > 3) return -1;
  // In a time limit with days, the numbers after the days are hours, minutes, seconds. Without
  // days, one number is minutes, two are minutes:seconds, three are hours:minutes:seconds.
  long seconds = 0;
  if (has_days) {
    constexpr long kUnits[] = {3600, 60, 1};
    for (std::size_t i = 0; i < parts.size(); ++i) seconds += parts[i] * kUnits[i];
  } else if (parts.size() == 3) {
    seconds = parts[0] * 3600 + parts[1] * 60 + parts[2];
  } else {
    seconds = parts[0] * 60 + (parts.size() == 2 ? parts[1] : 0);
  }
  return days * 86400 + seconds;
}

std::string SlurmSettings::of(const std::string& key) const {
  for (const auto& [name, value] : values) {
    if (name == key) return value;
  }
  return "";
}

std::string SlurmSettings::set(const std::string& key, const std::string& value) {
  const SlurmKey* known = find_key(key);
  if (known == nullptr) {
    std::vector<std::string> names;
    for (const SlurmKey& one : slurm_keys()) names.push_back(one.name);
    const std::string near = nearest_word(key, names);
    return cat(
        "expected a key of Slurm's settings, got '", key, "'",
        near.empty() ? cat(" (known: ", join(names), ")") : cat("; did you mean '", near, "'?"));
  }
  if (!known->fits(value)) {
    return cat("expected ", key, " as ", known->expected, ", got '", value, "'");
  }
  std::erase_if(values, [&](const auto& entry) { return entry.first == key; });
  values.emplace_back(key, value);
  const auto place = [](const auto& entry) { return find_key(entry.first); };
  std::ranges::stable_sort(values, {}, place);
  return "";
}

void SlurmSettings::take(const SlurmSettings& other) {
  for (const auto& [key, value] : other.values) set(key, value);
}

SlurmSettings parse_slurm_settings(const std::vector<std::string>& texts) {
  SlurmSettings out;
  for (const std::string& text : texts) {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t comma = std::min(text.find(',', at), text.size());
      const std::string pair = text.substr(at, comma - at);
      at = comma + 1;
      const std::size_t equals = pair.find('=');
      const std::string key = pair.substr(0, equals);
      const std::string wrong =
          equals == std::string::npos
              ? cat("expected KEY=VALUE,KEY=VALUE such as time=30,mem=4G, got '", pair, "'")
          : !out.of(key).empty() ? cat("expected each key once, got '", key, "' twice")
                                 : out.set(key, pair.substr(equals + 1));
      if (!wrong.empty()) fail(ErrorKind::kInvalid, "sweep", cat("--slurm: ", wrong));
    }
  }
  return out;
}

}  // namespace convscope
