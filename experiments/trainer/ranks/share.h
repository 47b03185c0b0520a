// SPDX-License-Identifier: Apache-2.0
// share.h: which part of each batch a process computes, and in how many chunks.
//
//   parts = processes * chunks        part p of a batch of n images: first_of_part(n, p, parts)
//   a process computes `chunks` adjacent parts, one after the other
//
// A process computes `train.accumulate` parts, by default one: a single process then computes the
// whole batch at once. `train.deterministic_ranks` fixes the number of parts of all processes
// together, so that the sums over parts use the same tree for any number of processes.
#pragma once

#include <cstdint>

#include "framework/distributed/process_group.h"

namespace convscope {

struct Share {
  ProcessGroup* group = nullptr;  // null: one process
  int chunks = 1;                 // of this process, computed in turn
  SumOrder order = SumOrder::any;
  std::int64_t bucket_bytes = std::int64_t{4} << 20;

  int rank() const { return group != nullptr ? group->rank() : 0; }
  int size() const { return group != nullptr ? group->size() : 1; }
  int parts() const { return size() * chunks; }
  int first_part() const { return rank() * chunks; }
  bool is_shared() const { return parts() > 1; }
};

// Returns the number from which dropout draws its mask for part `part` of a batch in step `step`.
// The number differs between all parts and steps. It stays below 2^32, as dropout requires.
// With one part it is the number of the step.
constexpr std::int64_t step_of_part(std::int64_t step, std::int64_t part, std::int64_t parts) {
  return step * parts + part;
}

}  // namespace convscope
