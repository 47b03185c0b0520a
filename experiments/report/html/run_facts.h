// SPDX-License-Identifier: Apache-2.0
// run_facts.h: the head of a run's page: what ran, where, how well, how fast, and doubts about its
// numbers.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_data.h"

namespace convscope {

// Returns "<span class="state good">DONE</span>".
std::string state_badge(const std::string& state);

// Returns markup: state, a sentence, warnings, facts.
std::string run_facts(const RunData& run);

// Returns sentences: why the run ended early, warnings of its log, a busy machine, a slow kind of
// step, unreadable files.
std::vector<std::string> run_warnings(const RunData& run);

}  // namespace convscope
