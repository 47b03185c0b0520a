// SPDX-License-Identifier: Apache-2.0
// sparse_net_report.h: the output of `convscope bench sparse_net`: a table for people, JSON for
// programs, and optionally the times of another library.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/sparse/sparse_net.h"

namespace convscope {

// Times of another library, written by experiments/baselines/sparse_conv_vs_spconv.py --net:
//
//   {"format": "convscope baseline sparse_net 1", "baseline": "spconv 2.3.8", "device":
//    "NVIDIA H200", "voxels": 120000, "channels": [16, 32], "rows": [{"precision": "f32",
//    "algorithm": "native", "forward_ms": 1.5, "backward_ms": 3.0}]}
struct SparseNetBaseline {
  struct Row {
    std::string precision, algorithm;
    double forward_ms = 0, backward_ms = 0;
  };
  std::string name, device;
  std::vector<Row> rows;

  // Returns the row of this algorithm in this precision. If there is none, returns the fastest row
  // (forward + backward) of this precision, or null if the precision has no row.
  const Row* beside(const std::string& precision, const std::string& algorithm) const;
};
// Throws an error when the file cannot be read (kIo), or has another format or another network
// (kData).
CONVSCOPE_API SparseNetBaseline read_sparse_net_baseline(const std::string& file,
                                                         std::int64_t voxels,
                                                         const std::vector<std::int64_t>& channels);

struct SparseNetReport {
  const SparseNetOptions* options = nullptr;
  const CloudMap* on = nullptr;
  const SparseNetBench* bench = nullptr;
  const SparseNetBaseline* baseline = nullptr;  // or null
  int threads = 0;
};
CONVSCOPE_API std::string sparse_net_table(const SparseNetReport& report);
CONVSCOPE_API std::string sparse_net_json(const SparseNetReport& report);

}  // namespace convscope
