// SPDX-License-Identifier: Apache-2.0
// run_facts.h: the first section of a run's page: what ran and where, accuracy, speed, and why its
// numbers may be unreliable.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_data.h"

namespace convscope {

// Returns "<span class="state good">DONE</span>".
std::string state_badge(const std::string& state);

// Returns markup: state, a sentence, warnings, facts.
std::string run_facts(const RunData& run);

// Returns the warnings about a run, one sentence each. Reasons: the run ended early, its log has
// warnings, the machine was busy, steps ran on a slow path, or a file is unreadable.
std::vector<std::string> run_warnings(const RunData& run);

}  // namespace convscope
