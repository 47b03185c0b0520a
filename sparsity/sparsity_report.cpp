// SPDX-License-Identifier: Apache-2.0
// sparsity_report.cpp: counts the weights that the masks really leave, layer by layer. The schedule
// only has a target.
#include "sparsity/sparsity_report.h"

#include <cstdio>

namespace convscope {
namespace {

std::int64_t zeros_in(const Tensor& mask) {
  if (!mask.defined()) return 0;
  const Tensor here = mask.to(Device{});
  const float* keep = here.data<float>();
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < here.numel(); ++i) zeros += keep[i] == 0 ? 1 : 0;
  return zeros;
}

void add(LayerSparsity& sum, const LayerSparsity& layer) {
  sum.weights += layer.weights;
  sum.zeros += layer.zeros;
  sum.outputs += layer.outputs;
  sum.alive += layer.alive;
  sum.flops += layer.flops;
  sum.flops_left += layer.flops_left;
}

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char text[512];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

SparsityReport sparsity_report(const PrunableNetwork& network, const std::vector<Tensor>& masks,
                               const std::vector<bool>& pruned, std::int64_t step, double wanted) {
  SparsityReport report;
  report.step = step;
  report.wanted = wanted;
  report.total.name = "total";
  report.pruned.name = "pruned";
  report.pruned.pruned = true;
  const Connectivity paths = connectivity(network, masks);
  report.cut_at = paths.cut_at;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const PrunableLayer& layer = network.layers[l];
    LayerSparsity row{.name = layer.name, .pruned = pruned[l], .weights = layer.weights()};
    row.zeros = zeros_in(masks[l]);
    row.outputs = layer.rows;
    row.alive = paths.alive_count[l];
    row.flops = 2.0 * static_cast<double>(layer.weights() * layer.positions);
    row.flops_left = 2.0 * static_cast<double>((row.weights - row.zeros) * layer.positions);
    add(report.total, row);
    if (row.pruned) add(report.pruned, row);
    report.layers.push_back(row);
  }
  return report;
}

std::string sparsity_csv_header() {
  return "step,wanted,layer,pruned,weights,zeros,density,outputs,alive,flops,flops_left\n";
}

std::string sparsity_csv_rows(const SparsityReport& report) {
  std::string out;
  const auto line = [&](const LayerSparsity& row) {
    out += formatted(
        "%lld,%.6g,%s,%d,%lld,%lld,%.6g,%lld,%lld,%.0f,%.0f\n", static_cast<long long>(report.step),
        report.wanted, row.name.c_str(), row.pruned ? 1 : 0, static_cast<long long>(row.weights),
        static_cast<long long>(row.zeros), row.density(), static_cast<long long>(row.outputs),
        static_cast<long long>(row.alive), row.flops, row.flops_left);
  };
  for (const LayerSparsity& row : report.layers) line(row);
  line(report.total);
  return out;
}

std::string sparsity_text(const SparsityReport& report) {
  std::string out = formatted("%-12s %10s %10s %9s %13s %11s\n", "layer", "weights", "zeros",
                              "density", "alive", "flops left");
  const auto line = [&](const LayerSparsity& row) {
    const std::string alive = formatted("%lld of %lld", static_cast<long long>(row.alive),
                                        static_cast<long long>(row.outputs));
    const std::string left =
        row.flops > 0 ? formatted("%.2f %%", 100 * row.flops_left / row.flops) : "-";
    out += formatted("%-12s %10lld %10lld %7.2f %% %13s %11s%s\n", row.name.c_str(),
                     static_cast<long long>(row.weights), static_cast<long long>(row.zeros),
                     100 * row.density(), alive.c_str(), left.c_str(),
                     row.pruned || row.name == "total" ? "" : "  (excluded)");
  };
  for (const LayerSparsity& row : report.layers) line(row);
  line(report.total);
  return out;
}

}  // namespace convscope
