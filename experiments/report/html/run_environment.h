// SPDX-License-Identifier: Apache-2.0
// run_environment.h: what pages show of env.json.
#pragma once

#include <optional>
#include <string>

namespace convscope {

struct RunEnvironment {
  std::string cpu = {};
  std::string started = {};  // UTC: "2026-11-22 15:23:55"
  std::string version = {};
  std::string commit = {};  // of the program
  // Of the user's own folder: "main 1a2b3c4d5e, with changes"; "" without git.
  std::string project = {};
  double load = 0;             // of the machine when the run began: processes that want a core
  int threads = 0, cores = 0;  // 0: it does not say
  std::optional<double> cores_of_others = {};  // busy with other programs
};
// Of an env.json, or of the `machine` of a benchmark's file.
RunEnvironment parse_run_environment(const std::string& json_text);
// Empty fields for what env.json does not say.
RunEnvironment read_run_environment(const std::string& run_folder);

}  // namespace convscope
