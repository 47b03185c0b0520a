// SPDX-License-Identifier: Apache-2.0
// plot_command.cpp: `convscope plot`: figures (SVG, PNG, PDF) and a report.html from run folders,
// or from the JSON files of `convscope bench OPERATOR`.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "experiments/cli/command.h"
#include "experiments/config/shipped/shipped_configs.h"
#include "experiments/operators/operator_table.h"
#include "experiments/report/chart/convert_svg.h"
#include "experiments/report/html/html_report.h"
#include "experiments/run_folder/files/own_file.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_search.h"
#include "framework/io/atomic_file.h"
#include "framework/io/output_place.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

struct PlotArguments {
  std::vector<std::string> runs, kinds, formats;
  std::string output, html;
  int width = 0, dpi = 192;  // width 0: not given
  bool paper = false;
};

const std::vector<std::string> kFormats = {"svg", "png", "pdf"};

// Returns "png" for "a/b.png"; "" when the name ends in no format.
std::string format_of(const std::string& path) {
  for (const std::string& format : kFormats) {
    if (path.ends_with("." + format)) return format;
  }
  return "";
}

fs::path clean(const std::string& path) {
  fs::path out = fs::path(path).lexically_normal();
  return out.filename().empty() ? out.parent_path() : out;
}

std::vector<std::string> runs_in(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& path : given) {
    std::error_code error;
    const std::vector<std::string> found = find_runs(path);
    if (found.empty() && !fs::is_directory(path, error)) {
      fail(ErrorKind::kIo, "plot",
           cat("expected a run folder, a folder of runs or a benchmark's JSON file, because the "
               "plots are made from them, got ",
               path, ", which is no folder and no file"));
    }
    if (found.empty()) {
      fail(ErrorKind::kIo, "plot", cat("expected at least one run in ", path, ", got none"));
    }
    for (const std::string& run : found) {
      if (std::find(out.begin(), out.end(), run) == out.end()) out.push_back(run);
    }
  }
  return out;
}

// Returns the deepest common folder of the arguments.
fs::path folder_of(const std::vector<std::string>& given) {
  fs::path common = clean(given[0]);
  for (const std::string& path : given) {
    const fs::path other = clean(path);
    fs::path both;
    auto a = common.begin();
    auto b = other.begin();
    for (; a != common.end() && b != other.end() && *a == *b; ++a, ++b) both /= *a;
    common = both;
  }
  return common.empty() ? "." : common;
}

void remark(const std::string& sentence) { print_remark("note: " + sentence); }

void make_folder_of(const fs::path& path) {
  if (path.has_parent_path()) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      fail(ErrorKind::kIo, "plot",
           cat("expected to make the folder ", path.parent_path().string(),
               ", got: ", error.message()));
    }
  }
}

void write(const fs::path& path, const std::string& text) {
  make_folder_of(path);
  write_file(path.string(), text);
  print_result(path.string() + "\n");
}

// Returns whether -o names one file; several figures need a folder.
bool to_one_file(const PlotArguments& arguments) { return !format_of(arguments.output).empty(); }

// Writes a figure in the format of the path's extension.
void write_figure(const PlotArguments& arguments, const std::string& svg, const fs::path& path) {
  if (format_of(path.string()) == "svg") return write(path, svg);
  make_folder_of(path);
  convert_svg(svg, path.string(), arguments.dpi);
  print_result(path.string() + "\n");
}

// Removes a figure that can no longer be drawn, because it would show old numbers next to new ones.
void remove_old(const DrawnPlots& drawn, const std::string& sentence, const fs::path& folder) {
  const std::string kind = sentence.substr(0, sentence.find(':'));  // "steps: no run has ..."
  const auto is_it = [&](const DrawnPlot& plot) { return plot.kind == kind; };
  if (plot_kinds().find(kind) == nullptr || std::ranges::any_of(drawn.plots, is_it)) return;
  for (const std::string& format : kFormats) {
    const fs::path old = folder / cat(kind, ".", format);
    std::error_code error;
    if (fs::remove(old, error)) remark(cat(kind, ": the old ", old.string(), " is removed"));
  }
}

