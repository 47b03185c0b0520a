// SPDX-License-Identifier: Apache-2.0
// sweep_members.cpp: the members of a sweep as a file in its folder.
#include "experiments/sweep/sweep_members.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/run_folder/files/own_file.h"
#include "framework/check.h"
#include "framework/io/atomic_file.h"
#include "framework/io/bytes.h"
#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFile = "sweep.members.json";
constexpr std::size_t kMaxMembers = 10000;
constexpr std::int64_t kUnknownEpochs = 0;  // in the files of earlier versions

[[noreturn]] void fail_damaged(const std::string& folder, const std::string& what) {
  fail(ErrorKind::kIo, "sweep",
       cat("expected the members of a sweep in ", folder, "/", kFile, ", got a file that ", what,
           "; `convscope sweep CONFIG` writes it again"));
}

// The name becomes a part of file paths, so it is checked.
bool is_row_name(const std::string& row) {
  return !row.empty() && row.front() != '.' && row.find('/') == std::string::npos &&
         row.find('\0') == std::string::npos;
}

// Reads the member's config file, which was written when the member was prepared, so it does not
// have the number of threads of a later call. If the member has not been prepared, returns a config
// with only its name, seed and epochs.
ExperimentConfig config_of(const std::string& folder, const std::string& row, std::int64_t seed,
                           std::int64_t epochs) {
  try {
    return load_config(cat(folder, "/", row, "/s", seed, ".yaml"));
  } catch (const Error&) {
    ExperimentConfig config;
    config.name = row;
    config.seed = seed;
    config.train.epochs = epochs;
    return config;
  }
}

SweepMembers from_json(const Json& file, const std::string& folder) {
  SweepMembers out;
  out.plan.name = file.at("name").get<std::string>();
  out.plan.varies_threads = file.at("varies_threads").get<bool>();
  out.call = file.at("call").get<std::string>();
  for (const Json& row : file.at("rows")) {
    out.plan.rows.push_back({row.at("name").get<std::string>(),
                             row.at("reference").get<std::map<std::string, double>>()});
  }
  if (file.at("members").size() > kMaxMembers) fail_damaged(folder, "names too many members");
  for (const Json& entry : file.at("members")) {
    SweepMember member;
    member.row = entry.at("row").get<std::string>();
    if (!is_row_name(member.row)) fail_damaged(folder, "names a row that is not a folder");
    for (const Json& change : entry.at("overrides")) {
      member.overrides.emplace_back(change.at(0).get<std::string>(),
                                    change.at(1).get<std::string>());
    }
    member.config = config_of(folder, member.row, entry.at("seed").get<std::int64_t>(),
                              entry.value("epochs", kUnknownEpochs));
    out.plan.members.push_back(std::move(member));
  }
  for (const Json& number : file.at("queue")) {
    out.queue.push_back(number.get<std::size_t>());
    if (out.queue.back() >= out.plan.members.size()) {
      fail_damaged(folder, "has a member in its queue that is not there");
    }
  }
  out.retried = file.at("retried").get<std::vector<std::string>>();
  return out;
}

}  // namespace

void write_sweep_members(const std::string& folder, const SweepMembers& members) {
  Json rows = Json::array(), list = Json::array();
  for (const SweepRow& row : members.plan.rows) {
    rows.push_back({{"name", row.name}, {"reference", Json(row.reference)}});
  }
  for (const SweepMember& member : members.plan.members) {
    Json changes = Json::array();
    for (const auto& [key, value] : member.overrides) changes.push_back(Json::array({key, value}));
    list.push_back({{"row", member.row},
                    {"seed", member.config.seed},
                    {"overrides", std::move(changes)},
                    {"epochs", member.config.train.epochs}});
  }
  const Json out = {{"name", members.plan.name},
                    {"call", members.call},
                    {"varies_threads", members.plan.varies_threads},
                    {"rows", std::move(rows)},
                    {"members", std::move(list)},
                    {"queue", members.queue},
                    {"retried", members.retried}};
  write_file(own_path(folder, kFile), json_text(out, 1));
}

SweepMembers read_sweep_members(const std::string& folder) {
  const std::optional<std::string> text = text_if_there(cat(folder, "/", kFile));
  if (!text) {
    fail(ErrorKind::kIo, "sweep",
         cat("expected the folder of a sweep, because its file sweep.members.json lists the "
             "members, got ",
             folder, ", which has none"));
  }
  try {
    return from_json(Json::parse(*text), folder);
  } catch (const Json::exception& error) {
    fail_damaged(folder, cat("cannot be read: ", json_problem(error.what())));
  }
}

bool holds_sweep_members(const std::string& folder) {
  return text_if_there(cat(folder, "/", kFile)).has_value();
}

bool same_members(const SweepPlan& a, const SweepPlan& b) {
  return std::ranges::equal(a.members, b.members, [](const SweepMember& x, const SweepMember& y) {
    return x.row == y.row && x.config.seed == y.config.seed;
  });
}

std::string claim_folder(const std::string& folder, const SweepMember& member) {
  return cat(folder, "/", member.row, "/.s", member.config.seed, ".claim");
}

}  // namespace convscope
