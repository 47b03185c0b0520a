// SPDX-License-Identifier: Apache-2.0
// index_page.cpp: one self-contained page of all runs and sweeps below a folder.
#include "experiments/report/index/index_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "experiments/report/chart/svg_text.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/html/page.h"
#include "experiments/report/html/run_facts.h"
#include "experiments/report/index/index_script.h"
#include "experiments/report/index/sparkline.h"
#include "framework/check.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStyle = R"(
body{max-width:none}table{font-size:14px}th button{font:inherit;font-weight:bold;color:inherit;
background:none;border:0;padding:0;cursor:pointer;text-align:inherit}th button small{display:block}
th button:hover{color:var(--link)}th[aria-sort=ascending] button:after{content:" \25B2"}
th[aria-sort=descending] button:after{content:" \25BC"}
thead th{position:sticky;top:0;background:var(--page)}tbody th{font-weight:normal}
tbody th small,td small{display:block;font-size:12px}
td.long div{white-space:normal;width:260px;display:-webkit-box;
-webkit-box-orient:vertical;-webkit-line-clamp:2;overflow:hidden}
.spark polyline{fill:none;stroke:var(--bar);stroke-width:1.5}.spark circle{fill:var(--bar)}
#finder{display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center;margin:12px 0}
#finder[hidden]{display:none}
#more{font:inherit;font-size:14px;padding:2px 10px}
#search{font:inherit;padding:6px 10px;flex:0 1 440px;min-width:0;
width:100%;color:inherit;background:var(--page);border:1px solid var(--soft);border-radius:5px}
#search::placeholder{color:var(--soft);opacity:1}
.runs{overflow:auto;max-height:calc(100vh - 40px)})";

std::string relative_url(const std::string& path, const std::string& page_folder) {
  std::error_code error;
  const fs::path from = fs::absolute(page_folder, error).lexically_normal();
  const fs::path to = fs::absolute(path, error).lexically_normal();
  return url_of_path(to.lexically_relative(from).generic_string());
}

std::string text_cell(const std::string& text) { return "<td>" + escape_markup(text) + "</td>"; }

// Shows two lines of the text; the tooltip has all of it.
std::string long_cell(const std::string& text) {
  if (text.empty()) return "<td></td>";
  const std::string markup = escape_markup(text);
  return fmt::format("<td class=\"long\"><div title=\"{0}\">{0}</div></td>", markup);
}

// Returns a cell that shows `shown` and holds the exact value for sorting. The cell is empty if the
// value was not measured.
std::string number_cell(double value, const std::string& shown) {
  if (!std::isfinite(value)) return "<td class=\"n\"></td>";
  return fmt::format("<td class=\"n\" data-v=\"{:.9g}\">{}</td>", value, escape_markup(shown));
}

std::string fixed_cell(const std::optional<double>& value, int decimals) {
  const double number = value.value_or(std::nan(""));
  return number_cell(number, fmt::format("{:.{}f}", number, decimals));
}

std::string settings_text(const IndexedRun& run, const char* between) {
  std::string out;
  for (const auto& [key, value] : run.settings) {
    out += cat(out.empty() ? "" : between, key, "=", value);
  }
  return out;
}

struct Column {
  const char* key;
  const char* head;
  const char* unit;  // below the heading
  bool number;
  std::function<std::string(const IndexedRun&)> cell;
};

double timed(const IndexedRun& run, double RunSummary::*value) {
  const bool there = run.row.has_summary && run.row.summary.timed_steps > 0;
  return there ? run.row.summary.*value : std::nan("");
}

std::string whole_cell(const IndexedRun& run, std::int64_t RunSummary::*value) {
  if (!run.row.has_summary) return "<td class=\"n\"></td>";
  const std::int64_t number = run.row.summary.*value;
  return number_cell(static_cast<double>(number), std::to_string(number));
}

std::string epochs_cell(const IndexedRun& run) {
  if (!run.row.has_summary) return "<td class=\"n\"></td>";
  const RunSummary& s = run.row.summary;
  return number_cell(static_cast<double>(s.epochs), cat(s.epochs, "/", s.epochs_planned));
}