// Prints remarks to stderr; writes figures to `folder` unless -o names another place.
void write_figures(const PlotArguments& arguments, const std::vector<std::string>& remarks,
                   const DrawnPlots& drawn, const std::string& given, const fs::path& folder) {
  for (const std::string& sentence : remarks) remark(sentence);
  if (arguments.output.empty()) refuse_link(folder.string());
  for (const std::string& sentence : drawn.left_out) {
    remark(sentence);
    if (!to_one_file(arguments)) remove_old(drawn, sentence, folder);
  }
  if (drawn.plots.empty()) {
    fail(ErrorKind::kData, "plot",
         cat("expected files that at least one plot can be made from, because ", given,
             " given, got ", join(drawn.left_out, "; ")));
  }
  for (const DrawnPlot& each : drawn.plots) {
    Figure figure = each.figure;
    figure.width = arguments.width > 0 ? arguments.width : kFigureWidth;
    figure.paper = arguments.paper;
    const bool drawn_so = !figure.paper && figure.width == each.figure.width;
    const std::string svg = drawn_so ? each.svg : to_svg(figure);
    if (arguments.paper) remark(cat("caption of ", each.kind, ": ", caption_of(figure)));
    if (to_one_file(arguments)) {
      write_figure(arguments, svg, arguments.output);
      continue;
    }
    for (const std::string& format : kFormats) {
      const fs::path path = arguments.output.empty()
                                ? fs::path(own_path(folder.string(), cat(each.kind, ".", format)))
                                : folder / cat(each.kind, ".", format);
      std::error_code error;
      if (std::ranges::find(arguments.formats, format) != arguments.formats.end()) {
        write_figure(arguments, svg, path);
      } else if (fs::exists(path, error)) {
        remark(
            cat(path.string(), " is not drawn again, because --format does not include ", format));
      }
    }
  }
}

// Returns whether the page of all plots is written. If --kind selects some plots, or -o names a
// single file, the page is written only with --html.
bool wants_page(const PlotArguments& arguments) {
  return !arguments.html.empty() || (!to_one_file(arguments) && arguments.kinds.empty());
}

// Draws benchmark files of one kind.
template <typename Set>
int plot_files(const PlotArguments& arguments, const Set& set,
               const std::vector<std::string>& remarks) {
  const DrawnPlots drawn = draw_plots(set, arguments.kinds);
  const fs::path first(arguments.runs[0]);
  const fs::path folder = arguments.output.empty()
                              ? first.parent_path() / (first.stem().string() + "_plots")
                              : clean(arguments.output);
  const std::size_t count = arguments.runs.size();
  const std::string given = count == 1 ? "one file was" : cat(count, " files were");
  write_figures(arguments, remarks, drawn, given, folder);
  if (wants_page(arguments)) {
    write(arguments.html.empty() ? folder / "report.html" : fs::path(arguments.html),
          html_report(set, drawn));
  }
  return 0;
}

int plot_bench(const PlotArguments& arguments) {
  if (is_ladder_file(arguments.runs[0])) {
    return plot_files(arguments, read_ladders(arguments.runs), {});
  }
  const BenchSet set = read_bench(arguments.runs);
  return plot_files(arguments, set, set.remarks);
}

int plot_runs(const PlotArguments& arguments) {
  const std::vector<std::string> paths = runs_in(arguments.runs);
  std::vector<RunData> runs;
  std::vector<RunRow> rows;
  for (const std::string& path : paths) {
    runs.push_back(read_run(path));
    rows.push_back(read_run_row(path));
  }
  const RunSet set = group_runs(std::move(runs));
  const DrawnPlots drawn = draw_plots(set, arguments.kinds);
  const fs::path base = folder_of(arguments.runs);
  const fs::path folder = arguments.output.empty() ? base / "plots" : clean(arguments.output);
  const std::string given = paths.size() == 1 ? "1 run was" : cat(paths.size(), " runs were");
  write_figures(arguments, set.remarks, drawn, given, folder);
  if (!wants_page(arguments)) return 0;
  const fs::path page = !arguments.html.empty() ? fs::path(arguments.html)
                        : arguments.output.empty()
                            ? fs::path(own_path(base.string(), "report.html"))
                            : folder / "report.html";
  const bool one_run = paths.size() == 1 && arguments.kinds.empty();
  const fs::path named = fs::absolute(base).lexically_normal();
  write(page,
        one_run ? html_report(paths[0]) : html_report(named.filename().string(), set, drawn, rows));
  return 0;
}

