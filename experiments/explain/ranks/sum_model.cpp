// SPDX-License-Identifier: Apache-2.0
// sum_model.cpp: predicts the time of sums over processes from latency and bandwidth, and how much
// of that time the backward pass hides.
#include "experiments/explain/ranks/sum_model.h"

#include <algorithm>

namespace convscope {
namespace {

double step_seconds(double bytes, const Link& link) {
  return link.latency_s + bytes / link.bytes_per_s;
}

}  // namespace

// The slowest link of the ring sets the pace of every step.
double ring_seconds(double bytes, int processes, const Cluster& cluster) {
  if (processes <= 1) return 0;
  const double part = bytes / processes;
  double step = 0;
  if (cluster.per_host > 1) step = step_seconds(part, cluster.inside);
  if (processes > cluster.per_host) step = std::max(step, step_seconds(part, cluster.between));
  return 2 * (processes - 1) * step;
}

double doubling_seconds(double bytes, int processes, const Cluster& cluster) {
  double out = 0;
  for (int distance = 1; distance < processes; distance *= 2) {
    out += distance < cluster.per_host ? step_seconds(bytes, cluster.inside)
                                       : step_seconds(bytes * cluster.per_host, cluster.between);
  }
  return out;
}

double sum_seconds(double bytes, int processes, const Cluster& cluster, SumOrder order) {
  const double doubling = doubling_seconds(bytes, processes, cluster);
  if (order == SumOrder::tree) return doubling;
  return std::min(doubling, ring_seconds(bytes, processes, cluster));
}

ExchangeTime exchange_time(const std::vector<Departure>& departures, double backward_s,
                           int processes, const Cluster& cluster, SumOrder order) {
  ExchangeTime out;
  double now = 0;
  for (const Departure& departure : departures) {
    const double seconds = sum_seconds(departure.bytes, processes, cluster, order);
    now = std::max(now, departure.ready_s) + seconds;
    out.busy_s += seconds;
  }
  if (processes > 1) out.exposed_s = std::max(0.0, now - backward_s);
  return out;
}

}  // namespace convscope
