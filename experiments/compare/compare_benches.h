// SPDX-License-Identifier: Apache-2.0
// compare_benches.h: compares benchmarks, row by row.
#pragma once

#include <vector>

#include "experiments/compare/bench_sides.h"
#include "experiments/compare/comparison.h"

namespace convscope {

// Compares the first side with each other side. If both sides have several files, the logarithms of
// the files' medians are compared (student_t.h). Otherwise the medians of blocks of samples are
// compared (rank_test.h). In older files, which have no blocks, times differ when the ranges from
// the 10th to the 90th percentile do not overlap. Throws an error (kInvalid) when the files are of
// different kinds or have no row in common.
CONVSCOPE_API CompareResult compare_benches(const std::vector<BenchSide>& sides);

// The geometric mean of a side's ratios, and the numbers of rows that are faster, slower, or within
// noise.
struct BenchTotal {
  std::size_t rows = 0, faster = 0, slower = 0, noise = 0, unknown = 0;
  double mean_ratio = 0;
};
CONVSCOPE_API BenchTotal total_of(const CompareResult& comparison, std::size_t side);

}  // namespace convscope
