// SPDX-License-Identifier: Apache-2.0
// environment.h: what a run's numbers depend on beside its config: env.json.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// JSON text: version, compiler, build, CPU, instruction set, threads, CUDA with its reason, and the
// command line.
CONVSCOPE_API std::string environment_json(const std::vector<std::string>& arguments);

// The arguments of this process.
CONVSCOPE_API std::vector<std::string> process_arguments();

}  // namespace convscope
