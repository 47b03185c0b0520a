// SPDX-License-Identifier: Apache-2.0
// compare_benches.h: compares benchmarks, row by row.
#pragma once

#include <vector>

#include "experiments/compare/bench_sides.h"
#include "experiments/compare/comparison.h"

namespace convscope {

// Compares two sides or more, each with the first. Where both sides have several files, a row is
// compared by the medians of the files (student_t.h, on their logarithms). Otherwise the medians of
// its blocks of samples are compared (rank_test.h); for older files, whether the middle of their
// samples overlaps. Throws an error (kInvalid) when the files are of different kinds or have no row
// in common.
CONVSCOPE_API CompareResult compare_benches(const std::vector<BenchSide>& sides);

// The geometric mean of a side's ratios, and how many rows are faster, slower, within noise.
struct BenchTotal {
  std::size_t rows = 0, faster = 0, slower = 0, noise = 0, unknown = 0;
  double mean_ratio = 0;
};
CONVSCOPE_API BenchTotal total_of(const CompareResult& comparison, std::size_t side);

}  // namespace convscope
