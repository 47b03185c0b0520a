// SPDX-License-Identifier: Apache-2.0
// html_report.cpp: self-contained pages: facts, all plots with their numbers, and tables.
#include "experiments/report/html/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/config_section.h"
#include "experiments/report/html/layer_section.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/html/page.h"
#include "experiments/report/html/run_facts.h"

namespace convscope {
namespace {

using json = nlohmann::ordered_json;

constexpr const char* kMeaning =
    "<p>avg_forward and avg_backward are mean wall seconds of a training step (forward includes "
    "the loss; the first steps of each process are left out); a step whose phases cannot be timed "
    "apart has avg_step only. avg_inference is the median of a batch in inference, as executed, "
    "without loss and loader. avg_forward_mem is what a forward pass leaves allocated, "
    "avg_backward_mem the peak in use during a backward pass (data sets not counted), both in MiB; "
    "accuracies in percent, losses in the unit of train.loss.</p>\n";

std::string cell_text(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number_text(value.get<double>(), 5);
  return value.dump();
}

std::string summary_table(const std::string& text) {
  const json summary = json::parse(text, nullptr, false);
  if (!summary.is_object()) return "";
  std::string out =
      cat("<details><summary>every value of summary.json</summary>\n", kTableBox, "<table>\n");
  for (const auto& [key, value] : summary.items()) {
    const std::string unit = value.is_number() ? unit_of(key) : "";
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}{}</td></tr>\n", escape_markup(key),
                       escape_markup(cell_text(value)), unit.empty() ? "" : " " + unit);
  }
  return out + "</table></div></details>\n" + kMeaning;
}

// Returns the table without empty columns, with rounded numbers.
HtmlTable table_of_csv(const CsvTable& csv) {
  HtmlTable table(csv.rows.size() + 1);
  for (std::size_t column = 0; column < csv.columns.size(); ++column) {
    const auto is_empty = [&](const auto& row) { return row[column].empty(); };
    if (std::ranges::all_of(csv.rows, is_empty)) continue;
    table[0].push_back(csv.columns[column]);
    for (std::size_t row = 0; row < csv.rows.size(); ++row) {
      const std::string& cell = csv.rows[row][column];
      const double value = number_in(cell);
      table[row + 1].push_back(std::isfinite(value) ? number_text(value, 5) : cell);
    }
  }
  return table[0].empty() ? HtmlTable() : table;
}

HtmlTable table_of_rows(const std::vector<RunRow>& rows) {
  const std::vector<std::string> columns = reading_columns(rows);
  HtmlTable table = {columns};
  for (const json& row : json::parse(to_json(rows, columns), nullptr, false)) {
    table.emplace_back();
    for (const std::string& column : columns) {
      table.back().push_back(row.contains(column) ? cell_text(row[column]) : "");
    }
  }
  return table;
}

HtmlTable table_of_groups(const RunSet& set) {
  HtmlTable table = {{"config", "runs", "acc", "avg_forward", "avg_backward", "avg_forward_mem",
                      "avg_backward_mem", "images_per_s", "avg_inference", "weight_bytes"}};
  for (const RunGroup& group : set.groups) {
    const auto timed_value = [](double RunSummary::*value) {
      return [value](const RunSummary& summary) {
        return summary.timed_steps > 0 ? summary.*value : std::nan("");
      };
    };
    const auto mean = [&](double RunSummary::*value) {
      return spread_text(group.summary_spread(timed_value(value)));
    };
    const auto median = [&](double RunSummary::*value) {
      return spread_text(group.time_spread(timed_value(value)));
    };
    const auto at_end = [](std::optional<double> RunSummary::*value) {
      return [value](const RunSummary& summary) { return (summary.*value).value_or(std::nan("")); };
    };
    table.push_back({group.label + (group.disturbed() > 0 ? "*" : ""),
                     std::to_string(group.runs.size()),
                     spread_text(group.summary_spread(at_end(&RunSummary::acc))),
                     median(&RunSummary::avg_forward), median(&RunSummary::avg_backward),
                     mean(&RunSummary::avg_forward_mem), mean(&RunSummary::avg_backward_mem),
                     median(&RunSummary::images_per_s),
                     spread_text(group.time_spread(at_end(&RunSummary::avg_inference))),
                     spread_text(group.summary_spread(at_end(&RunSummary::weight_bytes)))});
  }
  return table;
}

