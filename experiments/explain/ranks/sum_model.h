// SPDX-License-Identifier: Apache-2.0
// sum_model.h: predicts the time of sums over processes from latency and bandwidth, and how much of
// it the backward pass hides.
//
//   ring      2 (P-1) steps, each one sends bytes / P        little to send, many steps
//   doubling  log2(P) steps, each one sends all bytes        few steps: for short messages
//   A step takes latency + sent bytes / rate. MPI uses the quicker one (SumOrder::any); the
//   tree of train.deterministic_ranks is the doubling.
//
// Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in
//         MPICH", section 2: the same model, without the time of the additions
// Hosts   Neighbouring processes share a host, `per_host` of them, and its link to the others. In a
//         ring one of them at a time sends to the next host; in a doubling all do so at once.
#pragma once

#include <vector>

#include "experiments/explain/ranks/link.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct Cluster {
  Link between = {};  // hosts: of each host, shared by all its processes
  Link inside = {};   // a host: between two of its processes; unused where per_host is 1
  int per_host = 1;
};

CONVSCOPE_API double ring_seconds(double bytes, int processes, const Cluster& cluster);
CONVSCOPE_API double doubling_seconds(double bytes, int processes, const Cluster& cluster);
// Returns 0 for one process.
CONVSCOPE_API double sum_seconds(double bytes, int processes, const Cluster& cluster,
                                 SumOrder order);

// A bucket of gradients: its earliest departure after the beginning of the backward pass.
struct Departure {
  double ready_s = 0;
  double bytes = 0;
};

struct ExchangeTime {
  double busy_s = 0;     // of all sums, sequentially
  double exposed_s = 0;  // after the end of the backward pass
};

// Buckets are sent in order, one at a time.
CONVSCOPE_API ExchangeTime exchange_time(const std::vector<Departure>& departures,
                                         double backward_s, int processes, const Cluster& cluster,
                                         SumOrder order);

}  // namespace convscope
