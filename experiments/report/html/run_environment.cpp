// SPDX-License-Identifier: Apache-2.0
// run_environment.cpp: the values of env.json that pages show.
#include "experiments/report/html/run_environment.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/report/csv_table.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/json_fields.h"
#include "framework/check.h"
#include "framework/io/former_names.h"

namespace convscope {
namespace {

using nlohmann::json;

std::string short_commit(const std::string& commit) { return commit.substr(0, 10); }

std::string project_text(const json& project) {
  const std::string commit = short_commit(text_at(project, "commit"));
  if (commit.empty()) return "";
  const std::string branch = text_at(project, "branch");
  const bool dirty = child(project, "dirty") == true;
  return cat(branch, branch.empty() ? "" : " ", commit, dirty ? ", with changes" : "");
}

// Returns "2026-11-22 15:23:55" for "2026-11-22T15:23:55Z"; other texts are unchanged.
std::string readable_time(std::string text) {
  if (text.size() == 20 && text[10] == 'T' && text.back() == 'Z') {
    text[10] = ' ';
    text.pop_back();
  }
  return text;
}

}  // namespace

RunEnvironment read_run_environment(const std::string& run_folder) {
  return parse_run_environment(file_text(run_folder + "/env.json"));
}

RunEnvironment parse_run_environment(const std::string& json_text) {
  const json whole =
      json::parse(with_todays_names(json_text, "env.json"), nullptr, /*allow_exceptions=*/false);
  RunEnvironment out{.cpu = text_at(whole, "cpu"),
                     .started = readable_time(text_at(whole, "started")),
                     .version = text_at(whole, "version"),
                     .commit = short_commit(text_at(whole, "git"))};
  out.project = project_text(child(whole, "project"));
  const std::string load = text_at(whole, "load_average");
  const double busy = number_in(load.substr(0, load.find(' ')));
  if (std::isfinite(busy)) out.load = busy;
  out.threads = count_at(whole, "threads");
  out.cores = count_at(whole, "cores");
  if (out.cores == 0) out.cores = count_at(child(whole, "peaks"), "cores");  // an older file
  const json& others = child(whole, "cores_of_others");
  if (others.is_number()) out.cores_of_others = others.get<double>();
  return out;
}

}  // namespace convscope