std::string state_cell(const IndexedRun& run) {
  return "<td>" + state_badge(run.row.state) + "</td>";
}

std::string curve_cell(const IndexedRun& run) {
  if (run.test_acc.empty()) return "<td></td>";
  const std::string title =
      fmt::format("test accuracy: {:.2f} to {:.2f} % in {} epochs", run.test_acc.front(),
                  run.test_acc.back(), run.test_acc.size());
  return "<td>" + sparkline(run.test_acc, title) + "</td>";
}

std::vector<Column> columns() {
  const auto summary_text = [](std::string RunSummary::*value) {
    return [value](const IndexedRun& run) { return text_cell(run.row.summary.*value); };
  };
  const auto whole = [](std::int64_t RunSummary::*value) {
    return [value](const IndexedRun& run) { return whole_cell(run, value); };
  };
  return {
      {"state", "state", "", false, state_cell},
      {"curve", "test curve", "", false, curve_cell},
      {"acc", "test", "%", true,
       [](const IndexedRun& r) { return fixed_cell(r.row.summary.acc, 2); }},
      {"best_acc", "best", "%", true,
       [](const IndexedRun& r) { return fixed_cell(r.row.summary.best_acc, 2); }},
      {"test_iou", "test IoU", "%", true,
       [](const IndexedRun& r) { return fixed_cell(r.row.summary.test_iou, 2); }},
      {"epochs", "epochs", "", true, epochs_cell},
      {"reason", "why it did not finish", "", false,
       [](const IndexedRun& r) { return long_cell(r.row.reason); }},
      {"avg_step", "step", "ms", true,
       [](const IndexedRun& r) { return fixed_cell(1e3 * timed(r, &RunSummary::avg_step), 3); }},
      {"avg_inference", "inference", "ms a batch", true,
       [](const IndexedRun& r) {
         return fixed_cell(1e3 * r.row.summary.avg_inference.value_or(std::nan("")), 4);
       }},
      {"weight_bytes", "weights", "bytes", true,
       [](const IndexedRun& r) { return fixed_cell(r.row.summary.weight_bytes, 0); }},
      {"images_per_s", "speed", "images/s", true,
       [](const IndexedRun& r) { return fixed_cell(timed(r, &RunSummary::images_per_s), 0); }},
      {"model", "model", "", false, summary_text(&RunSummary::model)},
      {"data", "data", "", false, summary_text(&RunSummary::data)},
      {"algorithm", "convolution", "", false, summary_text(&RunSummary::algorithm)},
      {"execution", "execution", "", false,
       [](const IndexedRun& r) {
         return text_cell(r.row.has_summary ? r.row.summary.execution : "");
       }},
      {"step", "steps run", "", false, summary_text(&RunSummary::step)},
      {"device", "device", "", false, summary_text(&RunSummary::device)},
      {"threads", "threads", "", true, whole(&RunSummary::threads)},
      {"ranks", "processes", "", true, whole(&RunSummary::ranks)},
      {"batch_size", "batch", "", true, whole(&RunSummary::batch_size)},
      {"seed", "seed", "", true, whole(&RunSummary::seed)},
      {"settings", "settings that differ", "", false,
       [](const IndexedRun& r) { return long_cell(settings_text(r, ", ")); }},
      {"tags", "tags", "", false, summary_text(&RunSummary::tags)},
      {"note", "note", "", false,
       [](const IndexedRun& r) { return long_cell(r.row.summary.note); }},
      {"sweep", "sweep", "", false, [](const IndexedRun& r) { return text_cell(r.sweep); }},
      {"project", "your project", "", false,
       [](const IndexedRun& r) { return text_cell(r.project); }},
      {"started", "begun", "UTC", false, [](const IndexedRun& r) { return text_cell(r.started); }},
  };
}

std::string name_cell(const IndexedRun& run, const std::string& page_folder) {
  const RunSummary& s = run.row.summary;
  const std::string name = escape_markup(s.name.empty() ? s.id : s.name);
  const std::string link =
      run.has_page ? fmt::format("<a href=\"{}\">{}</a>",
                                 relative_url(run.row.path + "/report.html", page_folder), name)
                   : name;
  return cat("<th scope=\"row\">", link, "<small>",
             escape_markup(fs::path(run.row.path).filename().string()), "</small></th>");
}