int plot(PlotArguments arguments) {
  for (const std::string& kind : arguments.kinds) {
    plot_kinds().get(kind, ErrorKind::kInvalid);
  }
  if (to_one_file(arguments) && arguments.kinds.size() != 1) {
    fail_usage("plot", cat("expected one --kind, because -o names one file, ", arguments.output,
                           "; give a folder for several"));
  }
  const std::string type = fs::path(arguments.output).extension().string();
  for (const char* other : {".jpg", ".jpeg", ".gif", ".webp", ".eps", ".ps", ".tiff", ".html"}) {
    if (type != other) continue;
    fail_usage("plot", cat("expected -o FILE.svg, FILE.png, FILE.pdf or a folder, because figures "
                           "have these formats, got '",
                           arguments.output, "'; --html names the page"));
  }
  for (const std::string& format : arguments.formats) {
    if (std::ranges::find(kFormats, format) != kFormats.end()) continue;
    fail_usage("plot",
               cat("expected --format svg, png, pdf or some of them joined by commas, got '",
                   format, "'"));
  }
  if (arguments.paper && arguments.width > 0) {
    fail_usage("plot", cat("expected --width or --paper, because --paper draws figures ",
                           kPaperMillimetres, " mm wide, got both"));
  }
  const std::string own = format_of(arguments.output);
  if (!own.empty() && !arguments.formats.empty() &&
      arguments.formats != std::vector<std::string>{own}) {
    fail_usage("plot", cat("expected --format ", own, " or none, because -o names ",
                           arguments.output, ", got ", join(arguments.formats, ",")));
  }
  if (arguments.formats.empty()) arguments.formats = {own.empty() ? "svg" : own};
  // Options are checked before runs are read and before any file is written.
  const bool converts = std::ranges::any_of(
      arguments.formats, [](const std::string& format) { return format != "svg"; });
  if (converts && svg_converter().empty()) {
    fail(ErrorKind::kIo, "plot",
         cat("expected the program rsvg-convert in PATH, because it makes PNG and PDF, got none; "
             "install the package librsvg2-bin, or use only SVG"));
  }
  if (!arguments.output.empty()) {
    const fs::path parent = fs::path(arguments.output).parent_path();
    check_output_folder(!own.empty() ? (parent.empty() ? "." : parent.string()) : arguments.output);
  }
  if (const fs::path page = arguments.html; !page.empty()) {
    check_output_folder(page.has_parent_path() ? page.parent_path().string() : ".");
  }
  const auto files = std::count_if(arguments.runs.begin(), arguments.runs.end(), is_file);
  if (files == 0) return plot_runs(arguments);
  if (static_cast<std::size_t>(files) != arguments.runs.size()) {
    fail_usage(
        "plot",
        "expected run folders or benchmark files, because one page shows one kind, got both");
  }
  return plot_bench(arguments);
}

std::function<int()> declare_plot(CommandLine& app) {
  auto arguments = std::make_shared<PlotArguments>();
  app.add_option("RUN", arguments->runs,
                 "run folders, folders of runs (runs/<name>), or runs/ as a whole; or files of " +
                     operator_bench_commands(/*quoted=*/false))
      ->required();
  std::string kinds = "figures (default: all that the files permit), from runs:";
  std::string bench_kinds = "\nfrom bench files:";
  std::string ladder_kinds = "\nfrom bench --ladder files:";
  for (const std::string& name : plot_kind_names()) {
    const PlotKind& kind = plot_kinds().get(name);
    std::string& list = kind.draw ? kinds : kind.draw_bench ? bench_kinds : ladder_kinds;
    list += cat("\n  ", name, ": ", kind.summary);
  }
  kinds += bench_kinds + ladder_kinds;
  app.add_option("-k,--kind", arguments->kinds, kinds)->type_name("K,...")->delimiter(',');
  app.add_option("-o,--output", arguments->output,
                 "folder for the figures, or one file .svg, .png or .pdf (default: RUN/plots; for "
                 "bench.json: bench_plots)")
      ->type_name("PATH");
  app.add_option(
         "--format", arguments->formats,
         "formats: svg, png, pdf, joined by commas (default svg); png and pdf need the program "
         "rsvg-convert (package librsvg2-bin); for LaTeX: \\includegraphics{curves.pdf}")
      ->type_name("F,...")
      ->delimiter(',');
  app.add_option("--width", arguments->width,
                 cat("width of a figure in pixels, 96 per inch (default ", kFigureWidth,
                     "); a narrow figure has fewer columns, with letters of the same size"))
      ->type_name("N")
      ->range(kNarrowest, 4000);
  app.add_flag("--paper", arguments->paper,
               cat("figures for one column of a paper: ", kPaperMillimetres,
                   " mm wide, 8-point letters; title and notes go to stderr, for the caption"));
  app.add_option("--dpi", arguments->dpi, "resolution of a PNG in pixels per inch (default 192)")
      ->type_name("N")
      ->range(48, 1200);
  app.add_option(
         "--html", arguments->html,
         "output page with all plots and tables (default: report.html in RUN or bench_plots)")
      ->type_name("FILE");
  return [arguments] { return plot(*arguments); };
}

}  // namespace
}  // namespace convscope

CONVSCOPE_REGISTER_COMMAND(
    "plot", {.summary = "Draw figures and an HTML report from runs or benchmarks.",
             .usage = "plot RUN...|BENCH.json... [--kind K,...] [-o DIR|FILE] [--format F,...]",
             .examples = {"plot runs/quickstart", "plot runs/a runs/b --kind pareto -o pareto.svg",
                          "plot runs/quickstart --format svg,pdf --width 480",
                          "plot runs/quickstart --format pdf --paper",
                          "plot bench_1.json bench_2.json --kind heatmap"},
             .order = 35,
             .group = "See results",
             .declare = convscope::declare_plot})
