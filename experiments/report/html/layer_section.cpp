// SPDX-License-Identifier: Apache-2.0
// layer_section.cpp: layers.csv on a run's page.
#include "experiments/report/html/layer_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/markup.h"
#include "framework/check.h"

namespace convscope {
namespace {

constexpr double kWidestBar = 90;  // pixels
// Columns with a special format; all others are shown as in the file.
constexpr const char* kMeasured[] = {"forward_ms", "backward_ms", "kept_mib", "timed_with"};

double at_least_0(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

struct LayerTimes {
  double forward = 0, backward = 0;  // ms, of all layers
  double longest = 0;                // longest of one layer in one direction
  double step = 0;                   // ms, the whole of the shares
  bool is_step_mean = false;         // whether step is the mean step, not a sum of layers
};

LayerTimes times_of(const RunData& run) {
  LayerTimes times;
  for (std::size_t row = 0; row < run.layers.rows.size(); ++row) {
    const double forward = at_least_0(run.layers.number(row, "forward_ms"));
    const double backward = at_least_0(run.layers.number(row, "backward_ms"));
    times.forward += forward;
    times.backward += backward;
    times.longest = std::max({times.longest, forward, backward});
  }
  times.is_step_mean = run.summary && run.summary->timed_steps > 0 && run.summary->avg_step > 0;
  times.step = times.is_step_mean ? 1e3 * run.summary->avg_step : times.forward + times.backward;
  return times;
}

std::string time_cell(double ms, double longest, const char* look) {
  if (!std::isfinite(ms)) return "<td class=\"n\"></td>";
  return fmt::format(
      "<td class=\"m\">{:.4f}<span class=\"bar{}\" style=\"width:{:.0f}px\"></span></td>", ms, look,
      longest > 0 ? kWidestBar * ms / longest : 0);
}

std::string measured_cells(const CsvTable& layers, std::size_t row, const LayerTimes& times) {
  const double forward = layers.number(row, "forward_ms");
  const double backward = layers.number(row, "backward_ms");
  const std::string with = layers.text(row, "timed_with") == layers.text(row, "layer")
                               ? ""
                               : layers.text(row, "timed_with");
  if (!std::isfinite(forward) && !std::isfinite(backward)) {
    return "<td colspan=\"3\"><small>" +
           (with.empty() ? "" : "in the time of " + escape_markup(with)) + "</small></td>";
  }
  const double share = (at_least_0(forward) + at_least_0(backward)) / times.step;
  return time_cell(forward, times.longest, "") + time_cell(backward, times.longest, " b") +
         fmt::format("<td class=\"n\">{:.1f} %{}</td>", 100 * share,
                     with.empty() ? "" : "<small>a part is in " + escape_markup(with) + "</small>");
}

std::string plain_table(const CsvTable& layers) {
  HtmlTable table = {layers.columns};
  table.insert(table.end(), layers.rows.begin(), layers.rows.end());
  return html_table(table);
}

// Returns a sentence that explains by how much a step takes longer than the sum of its layers, and
// why. Returns "" when the difference is small. A compiled step with one thread has no such
// difference.
std::string rest_sentence(const RunSummary& summary, const LayerTimes& times) {
  constexpr double kNoteworthy = 0.1;  // fraction of the step
  if (summary.timed_steps == 0 || summary.phases != "timed apart") return "";
  const double forward = 1e3 * summary.avg_forward - times.forward;
  const double backward = 1e3 * summary.avg_backward - times.backward;
  if (!(forward + backward > kNoteworthy * times.step)) return "";
  std::string out = fmt::format(
      " A step's forward takes {:.3f} ms and its backward {:.3f} ms, {:.3f} and {:.3f} ms longer "
      "than the layers: the rest belongs to no layer.",
      1e3 * summary.avg_forward, 1e3 * summary.avg_backward, forward, backward);
  if (summary.step == "dynamic") out += " A dynamic step also builds its graph in that time.";
  if (summary.threads > 1) {
    out += cat(" It is the time to wake ", summary.threads,
               " threads and to wait for the last of them",
               summary.disturbed() ? ", which other programs on the cores prolonged." : ".");
  }
  return out;
}

std::string closing_sentence(const RunData& run, const LayerTimes& times) {
  const double sum = times.forward + times.backward;
  std::string out =
      fmt::format("<p>All rows together take {:.3f} ms forward and {:.3f} ms backward",
                  times.forward, times.backward);
  if (times.is_step_mean) {
    out +=
        fmt::format(": {:.0f} % of the mean step of {:.3f} ms", 100 * sum / times.step, times.step);
  }
  out +=
      ". Times are means over some steps of the run. A kernel that computes several layers has its "
      "time in the row of one of them.";
  if (run.summary) out += rest_sentence(*run.summary, times);
  if (run.summary && run.summary->device.starts_with("cuda")) {
    out +=
        " The kernels of such a step do not overlap, so the rows together may take longer than a "
        "step.";
  }
  return out + "</p>\n";
}

}  // namespace

std::string layer_section(const RunData& run) {
  const CsvTable& layers = run.layers;
  if (layers.empty()) return "";
  const LayerTimes times = times_of(run);
  if (!(times.forward + times.backward > 0) || !(times.step > 0)) return plain_table(layers);
  std::vector<std::string> shown;
  for (const std::string& column : layers.columns) {
    if (std::ranges::find(kMeasured, column) == std::end(kMeasured)) shown.push_back(column);
  }
  std::string out = std::string(kTableBox) + "<table>\n<thead><tr>";
  const auto head = [&](const std::string& name, const char* unit) {
    out += cat("<th scope=\"col\">", escape_markup(name), "<small>", unit, "</small></th>");
  };
  head(shown.empty() ? "" : shown[0], "");
  head("forward", "ms");
  head("backward", "ms");
  head("share", times.is_step_mean ? "of the step" : "of all layers");
  head("kept", "MiB");
  for (std::size_t i = 1; i < shown.size(); ++i) {
    const bool kernel =
        shown[i] == "forward" || shown[i].starts_with("backward") || shown[i] == "inference";
    head(shown[i], kernel ? "kernel" : shown[i] == "kernel" ? "size" : "");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t row = 0; row < layers.rows.size(); ++row) {
    const auto cell = [&](const std::string& column) {
      return cat("<td>", escape_markup(layers.text(row, column)), "</td>");
    };
    out += "<tr>" + (shown.empty() ? "<td></td>" : cell(shown[0])) +
           measured_cells(layers, row, times) + "<td class=\"n\">" +
           escape_markup(layers.text(row, "kept_mib")) + "</td>";
    for (std::size_t i = 1; i < shown.size(); ++i) out += cell(shown[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n" + closing_sentence(run, times);
}

}  // namespace convscope
