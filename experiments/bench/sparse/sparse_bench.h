// SPDX-License-Identifier: Apache-2.0
// sparse_bench.h: the rows of a benchmark of sparse convolution on a synthetic cloud.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/bench_report.h"
#include "experiments/bench/sparse/cloud_problem.h"
#include "layers/sparse_conv/algorithm.h"

namespace convscope {

// The neighbour map of a problem, the time to build it, and facts about it.
struct CONVSCOPE_API CloudMap {
  // Generates the sites and builds the map several times; map_ms is the median time.
  CloudMap(const CloudProblem& problem, bool cpu_clock, Device device = {});

  SharedMap map;
  std::size_t table_bytes = 0;  // of the tables for both directions
  double map_ms = 0;            // to build it on the device from sorted sites
  // Size and building time of the tables of the algorithm `halo`; 0: not available.
  std::size_t halo_bytes = 0;
  double halo_ms = 0;

  // Returns sites, out_sites, pairs, pairs_per_site (per output), density (of the inputs),
  // map_bytes_per_site, map_ms; on a GPU halo_bytes_per_site, halo_ms.
  std::vector<BenchFact> facts() const;
  std::string text() const;  // the facts in words
};

// Checks a sample of each result (sparse_oracle.h), then times the algorithms interleaved. Each row
// contains the problem's text, by which `compare` finds the row of the same problem in another
// file.
CONVSCOPE_API ReportedGroup bench_cloud(const BenchSettings& settings, const CloudProblem& problem,
                                        const CloudMap& on, Direction direction,
                                        const std::vector<const SparseConvAlgorithm*>& algorithms,
                                        const BenchProgress& progress);

}  // namespace convscope
