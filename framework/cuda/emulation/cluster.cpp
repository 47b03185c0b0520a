// SPDX-License-Identifier: Apache-2.0
// cluster.cpp: the barrier of a thread-block cluster, and reads of other blocks' shared memory.
#include <cstdint>

#include "framework/cuda/emulation/blocks.h"
#include "framework/cuda/emulation/threads.h"

namespace emulation {

using namespace now;

namespace {

void end_round_if_complete() {
  Cluster& c = cluster();
  unsigned here = c.arrived;
  for (unsigned i = 0; i < c.count; ++i) here += c.blocks[i].left;
  if (here < c.count * block().size) return;
  ++c.round;
  c.arrived = 0;
  for (unsigned i = 0; i < c.count; ++i) wake_in(c.blocks[in_order(i, c.count)], &c.round);
}

}  // namespace

void now::begin_rounds() {
  Cluster& c = cluster();
  if (c.round == 1 && c.arrived == 0) return;  // nobody has arrived since the last call
  c.round = 1;
  c.arrived = 0;
  for (Block& b : c.blocks) {
    for (Thread& thread : b.threads) thread.arrived_in = 0;
  }
}

void now::arrive_by_leaving(Thread& thread) {
  Cluster& c = cluster();
  if (thread.arrived_in == c.round) {
    thread.arrived_in = 0;
    --c.arrived;
  }
  end_round_if_complete();
}

unsigned cluster_rank() { return block().rank; }
unsigned cluster_size() { return cluster().count; }

void cluster_arrive() {
  Cluster& c = cluster();
  Thread& self = *c.current;
  if (self.arrived_in != 0) {
    stop("arrives at the barrier of its cluster again, without cluster_wait() in between");
  }
  self.arrived_in = c.round;
  ++c.arrived;
  end_round_if_complete();
}

void cluster_wait() {
  Cluster& c = cluster();
  Thread& self = *c.current;
  if (self.arrived_in == 0) {
    stop("waits at the barrier of its cluster, but has not arrived there with cluster_arrive()");
  }
  if (self.arrived_in == c.round) wait_for(&c.round, "cluster_wait");
  self.arrived_in = 0;
}

const void* in_block(const char* name, const void* at, std::size_t bytes, unsigned rank) {
  const Cluster& c = cluster();
  if (rank >= c.count) {
    stop_saying(name, " reads block ", rank, " of a cluster of ", c.count);
  }
  const Block& from = c.blocks[rank];
  // For an address before the memory, the unsigned difference is very large, so the check finds it,
  // too.
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(at) - reinterpret_cast<std::uintptr_t>(block().shared.get());
  if (c.shared_bytes < bytes || offset > c.shared_bytes - bytes) {
    stop_saying(name, " reads ", bytes, " bytes from byte ", static_cast<std::int64_t>(offset),
                " on, outside the ", c.shared_bytes, " bytes of dynamic shared memory of a block");
  }
  if (offset % bytes != 0) {
    stop_saying(name, " reads from byte ", offset, " on, which is not a multiple of ", bytes);
  }
  if (rank != block().rank) {
    if (c.round == 1) {
      stop_saying(name, " reads block ", rank, " of the cluster, which may not have started: ",
                  "expected a cluster barrier before the first read");
    }
    if (from.left == from.size) {
      stop_saying(name, " reads block ", rank, " of the cluster, whose threads have all exited: ",
                  "expected a cluster barrier after the last read");
    }
  }
  return static_cast<const std::byte*>(from.shared.get()) + offset;
}

}  // namespace emulation
