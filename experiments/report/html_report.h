// SPDX-License-Identifier: Apache-2.0
// html_report.h: one self-contained page about one run: curves, the summary, layers, config.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

// Reads metrics.jsonl, epochs.csv, summary.json, layers.csv and config.yaml of a run folder; what
// is missing is left out.
CONVSCOPE_API std::string html_report(const std::string& run_folder);

}  // namespace convscope
