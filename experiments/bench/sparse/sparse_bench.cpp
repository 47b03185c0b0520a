// SPDX-License-Identifier: Apache-2.0
// sparse_bench.cpp: the rows of a benchmark of sparse convolution on a synthetic cloud.
#include "experiments/bench/sparse/sparse_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

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
  const SharedSites sites = cloud_sites(problem.cloud);
  const auto median_ms = [&](const auto& make) {
    constexpr int kTimes = 5;
    std::vector<double> ms;
    for (int i = 0; i < kTimes; ++i) {
      const double begin = now_ms(cpu_clock);
      make();
      backend_of(device).synchronize(device.index);
      ms.push_back(now_ms(cpu_clock) - begin);
    }
    std::ranges::sort(ms);
    return ms[kTimes / 2];
  };
  if (device.type != DeviceType::cpu) {
    halo_ms = median_ms([&] { halo_bytes = problem.map(sites)->make_halo_tables(device); });
  }
  map_ms = median_ms([&] {
    map = problem.map(sites);
    table_bytes = map->make_tables(device);
  });
}

std::vector<BenchFact> CloudMap::facts() const {
  const auto outputs = static_cast<double>(map->out_sites()->count());
  std::vector<BenchFact> out = {
      {"sites", static_cast<double>(map->in_sites()->count())},
      {"out_sites", outputs},
      {"pairs", static_cast<double>(map->pairs())},
      {"pairs_per_site", ratio(static_cast<double>(map->pairs()), outputs)},
      {"density", map->in_sites()->density()},
      {"map_bytes_per_site", ratio(static_cast<double>(table_bytes), outputs)},
      {"map_ms", map_ms}};
  if (halo_ms > 0) {  // true on a GPU, so that all its problems have the same columns
    const double none = std::numeric_limits<double>::quiet_NaN();
    const double bytes = ratio(static_cast<double>(halo_bytes), outputs);
    out.push_back({"halo_bytes_per_site", halo_bytes > 0 ? bytes : none});
    out.push_back({"halo_ms", halo_bytes > 0 ? halo_ms : none});
  }
  return out;
}

std::string CloudMap::text() const {
  const std::int64_t in = map->in_sites()->count(), out = map->out_sites()->count();
  const std::string sites =
      in == out ? fmt::format("{} sites", in) : fmt::format("{} sites, {} output sites", in, out);
  const auto bytes = [&](std::size_t all) {
    return ratio(static_cast<double>(all), static_cast<double>(out));
  };
  const std::string halo = halo_bytes > 0 ? fmt::format("; halo {:.1f} bytes each, {:.2f} ms",
                                                        bytes(halo_bytes), halo_ms)
                                          : "";
  return fmt::format(
      "{} in {}, density {:.3g}, {:.2f} pairs each; map {:.1f} bytes each, {:.2f} ms{}", sites,
      map->in_sites()->grid().text(), map->in_sites()->density(),
      ratio(static_cast<double>(map->pairs()), static_cast<double>(out)), bytes(table_bytes),
      map_ms, halo);
}

ReportedGroup bench_cloud(const BenchSettings& settings, const CloudProblem& problem,
                          const CloudMap& on, Direction direction,
                          const std::vector<const SparseConvAlgorithm*>& algorithms,
                          const BenchProgress& progress) {
  ReportedGroup out =
      bench_judged<SparseOracle>(settings, problem.on(on.map), direction, algorithms, progress);
  out.problem = problem.text();
  out.facts = on.facts();
  out.remark = on.text();
  return out;
}

}  // namespace convscope
