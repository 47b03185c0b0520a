// SPDX-License-Identifier: Apache-2.0
// statistics.h: the summary of many timings of one thing.
#pragma once

#include <vector>

#include "framework/export.h"

namespace convscope {

struct TimingSummary {
  int samples = 0;
  double median_ms = 0;
  double p10_ms = 0, p90_ms = 0;  // the 10th and 90th percentiles
  double min_ms = 0;
  // Medians of up to 32 blocks of consecutive samples. Statistical tests compare these medians
  // instead of single samples, because the medians show the drift of the machine's speed (batch
  // means: A. M. Law, Simulation Modeling and Analysis, section 9.5).
  std::vector<double> block_medians_ms = {};
};

// Returns quantile `q` in [0, 1] of `sorted`, interpolated linearly; 0 when empty.
CONVSCOPE_API double quantile(const std::vector<double>& sorted, double q);
// Returns the median; of an even number of values, the larger one of the two in the middle.
CONVSCOPE_API double middle_value(std::vector<double> values);
CONVSCOPE_API TimingSummary summary_of(std::vector<double> seconds);     // in the order of the runs
CONVSCOPE_API double geometric_mean(const std::vector<double>& values);  // 0 when empty

}  // namespace convscope
