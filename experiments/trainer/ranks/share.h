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

// Returns a number that dropout uses instead of the step number to draw its mask. It differs
// between the parts of a batch, so they get different masks. For part 0 it is the step number
// itself, so training without parts is not changed.
constexpr std::int64_t step_of_part(std::int64_t step, std::int64_t part) {
  return step + (part << 40);
}

}  // namespace convscope
