// SPDX-License-Identifier: Apache-2.0
// sparse_bench.cpp: the rows of a benchmark of sparse convolution on a cloud that is drawn.
#include "experiments/bench/sparse/sparse_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "experiments/bench/sparse/sparse_oracle.h"

namespace convscope {
namespace {

double now_ms(bool cpu_clock) {
  if (cpu_clock) return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

double ratio(double part, double all) { return all > 0 ? part / all : 0; }

}  // namespace

CloudMap::CloudMap(const CloudProblem& problem, bool cpu_clock, Device device) {
  constexpr int kTimes = 5;
  const SharedSites sites = cloud_sites(problem.cloud);
  std::vector<double> ms;
  for (int i = 0; i < kTimes; ++i) {
    const double begin = now_ms(cpu_clock);
    map = problem.map(sites);
    table_bytes = map->make_tables(device);
    backend_of(device).synchronize(device.index);
    ms.push_back(now_ms(cpu_clock) - begin);
  }
  std::ranges::sort(ms);
  map_ms = ms[kTimes / 2];
}

std::vector<BenchFact> CloudMap::facts() const {
  const auto outputs = static_cast<double>(map->out_sites()->count());
  return {{"sites", static_cast<double>(map->in_sites()->count())},
          {"out_sites", outputs},
          {"pairs", static_cast<double>(map->pairs())},
          {"pairs_per_site", ratio(static_cast<double>(map->pairs()), outputs)},
          {"density", map->in_sites()->density()},
          {"map_bytes_per_site", ratio(static_cast<double>(table_bytes), outputs)},
          {"map_ms", map_ms}};
}

std::string CloudMap::text() const {
  const std::int64_t in = map->in_sites()->count(), out = map->out_sites()->count();
  const std::string sites =
      in == out ? fmt::format("{} sites", in) : fmt::format("{} sites, {} output sites", in, out);
  return fmt::format(
      "{} in {}, density {:.3g}, {:.2f} pairs each; map {:.1f} bytes each, {:.2f} ms", sites,
      map->in_sites()->grid().text(), map->in_sites()->density(),
      ratio(static_cast<double>(map->pairs()), static_cast<double>(out)),
      ratio(static_cast<double>(table_bytes), static_cast<double>(out)), map_ms);
}

ReportedGroup bench_cloud(const BenchSettings& settings, const CloudProblem& problem,
                          const CloudMap& on, Direction direction,
                          const std::vector<const SparseConvAlgorithm*>& cards,
                          const BenchProgress& progress) {
  ReportedGroup out =
      bench_judged<SparseOracle>(settings, problem.on(on.map), direction, cards, progress);
  out.problem = problem.text();
  out.facts = on.facts();
  out.remark = on.text();
  return out;
}

}  // namespace convscope
