// SPDX-License-Identifier: Apache-2.0
// sparsity_options.h: the block `sparsity:` of a config, which says what to prune, how far and
// when. The keys, their defaults and their meaning are in sparsity_fields().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/options.h"

namespace convscope {

enum class PruneMethod { none, magnitude, filter, channel, n_m, block, rigl };
enum class SparsityDistribution { uniform, erk, global };
enum class PruneSchedule { one_shot, cubic, iterative };
enum class MaskGradient { masked, dense };
enum class SparseExecution { masked, sparse };

struct SparsityOptions {
  PruneMethod method = PruneMethod::none;
  double target = 0;  // share of zeros; of filters or channels for those methods
  SparsityDistribution distribution = SparsityDistribution::uniform;
  PruneSchedule schedule = PruneSchedule::cubic;
  double start = 0, end = 0;  // shares of all training steps
  std::int64_t every_steps = 1;
  std::int64_t rounds = 1;                      // of schedule iterative
  std::int64_t block_rows = 1, block_cols = 1;  // of method block
  std::int64_t n = 1, m = 1;                    // of method n_m: n of m stay
  double drop_fraction = 0;                     // of method rigl
  MaskGradient gradient = MaskGradient::masked;
  SparseExecution execute = SparseExecution::masked;
  bool remove = false;               // structured: the network shrinks once the masks are final
  std::string start_from;            // checkpoint or run folder; "": random weights
  std::vector<std::string> exclude;  // layers that stay dense

  bool structured() const {
    return method == PruneMethod::filter || method == PruneMethod::channel;
  }
};

// Returns the keys with type, default, range and meaning.
CONVSCOPE_API const std::vector<OptionField>& sparsity_fields();
// Parses completed options (every field present). Throws kind kConfig.
CONVSCOPE_API SparsityOptions parse_sparsity(const Options& options);

}  // namespace convscope
