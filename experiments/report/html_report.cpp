// SPDX-License-Identifier: Apache-2.0
#include "experiments/report/html_report.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/svg_chart.h"

namespace convscope {
namespace {

using json = nlohmann::ordered_json;

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

// The points of metrics.jsonl, by split and quantity; x is the epoch as a fraction.
struct Curves {
  std::map<std::string, ChartSeries> loss, accuracy;
  ChartSeries rate{.name = "learning rate", .x = {}, .y = {}};
  ChartSeries speed{.name = "images/s", .x = {}, .y = {}};
};

Curves read_curves(const std::string& folder) {
  Curves curves;
  std::istringstream lines(content_of(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json row = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("split") || !row.contains("step")) continue;
    const auto split = row["split"].get<std::string>();
    const auto step = row["step"].get<double>();
    const auto add = [&](ChartSeries& series, const char* key) {
      if (!row.contains(key) || !row[key].is_number()) return;
      series.x.push_back(step);
      series.y.push_back(row[key].get<double>());
    };
    curves.loss[split].name = curves.accuracy[split].name = split;
    add(curves.loss[split], "loss");
    add(curves.accuracy[split], "acc");
    add(curves.rate, "lr");
    add(curves.speed, "images_per_s");
  }
  return curves;
}

std::vector<ChartSeries> in_order(std::map<std::string, ChartSeries>& by_split) {
  std::vector<ChartSeries> out;
  for (const char* split : {"train", "val", "test"}) {
    if (by_split.contains(split)) out.push_back(std::move(by_split[split]));
  }
  return out;
}

std::string cell_text(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return escape_markup(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{:.5g}", value.get<double>());
  return escape_markup(value.dump());
}

std::string summary_table(const std::string& text) {
  const json summary = json::parse(text, nullptr, false);
  if (!summary.is_object()) return "";
  std::string out = "<table>\n";
  for (const auto& [key, value] : summary.items()) {
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_markup(key), cell_text(value));
  }
  return out + "</table>\n";
}

// A CSV without quoted cells, as the trainer writes them.
std::string csv_table(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  bool head = true;
  for (std::string line; std::getline(lines, line);) {
    const char* tag = head ? "th" : "td";
    out += "<tr>";
    std::istringstream cells(line + ",");
    for (std::string cell; std::getline(cells, cell, ',');) {
      out += fmt::format("<{0}>{1}</{0}>", tag, escape_markup(cell));
    }
    out += "</tr>\n";
    head = false;
  }
  return out.empty() ? "" : "<div class=\"wide\"><table>\n" + out + "</table></div>\n";
}

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<h2>{}</h2>\n{}", title, body);
}

}  // namespace

std::string html_report(const std::string& run_folder) {
  Curves curves = read_curves(run_folder);
  const std::string summary_text = content_of(run_folder + "/summary.json");
  const json summary = json::parse(summary_text, nullptr, false);
  const std::string title =
      summary.is_object() ? summary.value("name", "run") + " " + summary.value("id", "") : "run";

  LineChart loss{.title = "Loss",
                 .x_label = "step",
                 .y_label = "loss (nats)",
                 .series = in_order(curves.loss),
                 .log_y = true};
  LineChart accuracy{.title = "Accuracy",
                     .x_label = "step",
                     .y_label = "right answers (%)",
                     .series = in_order(curves.accuracy)};
  LineChart rate{.title = "Learning rate",
                 .x_label = "step",
                 .y_label = "learning rate",
                 .series = {std::move(curves.rate)},
                 .y_from_zero = true,
                 .height = 260};
  LineChart speed{.title = "Speed",
                  .x_label = "step",
                  .y_label = "training images/s",
                  .series = {std::move(curves.speed)},
                  .y_from_zero = true,
                  .height = 260};

  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font:14px sans-serif;max-width:1340px;margin:2em auto;padding:0 1em;"
      "color:#222}}svg{{max-width:100%;height:auto}}table{{border-collapse:collapse}}"
      "th,td{{text-align:left;padding:2px 10px 2px 0;border-bottom:1px solid #ddd;"
      "font-variant-numeric:tabular-nums}}pre{{background:#f6f6f6;padding:1em;overflow:auto}}"
      ".wide{{overflow-x:auto}}</style></head><body>\n<h1>{0}</h1>\n",
      escape_markup(title));
  for (const LineChart* chart : {&loss, &accuracy, &rate, &speed}) page += to_svg(*chart);
  page += section("Summary", summary_table(summary_text));
  page +=
      "<p>avg_forward and avg_backward are mean wall seconds of a training step (forward includes "
      "the loss; the first steps of each process are left out). avg_forward_mem is what a forward "
      "leaves allocated, avg_backward_mem the highest amount in use during a backward (data sets "
      "not counted), both in MiB; accuracies in percent, losses in nats.</p>\n";
  page += section("Epochs", csv_table(content_of(run_folder + "/epochs.csv")));
  page += section("Layers", csv_table(content_of(run_folder + "/layers.csv")));
  const std::string config = content_of(run_folder + "/config.yaml");
  if (!config.empty()) {
    page += section("Config", "<pre>" + escape_markup(config) + "</pre>\n");
  }
  return page + "</body></html>\n";
}

}  // namespace convscope
