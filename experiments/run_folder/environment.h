// SPDX-License-Identifier: Apache-2.0
// environment.h: writes env.json. The file describes the machine, the build and the command line,
// because the results and times of a run depend on them as well as on the config.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Returns JSON text: version, compiler, build, CPU, instruction set, threads, cores kept busy by
// other programs, whether CUDA is available or why not, and the command line.
CONVSCOPE_API std::string environment_json(const std::vector<std::string>& arguments);

// Returns a sentence about differences between the machine of the given env.json and this machine
// that can change the bits of a resumed run, or "" when there are none.
CONVSCOPE_API std::string environment_change(const std::string& env_json_path);

// Returns the arguments of this process.
CONVSCOPE_API std::vector<std::string> process_arguments();

}  // namespace convscope