// Explains the numbers of table_of_groups().
std::string groups_note(const RunSet& set) {
  std::vector<const RunGroup*> groups;
  for (const RunGroup& group : set.groups) groups.push_back(&group);
  std::vector<std::string> notes;
  for (const std::string& note : {spread_note(groups), load_note(groups)}) {
    if (!note.empty()) notes.push_back(note);
  }
  return html_list(notes);
}

// On a narrow screen a figure scrolls in its box, so that letters stay readable.
PageSection figures(const DrawnPlots& drawn) {
  PageSection section{.id = "figures", .title = "Figures", .body = ""};
  for (const DrawnPlot& plot : drawn.plots) {
    const std::string id = escape_markup(plot.kind), title = escape_markup(plot.figure.title);
    section.parts.emplace_back(plot.kind, plot.figure.title);
    section.body += fmt::format(
        "<figure id=\"{0}\"><h3 class=\"hidden\">{1}</h3>\n<div class=\"plot\" tabindex=\"0\" "
        "role=\"group\" aria-label=\"{1}\">\n{2}</div>\n",
        id, title, plot.svg);
    if (!plot.figure.data.empty()) {
      section.body += "<details><summary>numbers of this figure</summary>\n" +
                      html_table(plot.figure.data) + "</details>\n";
    }
    section.body += "</figure>\n";
  }
  return section;
}

std::vector<std::string> with(std::vector<std::string> sentences,
                              const std::vector<std::string>& more) {
  sentences.insert(sentences.end(), more.begin(), more.end());
  return sentences;
}

// Returns the config with the largest or the smallest mean (for times: median); "" when no run has
// a value above 0.
Fact extreme(const char* name, const RunSet& set, bool largest, bool is_time,
             const std::function<double(const RunSummary&)>& value,
             const std::function<std::string(double)>& text) {
  Fact fact{.name = name, .value = ""};
  double best = 0;
  for (const RunGroup& group : set.groups) {
    const Spread spread = is_time ? group.time_spread(value) : group.summary_spread(value);
    if (!(spread.mean > 0)) continue;
    if (best > 0 && (largest ? spread.mean <= best : spread.mean >= best)) continue;
    best = spread.mean;
    fact.value = text(best);
    fact.more = name_with_count(group);
  }
  return fact;
}

// Returns a table of the problems that each algorithm refuses; one row per reason.
std::string refusals(const BenchSet& set) {
  std::map<std::vector<std::string>, std::vector<std::string>> problems;
  for (const BenchedRefusal& one : set.refusals) {
    problems[{one.algorithm, std::string(name_of(one.direction)), set.settings[one.setting].label,
              one.reason}]
        .push_back(set.names[one.problem]);
  }
  if (problems.empty()) return "";
  HtmlTable table = {{"algorithm", "direction", "measured with", "problems", "reason"}};
  for (const auto& [key, names] : problems) {
    const std::string count = names.size() == 1 ? names[0] : cat(names.size(), " problems");
    table.push_back({key[0], key[1], key[2], count, key[3]});
  }
  return cat("<details><summary>refused problems, and why</summary>\n", html_table(table),
             "</details>\n");
}

// Returns a sentence that counts the runs and names the best config by accuracy, time and other
// quantities.
std::string lead_of(const RunSet& set, const std::vector<RunRow>& rows) {
  std::size_t undone = 0;
  for (const RunRow& row : rows) undone += row.state == "DONE" ? 0 : 1;
  std::string out = cat(rows.size(), rows.size() == 1 ? " run of " : " runs of ", set.groups.size(),
                        set.groups.size() == 1 ? " config" : " configs");
  if (undone > 0) out += cat("; ", undone, undone == 1 ? " is" : " are", " not done");
  std::vector<Fact> facts = {
      extreme(
          "Best test accuracy", set, true, false,
          [](const RunSummary& s) { return s.acc.value_or(std::nan("")); },
          [](double acc) { return percent_text(acc); }),
      extreme(
          "Shortest training step", set, false, true,
          [](const RunSummary& s) { return s.timed_steps > 0 ? s.avg_step : std::nan(""); },
          seconds_text),
      extreme(
          "Shortest inference of a batch", set, false, true,
          [](const RunSummary& s) { return s.avg_inference.value_or(std::nan("")); }, seconds_text),
      extreme(
          "Lowest memory of a step", set, false, false,
          [](const RunSummary& s) { return s.timed_steps > 0 ? s.avg_backward_mem : std::nan(""); },
          mib_text)};
  // Adds a fact if all runs agree.
  const auto add_common = [&](const char* name, std::string RunSummary::*value) {
    std::string first;
    for (const RunRow& row : rows) {
      if (!row.has_summary) continue;
      if (!first.empty() && row.summary.*value != first) return;
      first = row.summary.*value;
    }
    facts.push_back({.name = name, .value = first});
  };
  add_common("Data", &RunSummary::data);
  add_common("Model", &RunSummary::model);
  add_common("Execution", &RunSummary::execution);
  add_common("Device", &RunSummary::device);
  return "<p>" + escape_markup(out) + ".</p>\n" + html_facts(facts);
}

