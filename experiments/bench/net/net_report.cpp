// SPDX-License-Identifier: Apache-2.0
// net_report.cpp: the output of `convscope bench net`: tables for people, JSON and CSV for
// programs.
#include "experiments/bench/net/net_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/report/text_table.h"
#include "experiments/run_folder/environment.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1048576.0;

std::string sizes_text(const Shape& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / kMiB; }

Json row_json(const NetBenchRow& row, const std::string& device) {
  const bool train = row.mode == NetMode::train;
  const auto part = [&](double ms) { return train ? Json(ms) : Json(); };
  return {
      {"net", row.net},
      {"mode", name_of(row.mode)},
      {"execution", row.execution},
      {"batch", row.batch},
      {"image", sizes_text(row.image)},
      {"device", device},
      {"threads", row.threads},
      {"parameters", row.parameters},
      {"samples", row.time.samples},
      {"median_ms", row.time.median_ms},
      {"p10_ms", row.time.p10_ms},
      {"p90_ms", row.time.p90_ms},
      {"min_ms", row.time.min_ms},
      {"forward_ms", part(row.parts.forward_ms)},
      {"backward_ms", part(row.parts.backward_ms)},
      {"update_ms", part(row.parts.update_ms)},
      {"images_per_second", row.images_per_second},
      {"nominal_flops", row.flops},
      {"gflops_effective", row.gflops_effective},
      {"peak_bytes", row.peak_bytes},
      {"workspace_peak_bytes", row.workspace_peak_bytes},
      {"resident_bytes", row.resident_bytes},
      {"system_allocations", row.system_allocations},
      {"process_peak_bytes", row.process_peak_bytes},
      {"arithmetic", row.arithmetic},
      {"cores_of_others", row.cores_of_others ? Json(*rounded_load(row.cores_of_others)) : Json()}};
}

Json layer_json(const NetLayerRow& row, bool train) {
  return {{"layer", row.layer},
          {"kind", row.kind},
          {"input", sizes_text(row.input)},
          {"output", sizes_text(row.output)},
          {"nominal_flops", row.flops},
          {"forward_ms", row.forward_ms},
          {"backward_ms", train ? Json(row.backward_ms) : Json()},
          {"algorithms", row.algorithms.empty() ? Json() : Json(row.algorithms)},
          {"step_kernels", row.step_kernels.empty() ? Json() : Json(row.step_kernels)},
          {"step", row.step}};
}

}  // namespace

std::string net_table(const std::vector<NetBenchRow>& rows) {
  TextTable table;
  table.columns = {{"mode"},         {"batch"},         {"median ms", 4}, {"p10", 4},
                   {"p90", 4},       {"min", 4},        {"forward", 4},   {"backward", 4},
                   {"update", 4},    {"images/s", 4},   {"GFLOP/s", 4},   {"peak MiB", 4},
                   {"workspace", 4}, {"process MiB", 4}};
  for (const NetBenchRow& row : rows) {
    const auto part = [&](double ms) {
      return row.mode == NetMode::train ? TableCell(ms) : TableCell();
    };
    const std::string mode =
        cat(name_of(row.mode), row.arithmetic == "f32" ? "" : cat(", ", row.arithmetic));
    table.rows.push_back({mode, row.batch, row.time.median_ms, row.time.p10_ms, row.time.p90_ms,
                          row.time.min_ms, part(row.parts.forward_ms), part(row.parts.backward_ms),
                          part(row.parts.update_ms), row.images_per_second, row.gflops_effective,
                          mebibytes(row.peak_bytes), mebibytes(row.workspace_peak_bytes),
                          mebibytes(row.process_peak_bytes)});
  }
  return to_markdown(table);
}

