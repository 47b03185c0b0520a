// SPDX-License-Identifier: Apache-2.0
// sum_model.h: predicts the time of sums over processes from latency and bandwidth, and how much of
// that time the backward pass hides.
//
//   ring      2 (P-1) steps, each one sends bytes / P        for long messages
//   doubling  log2(P) steps, each one sends all bytes        for short messages
//   Each step of an algorithm takes latency + sent bytes / bandwidth. MPI chooses the faster of the
//   two algorithms (SumOrder::any). The tree of train.deterministic_ranks takes as long as the
//   doubling.
//
// Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in
//         MPICH", section 2: the same model, without the time of the additions
// Hosts   `per_host` neighbouring processes share a host and its link to the other hosts. In a
//         ring, one process of a host at a time sends to the next host. In a doubling, all
//         processes of a host send to another host at once.
#pragma once

#include <vector>

#include "experiments/explain/ranks/link.h"
#include "framework/distributed/process_group.h"

namespace convscope {

struct Cluster {
  Link between = {};  // from one host to another; all processes of a host share it
  Link inside = {};   // between two processes of a host; unused if per_host is 1
  int per_host = 1;
};

CONVSCOPE_API double ring_seconds(double bytes, int processes, const Cluster& cluster);
CONVSCOPE_API double doubling_seconds(double bytes, int processes, const Cluster& cluster);
// Returns 0 for one process.
CONVSCOPE_API double sum_seconds(double bytes, int processes, const Cluster& cluster,
                                 SumOrder order);

// A bucket of gradients. `ready_s` is the time from the start of the backward pass until the bucket
// is complete.
struct Departure {
  double ready_s = 0;
  double bytes = 0;
};

struct ExchangeTime {
  double busy_s = 0;     // all sums, one after the other
  double exposed_s = 0;  // after the end of the backward pass
};

// Returns the time of the exchange, in which buckets are sent in order, one at a time.
CONVSCOPE_API ExchangeTime exchange_time(const std::vector<Departure>& departures,
                                         double backward_s, int processes, const Cluster& cluster,
                                         SumOrder order);

}  // namespace convscope