// Returns the first part of a page of benchmarks: a sentence about what was measured, warnings
// about the numbers, and for each file the time of measurement and the settings.
std::string lead_of(const std::vector<BenchHead>& heads, const std::string& sentence) {
  std::string out = "<p>" + escape_markup(sentence) + ".</p>\n";
  std::vector<std::string> warnings;
  for (const BenchHead& head : heads) warnings = with(std::move(warnings), head.warnings());
  if (!warnings.empty()) {
    out += cat("<div class=\"note\" role=\"note\" aria-label=\"Warnings\">\n", html_list(warnings),
               "</div>\n");
  }
  for (const BenchHead& head : heads) {
    const std::string others =
        head.cores_of_others ? fmt::format("other programs: {:.2f} cores", *head.cores_of_others)
                             : "";
    out += html_facts(
        {{"File", head.file, head.complete ? "" : "not complete"},
         {"Measured", head.started, "UTC"},
         {"Device", cat(head.device, head.device_name.empty() ? "" : ": ", head.device_name),
          cat(head.threads > 0 ? cat(head.threads, head.threads == 1 ? " thread" : " threads") : "",
              head.isa.empty() ? "" : ", " + head.isa)},
         {"Cores", head.cores > 0 ? cat(head.cores) : "", others},
         {"Settings", head.settings, ""},
         {"Program", head.version, head.commit.empty() ? "" : "built from " + head.commit},
         {"Your project", head.project, ""},
         {"Command", head.command, ""}});
  }
  return out;
}

}  // namespace

std::string html_report(const std::string& run_folder) {
  const RunData run = read_run(run_folder);
  const RunSet set = group_runs({run});
  Page page{.title = run.name, .subtitle = run.id, .lead = run_facts(run)};
  try {
    page.sections.push_back(figures(draw_plots(set)));
  } catch (const std::exception& error) {  // a failed picture must not end a run
    page.sections.push_back({.id = "figures",
                             .title = "Figures",
                             .body = html_list({cat("no plots: ", error.what())})});
  }
  page.sections.push_back({.id = "layer-table", .title = "Layers", .body = layer_section(run)});
  page.sections.push_back(
      {.id = "epochs", .title = "Epochs", .body = html_table(table_of_csv(run.epochs))});
  page.sections.push_back({.id = "config",
                           .title = "Config",
                           .body = config_section(file_text(run_folder + "/config.yaml"))});
  page.sections.push_back({.id = "summary",
                           .title = "Summary",
                           .body = summary_table(file_text(run_folder + "/summary.json"))});
  page.sections.push_back({.id = "remarks", .title = "Remarks", .body = html_list(set.remarks)});
  return to_html(page);
}

std::string html_report(const std::string& title, const RunSet& set, const DrawnPlots& drawn,
                        const std::vector<RunRow>& rows) {
  Page page{.title = title, .lead = lead_of(set, rows)};
  page.sections = {
      figures(drawn),
      {.id = "configs",
       .title = "Configs",
       .body = html_table(table_of_groups(set)) + groups_note(set)},
      {.id = "runs", .title = "Runs", .body = html_table(table_of_rows(rows)) + kMeaning},
      {.id = "left_out",
       .title = "Left out",
       .body = html_list(with(set.remarks, drawn.left_out))}};
  return to_html(page);
}

std::string html_report(const BenchSet& set, const DrawnPlots& drawn) {
  return to_html({.title = bench_title(set.heads),
                  .lead = lead_of(set.heads, set.text()),
                  .sections = {figures(drawn),
                               {.id = "refused", .title = "Refused", .body = refusals(set)},
                               {.id = "left_out",
                                .title = "Left out",
                                .body = html_list(with(set.remarks, drawn.left_out))}}});
}

std::string html_report(const LadderSet& set, const DrawnPlots& drawn) {
  return to_html(
      {.title = bench_title(set.heads),
       .lead = lead_of(set.heads, cat(set.ladders.size(), " measured from the lesson up")),
       .sections = {figures(drawn),
                    {.id = "left_out", .title = "Left out", .body = html_list(drawn.left_out)}}});
}

}  // namespace convscope