std::string net_layer_table(const NetBenchRow& row, const std::vector<NetLayerRow>& layers) {
  const bool train = row.mode == NetMode::train;
  TextTable table;
  table.columns = {{"layer"},           {"kind"},           {"output"},
                   {"forward ms", 4},   {"backward ms", 4}, {"GFLOP/s", 4},
                   {"GB/s forward", 3}, {"algorithm"},      {"in the step"}};
  struct Sum {
    double forward = 0, backward = 0;
  };
  std::map<std::string, Sum> by_kind;
  Sum all;
  for (const NetLayerRow& layer : layers) {
    table.rows.push_back(
        {layer.layer, layer.kind, sizes_text(layer.output), layer.forward_ms,
         train ? TableCell(layer.backward_ms) : TableCell(),
         layer.flops > 0 ? TableCell(layer.flops / layer.forward_ms * 1e-6) : TableCell(),
         layer.bytes_forward / layer.forward_ms * 1e-6, layer.algorithms,
         layer.step_kernels.empty() ? "" : cat(layer.step, ": ", layer.step_kernels)});
    for (Sum* sum : {&by_kind[layer.kind], &all}) {
      sum->forward += layer.forward_ms;
      sum->backward += layer.backward_ms;
    }
  }
  std::string out = fmt::format("Layers of {}, {}, batch {}, each timed alone:\n", row.net,
                                name_of(row.mode), row.batch) +
                    to_markdown(table) + "\n";
  TextTable sums;
  sums.columns = {{"kind"}, {"forward ms", 4}, {"backward ms", 4}, {"share %", 0}};
  const double total = all.forward + all.backward;
  for (const auto& [kind, sum] : by_kind) {
    sums.rows.push_back({kind, sum.forward, train ? TableCell(sum.backward) : TableCell(),
                         100 * (sum.forward + sum.backward) / total});
  }
  sums.rows.push_back(
      {std::string("all"), all.forward, train ? TableCell(all.backward) : TableCell(), 100.0});
  return out + to_markdown(sums);
}

std::string net_operation_table(const NetBenchRow& row, const std::vector<NetOpRow>& operations) {
  if (operations.empty()) return "";
  const bool train = row.mode == NetMode::train;
  TextTable table;
  table.columns = {{"layer"}, {"operation"}, {"forward ms", 4}, {"backward ms", 4}, {"share %", 0}};
  double forward = 0, backward = 0;
  for (const NetOpRow& op : operations) {
    forward += op.forward_ms;
    backward += op.backward_ms;
  }
  const auto add = [&](const NetOpRow& op) {
    table.rows.push_back({op.layer, op.text, op.forward_ms,
                          train ? TableCell(op.backward_ms) : TableCell(),
                          100 * (op.forward_ms + op.backward_ms) / (forward + backward)});
  };
  for (const NetOpRow& op : operations) add(op);
  add({"all", "", forward, backward});
  return fmt::format("Operations of {} as planned, {}, batch {}, in order of execution:\n", row.net,
                     name_of(row.mode), row.batch) +
         to_markdown(table);
}

std::string net_json(const NetBenchReport& report) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    Json row = row_json(report.rows[i], report.device);
    row["block_medians_ms"] = report.rows[i].time.block_medians_ms;
    if (i < report.layers.size()) {
      Json layers = Json::array();
      for (const NetLayerRow& layer : report.layers[i]) {
        layers.push_back(layer_json(layer, report.rows[i].mode == NetMode::train));
      }
      row["layers"] = layers;
      Json operations = Json::array();
      for (const NetOpRow& op : report.operations[i]) {
        operations.push_back({{"layer", op.layer},
                              {"operation", op.text},
                              {"forward_ms", op.forward_ms},
                              {"backward_ms", op.backward_ms}});
      }
      row["operations"] = operations;
    }
    rows.push_back(row);
  }
  const Json out = {{"format", "convscope bench net 1"},
                    {"complete", report.complete},
                    {"machine", Json::parse(environment_json(process_arguments()))},
                    {"settings",
                     {{"net", report.net},
                      {"device", report.device},
                      {"threads", report.threads},
                      {"clock", report.options.cpu_clock ? "cpu" : "wall"},
                      {"min_seconds", report.options.min_seconds},
                      {"least_samples", report.options.least_samples},
                      {"warm_up", report.options.warm_up}}},
                    {"rows", rows}};
  return json_text(out, 1);
}

std::string net_csv(const NetBenchReport& report) {
  const Json names = row_json(NetBenchRow{}, "");  // an empty row provides the names
  Json rows = Json::array();
  for (const NetBenchRow& row : report.rows) rows.push_back(row_json(row, report.device));
  return json_rows_csv(names, rows);
}

}  // namespace convscope
