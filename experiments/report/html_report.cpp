// SPDX-License-Identifier: Apache-2.0
// html_report.cpp: self-contained pages: all plots, with their numbers, and the tables.
#include "experiments/report/html_report.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/report/chart/svg_text.h"

namespace convscope {
namespace {

using json = nlohmann::ordered_json;
using Table = std::vector<std::vector<std::string>>;  // first row: head

constexpr const char* kStyle =
    "body{font:14px Helvetica,Arial,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}svg{max-width:100%;height:auto;display:block}"
    "figure{margin:0 0 2em;border-top:1px solid #ddd;padding-top:1em;break-inside:avoid}"
    "table{border-collapse:collapse}th,td{text-align:left;padding:2px 12px 2px 0;"
    "border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "pre{background:#f6f6f6;padding:1em;overflow:auto}.wide{overflow-x:auto}"
    "summary{cursor:pointer;color:#555}li{color:#555}";

constexpr const char* kMeaning =
    "<p>avg_forward and avg_backward are mean wall seconds of a training step (forward includes "
    "the loss; the first steps of each process are left out); a step whose phases cannot be timed "
    "apart has avg_step only. avg_forward_mem is what a forward "
    "leaves allocated, avg_backward_mem the highest amount in use during a backward (data sets "
    "not counted), both in MiB; accuracies in percent, losses in nats.</p>\n";

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

std::string table_of(const Table& table) {
  if (table.empty()) return "";
  std::string out = "<div class=\"wide\"><table>\n";
  for (std::size_t row = 0; row < table.size(); ++row) {
    const char* tag = row == 0 ? "th" : "td";
    out += "<tr>";
    for (const std::string& cell : table[row]) {
      out += fmt::format("<{0}>{1}</{0}>", tag, escape_markup(cell));
    }
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

Table table_of_csv(const CsvTable& csv) {
  Table table;
  if (csv.columns.empty()) return table;
  table.push_back(csv.columns);
  table.insert(table.end(), csv.rows.begin(), csv.rows.end());
  return table;
}

std::string cell_text(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number_text(value.get<double>(), 5);
  return value.dump();
}

std::string summary_table(const std::string& text) {
  const json summary = json::parse(text, nullptr, false);
  if (!summary.is_object()) return "";
  std::string out = "<table>\n";
  for (const auto& [key, value] : summary.items()) {
    out += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", escape_markup(key),
                       escape_markup(cell_text(value)));
  }
  return out + "</table>\n" + kMeaning;
}

Table table_of_rows(const std::vector<RunRow>& rows) {
  const std::vector<std::string> columns = reading_columns(rows);
  Table table = {columns};
  for (const json& row : json::parse(to_json(rows, columns), nullptr, false)) {
    table.emplace_back();
    for (const std::string& column : columns) {
      table.back().push_back(row.contains(column) ? cell_text(row[column]) : "");
    }
  }
  return table;
}

Table table_of_groups(const RunSet& set) {
  Table table = {{"config", "runs", "acc", "avg_forward", "avg_backward", "avg_forward_mem",
                  "avg_backward_mem", "images_per_s"}};
  for (const RunGroup& group : set.groups) {
    const auto mean = [&](double RunSummary::*value) {
      return spread_text(group.of_summary([&](const RunSummary& summary) {
        return summary.timed_steps > 0 ? summary.*value : std::nan("");
      }));
    };
    table.push_back({group.label, std::to_string(group.runs.size()),
                     spread_text(group.of_summary(
                         [](const RunSummary& s) { return s.acc.value_or(std::nan("")); })),
                     mean(&RunSummary::avg_forward), mean(&RunSummary::avg_backward),
                     mean(&RunSummary::avg_forward_mem), mean(&RunSummary::avg_backward_mem),
                     mean(&RunSummary::images_per_s)});
  }
  return table;
}

std::string section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<h2>{}</h2>\n{}", title, body);
}

std::string figures(const DrawnPlots& drawn) {
  std::string out;
  for (const DrawnPlot& plot : drawn.plots) {
    out += fmt::format("<figure id=\"{}\">\n{}", escape_markup(plot.kind), plot.svg);
    if (!plot.figure.data.empty()) {
      out += "<details><summary>numbers</summary>\n" + table_of(plot.figure.data) + "</details>\n";
    }
    out += "</figure>\n";
  }
  return out;
}

std::string list_of(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) {
    out += "<li>" + escape_markup(sentence) + "</li>\n";
  }
  return out.empty() ? "" : "<ul>\n" + out + "</ul>\n";
}

std::string page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>{1}</style></head><body>\n<h1>{0}</h1>\n{2}</body></html>\n",
      escape_markup(title), kStyle, body);
}

}  // namespace

std::string html_report(const std::string& run_folder) {
  const RunData run = read_run(run_folder);
  const RunSet set = group_runs({run});
  std::string body;
  try {
    body = figures(draw_plots(set));
  } catch (const std::exception& error) {  // a run must not end because of its picture
    body = list_of({cat("no plots: ", error.what())});
  }
  body += section("Summary", summary_table(content_of(run_folder + "/summary.json")));
  body += section("Epochs", table_of(table_of_csv(run.epochs)));
  body += section("Layers", table_of(table_of_csv(run.layers)));
  const std::string config = content_of(run_folder + "/config.yaml");
  if (!config.empty()) body += section("Config", "<pre>" + escape_markup(config) + "</pre>\n");
  body += section("Remarks", list_of(set.remarks));
  return page(run.summary ? run.name + " " + run.id : run.name, body);
}

std::string html_report(const std::string& title, const RunSet& set, const DrawnPlots& drawn,
                        const std::vector<RunRow>& rows) {
  std::string body = figures(drawn);
  body += section("Configs", table_of(table_of_groups(set)));
  body += section("Runs", table_of(table_of_rows(rows)) + kMeaning);
  std::vector<std::string> remarks = set.remarks;
  remarks.insert(remarks.end(), drawn.left_out.begin(), drawn.left_out.end());
  body += section("Left out", list_of(remarks));
  return page(title, body);
}

std::string html_report(const std::string& title, const BenchSet& set, const DrawnPlots& drawn) {
  std::vector<std::string> remarks = set.remarks;
  remarks.insert(remarks.end(), drawn.left_out.begin(), drawn.left_out.end());
  return page(title, figures(drawn) + section("Left out", list_of(remarks)));
}

std::string html_report(const std::string& title, const LadderSet&, const DrawnPlots& drawn) {
  return page(title, figures(drawn) + section("Left out", list_of(drawn.left_out)));
}

}  // namespace convscope
