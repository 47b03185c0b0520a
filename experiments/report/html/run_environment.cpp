// SPDX-License-Identifier: Apache-2.0
// run_environment.cpp: the values of env.json that pages show.
#include "experiments/report/html/run_environment.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/report/csv_table.h"
#include "experiments/report/html/markup.h"
#include "framework/check.h"
#include "framework/io/former_names.h"

namespace convscope {
namespace {

using nlohmann::json;

std::string text_in(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string()
             ? object[key].get<std::string>()
             : "";
}

// Returns 0 when it is not a number of threads or cores.
int count_in(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return 0;
  const double number = object[key].get<double>();
  return number >= 1 && number <= 1e6 ? static_cast<int>(number) : 0;
}

std::string short_commit(const std::string& commit) { return commit.substr(0, 10); }

std::string project_text(const json& project) {
  const std::string commit = short_commit(text_in(project, "commit"));
  if (commit.empty()) return "";
  const std::string branch = text_in(project, "branch");
  const bool dirty = project.contains("dirty") && project["dirty"] == true;
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
  RunEnvironment out{.cpu = text_in(whole, "cpu"),
                     .started = readable_time(text_in(whole, "started")),
                     .version = text_in(whole, "version"),
                     .commit = short_commit(text_in(whole, "git"))};
  if (whole.is_object() && whole.contains("project")) out.project = project_text(whole["project"]);
  const std::string load = text_in(whole, "load_average");
  const double busy = number_in(load.substr(0, load.find(' ')));
  if (std::isfinite(busy)) out.load = busy;
  out.threads = count_in(whole, "threads");
  out.cores = count_in(whole, "cores");
  if (out.cores == 0 && whole.is_object() && whole.contains("peaks")) {  // an older file
    out.cores = count_in(whole["peaks"], "cores");
  }
  if (whole.is_object() && whole.contains("cores_of_others") &&
      whole["cores_of_others"].is_number()) {
    out.cores_of_others = whole["cores_of_others"].get<double>();
  }
  return out;
}

}  // namespace convscope
