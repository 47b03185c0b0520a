// SPDX-License-Identifier: Apache-2.0
// environment.h: what a run's numbers depend on beside its config: env.json.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// JSON text: version, compiler, build, CPU, instruction set, threads, how many cores other programs
// keep busy, CUDA with its reason, and the command line.
CONVSCOPE_API std::string environment_json(const std::vector<std::string>& arguments);

// What differs between the machine that wrote this env.json and this one such that a resumed run
// may end with other bits: a sentence, or "".
CONVSCOPE_API std::string environment_change(const std::string& env_json_path);

// The arguments of this process.
CONVSCOPE_API std::vector<std::string> process_arguments();

}  // namespace convscope