// Returns whether the cell is the empty cell "<td class="n"></td>".
bool is_empty(const std::string& cell) {
  return cell.find('>') + 1 == cell.size() - std::string_view("</td>").size();
}

// Leaves out columns without a value.
std::string runs_table(const RunIndex& index, const std::string& page_folder) {
  std::string head =
      "<div class=\"wide runs\" tabindex=\"0\" role=\"group\" aria-label=\"Runs\"><table "
      "id=\"runs\">\n<thead><tr>"
      "<th scope=\"col\" data-k=\"name\">run</th>";
  std::vector<std::string> rows;
  for (const IndexedRun& run : index.runs) {
    rows.push_back(cat("<tr data-c=\"", escape_markup(settings_text(run, "\n")), "\">",
                       name_cell(run, page_folder)));
  }
  for (const Column& column : columns()) {
    std::vector<std::string> cells;
    for (const IndexedRun& run : index.runs) cells.push_back(column.cell(run));
    if (std::ranges::all_of(cells, is_empty)) continue;
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += cells[i];
    head += fmt::format("<th scope=\"col\" data-k=\"{}\"{}>{}{}</th>", column.key,
                        column.number ? " class=\"n\"" : "", column.head,
                        *column.unit == 0 ? "" : cat("<small>", column.unit, "</small>"));
  }
  std::string out = head + "</tr></thead>\n<tbody>\n";
  for (const std::string& row : rows) out += row + "</tr>\n";
  return out + "</tbody></table></div>\n";
}

std::string sweeps_table(const RunIndex& index, const std::string& page_folder) {
  if (index.sweeps.empty()) return "";
  std::string out =
      std::string(kTableBox) +
      "<table>\n<thead><tr><th scope=\"col\">sweep</th>"
      "<th scope=\"col\">state</th><th scope=\"col\">members</th></tr></thead>\n<tbody>\n";
  for (const IndexedSweep& sweep : index.sweeps) {
    std::string members;
    for (const auto& [state, count] : sweep.members) {
      members += cat(members.empty() ? "" : ", ", count, " ", state == "missing" ? "to do" : state);
    }
    const std::string name = escape_markup(sweep.name);
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
        sweep.page.empty()
            ? name
            : fmt::format("<a href=\"{}\">{}</a>",
                          relative_url(sweep.path + "/" + sweep.page, page_folder), name),
        escape_markup(sweep.state), escape_markup(members));
  }
  return out + "</tbody></table></div>\n";
}

std::string count_of(std::size_t count, const char* what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

std::string url_of_path(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || c == '/' || c == '-' || c == '_' || c == '.' || c == '~') {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string index_page(const std::string& title, const RunIndex& index,
                       const std::string& page_folder) {
  const std::string runs = count_of(index.runs.size(), "run");
  const std::string finder =
      "<div id=\"finder\" hidden><label class=\"hidden\" for=\"search\">Search</label>"
      "<input id=\"search\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\" "
      "placeholder=\"lenet  model:resnet18  lr:0.05  acc&gt;98  -failed\">"
      "<span id=\"count\" role=\"status\">" +
      runs +
      "</span><button id=\"more\" type=\"button\" hidden></button><small>All words must be found. "
      "key:value searches one column or setting, acc&gt;98 "
      "compares, -word excludes. Click a heading to sort.</small></div>\n";
  Page page{.title = title,
            .lead = cat("<p>", runs, ", ", count_of(index.sweeps.size(), "sweep"), ".</p>\n")};
  page.sections = {
      {.id = "sweeps", .title = "Sweeps", .body = sweeps_table(index, page_folder)},
      {.id = "all_runs", .title = "Runs", .body = finder + runs_table(index, page_folder)}};
  page.style = kStyle;
  page.script = kIndexScript;
  return to_html(page);
}

}  // namespace convscope
