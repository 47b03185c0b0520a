// SPDX-License-Identifier: Apache-2.0
// run_facts.h: the head of a run's page: what ran, on what, how well, how fast, and what makes its
// numbers doubtful.
#pragma once

#include <string>
#include <vector>

#include "experiments/report/run_data.h"

namespace convscope {

// "<span class="state good">DONE</span>"
std::string state_badge(const std::string& state);

// Markup: state, a sentence, warnings, facts.
std::string run_facts(const RunData& run);

// Sentences: why the run ended early, what its log warned of, a busy machine, a slow kind of step,
// files that could not be read.
std::vector<std::string> run_warnings(const RunData& run);

}  // namespace convscope
