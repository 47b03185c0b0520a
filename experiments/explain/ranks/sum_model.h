// SPDX-License-Identifier: Apache-2.0
// sum_model.h: how long sums over processes take, by latency and rate of what lies between them,
// and how much of it the backward pass hides.
//
//   ring      2 (P-1) steps, each one sends bytes / P        little to send, many steps
//   doubling  log2(P) steps, each one sends all bytes        few steps: for short messages
//   A step takes latency + what it sends / rate. MPI takes the quicker one (SumOrder::any); the
//   tree of train.deterministic_ranks is the doubling.
//
// Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in
//         MPICH", section 2: the same model, without what the additions take
// Hosts   Neighbouring processes share a host, `per_host` of them, and its link to the others. In a
//         ring one of them at a time sends to the next host; in a doubling all do so at once.
#pragma once

#include <vector>

#include "experiments/explain/ranks/link.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct Cluster {
  Link between = {};  // hosts: of each host, all its processes together
  Link inside = {};   // a host: between two of its processes; of no use where per_host is 1
  int per_host = 1;
};

CONVSCOPE_API double ring_seconds(double bytes, int processes, const Cluster& cluster);
CONVSCOPE_API double doubling_seconds(double bytes, int processes, const Cluster& cluster);
// 0 for one process.
CONVSCOPE_API double sum_seconds(double bytes, int processes, const Cluster& cluster,
                                 SumOrder order);

// A bucket of gradients: when it may leave, counted from the beginning of the backward pass.
struct Departure {
  double ready_s = 0;
  double bytes = 0;
};

struct ExchangeTime {
  double busy_s = 0;     // of all sums, one after the other
  double exposed_s = 0;  // behind the end of the backward pass
};

// They travel in their order, one at a time.
CONVSCOPE_API ExchangeTime exchange_time(const std::vector<Departure>& departures,
                                         double backward_s, int processes, const Cluster& cluster,
                                         SumOrder order);

}  // namespace convscope
