// SPDX-License-Identifier: Apache-2.0
// run_environment.h: the values of env.json that pages show.
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

struct RunEnvironment {
  std::string cpu = {};
  std::string started = {};  // UTC: "2026-11-22 15:23:55"
  std::string version = {};
  std::string commit = {};  // commit of the program
  // Git state of the user's folder: "main 1a2b3c4d5e, with changes"; "" without git.
  std::string project = {};
  double load = 0;             // load of the machine when the run began: processes that want a core
  int threads = 0, cores = 0;  // 0: unknown
  std::optional<double> cores_of_others = {};  // cores busy with other programs
};
// Parses an env.json, or the `machine` of a benchmark's file.
CONVSCOPE_API RunEnvironment parse_run_environment(const std::string& json_text);
// Reads env.json of a run; missing values stay empty.
RunEnvironment read_run_environment(const std::string& run_folder);

}  // namespace convscope
