// SPDX-License-Identifier: Apache-2.0
// plots_test.cpp: every kind of plot, drawn from generated run folders.
#include <algorithm>
#include <filesystem>

#include "experiments/cli/cli.h"
#include "experiments/report/chart/convert_svg.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/html/html_report.h"
#include "experiments/report/plot_kind.h"
#include "experiments/run_folder/run_search.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/svg_geometry.h"
#include "tests/experiments/report/xml_check.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

RunSet runs_below(const std::string& root) {
  std::vector<RunData> runs;
  for (const std::string& folder : find_runs(root)) runs.push_back(read_run(folder));
  return group_runs(std::move(runs));
}

void add_tables(const std::string& folder) {
  write_text(folder + "/sparsity.csv",
             "step,wanted,layer,density\n0,0,c1,1\n0,0,total,1\n10,0.9,c1,0.1\n10,0.9,total,0.1\n");
  write_text(folder + "/quant.csv",
             "step,epoch,layer,tensor,bits,signed,step_size_min,step_size_mean,step_size_max,"
             "saturated_percent\n"
             "1,1,c1,weight,4,1,0.1,0.2,0.3,0\n1,1,c1,input,8,0,1,1,1,0\n"
             "20,2,c1,weight,4,1,0.2,0.3,0.5,0\n20,2,c1,input,8,0,2,2,2,0\n");
  write_text(folder + "/confusion.csv", "true_class,cat,dog\ncat,3,1\ndog,0,6\n");
}

void add_layer_times(const std::string& folder) {
  write_text(folder + "/layers.csv",
             "layer,kind,step,forward_ms,backward_ms,kept_mib,timed_with\n"
             "c1,conv2d,planned,0.5,0.75,2,\nr1,relu,planned,,,,c1\n"
             "f2,linear,planned,0.25,0.125,1,\n");
}

const DrawnPlot* find(const DrawnPlots& drawn, const std::string& kind) {
  for (const DrawnPlot& plot : drawn.plots) {
    if (plot.kind == kind) return &plot;
  }
  return nullptr;
}

TEST(Plots, every_file_in_the_folder_is_a_registered_kind) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(CONVSCOPE_SOURCE_DIR) +
                                                               "/experiments/report/plots")) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with("_plot.cpp")) files.push_back(name.substr(0, name.size() - 9));
  }
  std::sort(files.begin(), files.end());
  EXPECT_EQ(files, plot_kinds().names());
}

TEST(Plots, all_kinds_are_well_formed_whatever_the_number_of_configs) {
  for (const int configs : {1, 2, 9, 30}) {
    const TemporaryFolder root;
    for (int i = 0; i < configs; ++i) {
      for (const int seed : {1, 2}) {
        const std::string folder = write_run(root.path(), {.name = cat("<a & b>-", i),
                                                           .seed = seed,
                                                           .test_acc = 70.0 + i * 0.5 + seed,
                                                           .test_iou = 60});
        add_tables(folder);
        add_layer_times(folder);
      }
    }
    const RunSet set = runs_below(root.path());
    ASSERT_EQ(set.groups.size(), static_cast<std::size_t>(configs));
    const DrawnPlots drawn = draw_plots(set);
    // Without a second config there is nothing to compare.
    const auto kinds = std::ranges::count_if(plot_kinds().names(), [](const std::string& name) {
      return plot_kinds().get(name).draw != nullptr;
    });
    EXPECT_EQ(drawn.plots.size(), static_cast<std::size_t>(kinds - (configs == 1 ? 1 : 0)));
    for (const DrawnPlot& plot : drawn.plots) {
      SCOPED_TRACE(plot.kind);
      expect_well_formed(plot.svg);
      EXPECT_NE(plot.svg.find("&lt;a &amp;"), std::string::npos);
      for (const auto& row : plot.figure.data) EXPECT_EQ(row.size(), plot.figure.data[0].size());
    }
  }
}

TEST(Plots, curves_show_the_mean_of_the_seeds_with_a_band) {
  const TemporaryFolder root;
  write_run(root.path(), {.seed = 1, .test_acc = 80});
  write_run(root.path(), {.seed = 2, .test_acc = 90});
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"curves"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<LinePanel>(drawn.plots[0].figure.panels[1]);
  const Series& test = panel.series.back();
  EXPECT_EQ(test.name, "test");
  EXPECT_EQ(test.x, (std::vector<double>{1, 2}));
  EXPECT_EQ(test.y, (std::vector<double>{84, 85}));
  EXPECT_NEAR(test.high[1], 85 + std::sqrt(50.0), 1e-9);
  EXPECT_EQ(drawn.plots[0].figure.data[1][7], "85.0 \u00B1 7.1");
}

TEST(Plots, confusion_shades_each_row_by_its_share) {
  const TemporaryFolder root;
  add_tables(write_run(root.path(), {.name = "pets"}));
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"confusion"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<HeatPanel>(drawn.plots[0].figure.panels[0]);
  EXPECT_EQ(panel.rows, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(panel.columns, panel.rows);
  EXPECT_EQ(panel.cells[0][1].text, "1");
  EXPECT_EQ(panel.cells[0][1].shade, 0.25);
  EXPECT_TRUE(panel.cells[1][1].framed);
  EXPECT_EQ(panel.cells[1][1].shade, 1.0);
}

TEST(Plots, iou_shows_each_class_and_the_mean_over_the_seeds) {
  const TemporaryFolder root;
  add_tables(write_run(root.path(), {.name = "pets", .seed = 1, .test_iou = 80}));
  add_tables(write_run(root.path(), {.name = "pets", .seed = 2, .test_iou = 40}));
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"iou", "confusion", "curves"});
  ASSERT_EQ(drawn.plots.size(), 3u);
  const auto& panel = std::get<BarPanel>(find(drawn, "iou")->figure.panels[0]);
  EXPECT_EQ(panel.categories, (std::vector<std::string>{"cat", "dog", "mean"}));
  EXPECT_EQ(panel.series[0].values, (std::vector<double>{60, 30, 45}));
  EXPECT_NEAR(panel.series[0].std[1], std::sqrt(200.0), 1e-9);
  EXPECT_NE(find(drawn, "confusion")->svg.find("numbers: pixels"), std::string::npos);
  const auto& curve = std::get<LinePanel>(find(drawn, "curves")->figure.panels[2]);
  EXPECT_EQ(curve.series[0].y, (std::vector<double>{60, 60}));
  const TemporaryFolder other;
  write_run(other.path(), {});
  EXPECT_EQ(draw_plots(runs_below(other.path()), {"iou"}).left_out,
            (std::vector<std::string>{"iou: no run has a class for each pixel"}));
}

TEST(Plots, a_run_without_a_finished_epoch_is_left_out_with_a_reason) {
  const TemporaryFolder root;
  write_run(root.path(), {.name = "done"});
  const std::string folder = write_run(root.path(), {.name = "begun"});
  write_text(folder + "/epochs.csv", "");
  write_text(folder + "/summary.json", "");
  const DrawnPlots drawn = draw_plots(runs_below(root.path()));
  ASSERT_NE(find(drawn, "curves"), nullptr);
  EXPECT_EQ(find(drawn, "curves")->svg.find("begun"), std::string::npos);
  EXPECT_NE(join(drawn.left_out, "\n").find("begun is left out, because it has not finished"),
            std::string::npos);
  // A single run still shows its logged steps.
  const DrawnPlots alone = draw_plots(runs_below(root.path() + "/begun"));
  ASSERT_NE(find(alone, "curves"), nullptr);
  EXPECT_NE(find(alone, "curves")->svg.find(">training step<"), std::string::npos);
}

TEST(Plots, the_pareto_front_holds_what_no_other_beats_in_both) {
  const TemporaryFolder root;
  const auto with_time = [&](const std::string& name, double acc, double seconds) {
    const std::string folder = write_run(root.path(), {.name = name, .test_acc = acc});
    RunSummary summary = *read_run(folder).summary;
    summary.avg_forward = seconds;
    summary.avg_backward = 0;
    write_text(folder + "/summary.json", to_json_text(summary));
  };
  with_time("a_quick", 80, 0.064);
  with_time("b_beaten", 79, 0.128);
  with_time("c_best", 90, 0.192);
  with_time("d_same_as_a", 80, 0.128);
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"pareto"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const Series& front = std::get<LinePanel>(drawn.plots[0].figure.panels[0]).series[0];
  ASSERT_EQ(front.x.size(), 2u);
  EXPECT_NEAR(front.x[0], 1000, 1e-9);  // microseconds for each of 64 images
  EXPECT_NEAR(front.x[1], 3000, 1e-9);
  EXPECT_EQ(front.y, (std::vector<double>{80, 90}));
  // The line of the Pareto front connects its two points and keeps a distance from the mark that is
  // not on the front.
  const std::string& svg = drawn.plots[0].svg;
  const std::vector<std::string> lines = lines_called(svg, "Pareto front");
  ASSERT_FALSE(lines.empty());
  const std::vector<SvgPoint> ends = points_of_path(lines[0]);
  ASSERT_EQ(ends.size(), 2u);
  std::size_t others = 0;
  const std::string panel = svg.substr(0, svg.find(">Configs<"));
  for (const SvgPoint& mark : marks_in(panel)) {
    const double dx = ends[1].x - ends[0].x, dy = ends[1].y - ends[0].y;
    const double away =
        std::abs((mark.x - ends[0].x) * dy - (mark.y - ends[0].y) * dx) / std::hypot(dx, dy);
    if (away < 1) continue;
    ++others;
    EXPECT_GT(away, 6) << "the line runs through a mark";
  }
  EXPECT_EQ(others, 2u);
}

TEST(Plots, the_pareto_plot_shows_the_time_of_inference_first_where_it_is_known) {
  const TemporaryFolder root;
  for (const char* name : {"a_quick", "b_slow", "c_older"}) {
    const std::string folder = write_run(root.path(), {.name = name});
    RunSummary summary = *read_run(folder).summary;
    if (name[0] != 'c') summary.avg_inference = name[0] == 'a' ? 0.064 : 0.128;
    write_text(folder + "/summary.json", to_json_text(summary));
  }
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"pareto"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<LinePanel>(drawn.plots[0].figure.panels[0]);
  EXPECT_EQ(panel.title, "Time of inference");
  ASSERT_EQ(panel.series.size(), 3u);             // the front and two runs
  EXPECT_NEAR(panel.series[1].x[0], 1000, 1e-9);  // microseconds for each of 64 images
  EXPECT_NEAR(panel.series[2].x[0], 2000, 1e-9);
  EXPECT_EQ(drawn.plots[0].figure.data[1].back(), "1000");
}

// Changes the data set or batch size of a run.
void change_summary(const std::string& folder, const std::string& data, int batch,
                    const std::string& algorithm = "") {
  RunSummary summary = *read_run(folder).summary;
  summary.data = data;
  summary.batch_size = batch;
  summary.algorithm = algorithm;
  write_text(folder + "/summary.json", to_json_text(summary));
}

TEST(Plots, OtherDataSetsGoToPanelsOfTheirOwn) {
  const TemporaryFolder root;
  for (const char* name : {"a", "b"}) {
    for (const char* data : {"mnist", "cifar10"}) {
      const std::string folder = write_run(root.path(), {.name = cat(name, "_", data)});
      change_summary(folder, data, 64);
      add_tables(folder);
      add_layer_times(folder);
    }
  }
  const DrawnPlots drawn = draw_plots(runs_below(root.path()));
  EXPECT_EQ(drawn.plots.size(), 9u) << join(drawn.left_out, "\n");
  for (const DrawnPlot& plot : drawn.plots) {
    SCOPED_TRACE(plot.kind);
    ASSERT_EQ(plot.figure.sections.size(), 2u);
    EXPECT_TRUE(plot.figure.panels.empty());
    for (const Section& section : plot.figure.sections) {
      const std::string own = section.title.starts_with("mnist") ? "mnist" : "cifar10";
      const std::string other = own == "mnist" ? "cifar10" : "mnist";
      EXPECT_TRUE(section.title.starts_with(own)) << section.title;
      EXPECT_NE(plot.svg.find(">" + section.title + "<"), std::string::npos) << section.title;
      // Each panel contains only the runs of the panel's section.
      const std::string alone =
          to_svg({.title = "t", .panels = section.panels, .legend = section.legend});
      EXPECT_NE(alone.find("_" + own), std::string::npos);
      EXPECT_EQ(alone.find("_" + other), std::string::npos);
    }
    for (const auto& row : plot.figure.data) EXPECT_EQ(row.size(), plot.figure.data[0].size());
    expect_well_formed(plot.svg);
  }
}

TEST(Plots, TimesOfOtherBatchesShareNoAxis) {
  const TemporaryFolder root;
  change_summary(write_run(root.path(), {.name = "a"}), "mnist", 8);
  change_summary(write_run(root.path(), {.name = "b"}), "mnist", 64);
  const DrawnPlots drawn = draw_plots(runs_below(root.path()));
  for (const char* kind : {"bars", "memory"}) {
    ASSERT_NE(find(drawn, kind), nullptr);
    ASSERT_EQ(find(drawn, kind)->figure.sections.size(), 2u) << kind;
    EXPECT_EQ(find(drawn, kind)->figure.sections[0].title, "mnist, batch 8");
  }
  EXPECT_TRUE(find(drawn, "curves")->figure.sections.empty());  // accuracies may share one
}

TEST(Plots, AnAlgorithmLooksTheSameInEveryFigureOfRuns) {
  const TemporaryFolder root;
  for (const char* name : {"fft", "direct", "winograd_f2x3"}) {
    const std::string folder = write_run(
        root.path(),
        {.name = "lenet", .config = cat("conv:\n  algorithm: ", name, "\n"), .epochs = 2});
    change_summary(folder, "mnist", 64, name);
    std::filesystem::rename(folder, cat(root.path(), "/lenet/", name));
  }
  const RunSet set = runs_below(root.path());
  ASSERT_EQ(set.groups.size(), 3u);
  const DrawnPlots drawn = draw_plots(set, {"curves", "bars", "pareto"});
  ASSERT_EQ(drawn.plots.size(), 3u);
  for (const RunGroup& group : set.groups) {
    const int style = algorithm_style(group.runs[0].summary->algorithm);
    const auto is_it = [&](const LegendEntry& entry) {
      return entry.name.find(group.runs[0].summary->algorithm) != std::string::npos;
    };
    for (const DrawnPlot& plot : drawn.plots) {
      const std::string mark =
          std::string("stroke=\"") + style_color(style) + "\" stroke-width=\"1.2\"";
      EXPECT_NE(plot.svg.find(mark), std::string::npos) << plot.kind << " " << style;
    }
    const auto& curves = find(drawn, "curves")->figure.legend;
    const auto entry = std::ranges::find_if(curves, is_it);
    ASSERT_NE(entry, curves.end());
    EXPECT_EQ(entry->style, style);
    const auto& bars = std::get<BarPanel>(find(drawn, "bars")->figure.panels[0]);
    const auto at = std::ranges::find_if(bars.categories, [&](const std::string& name) {
      return name.find(group.runs[0].summary->algorithm) != std::string::npos;
    });
    ASSERT_NE(at, bars.categories.end());
    EXPECT_EQ(bars.category_styles.at(static_cast<std::size_t>(at - bars.categories.begin())),
              style);
  }
}

TEST(Plots, TitlesOfManyConfigsAreWhole) {
  const TemporaryFolder root;
  for (int i = 0; i < 12; ++i) {
    write_run(root.path(), {.name = cat("a_config_with_a_long_name optim.lr=0.0", i, " last", i)});
  }
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"curves"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  EXPECT_EQ(drawn.plots[0].svg.find("\u2026"), std::string::npos);
  for (int i = 0; i < 12; ++i) {
    EXPECT_NE(drawn.plots[0].svg.find(cat("last", i, "<")), std::string::npos) << i;
  }
  EXPECT_NE(drawn.plots[0].svg.find(">accuracy (%)<"), std::string::npos);
}

TEST(Plots, LayersThatRunAsOneKernelAreOneBar) {
  const TemporaryFolder root;
  add_layer_times(write_run(root.path(), {.name = "a"}));
  const auto of = [&] { return draw_plots(runs_below(root.path()), {"layers"}); };
  DrawnPlots drawn = of();
  ASSERT_EQ(drawn.plots.size(), 1u) << join(drawn.left_out, "\n");
  const auto& time = std::get<BarPanel>(drawn.plots[0].figure.panels[0]);
  EXPECT_EQ(time.categories, (std::vector<std::string>{"c1+r1", "f2"}));
  ASSERT_EQ(time.series.size(), 2u);
  EXPECT_EQ(time.series[0].values, (std::vector<double>{0.5, 0.25}));
  EXPECT_EQ(time.series[1].values, (std::vector<double>{0.75, 0.125}));
  const auto& kept = std::get<BarPanel>(drawn.plots[0].figure.panels[1]);
  EXPECT_EQ(kept.series[0].values, (std::vector<double>{2, 1}));
  // A second config is next to it.
  add_layer_times(write_run(root.path(), {.name = "b"}));
  drawn = of();
  ASSERT_EQ(drawn.plots.size(), 1u);
  ASSERT_EQ(drawn.plots[0].figure.panels.size(), 3u);
  EXPECT_EQ(std::get<BarPanel>(drawn.plots[0].figure.panels[0]).series.size(), 2u);
  expect_well_formed(drawn.plots[0].svg);
}

TEST(Plots, LayersWithoutTimesSayWhatToDo) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {.name = "a"});
  const std::string none = join(draw_plots(runs_below(root.path()), {"layers"}).left_out, "\n");
  EXPECT_NE(none.find("no run has a layers.csv"), std::string::npos) << none;
  for (const char* table : {"layer,kind,step\nc1,conv2d,planned\n",
                            "layer,kind,step,forward_ms,backward_ms,kept_mib,timed_with\n"
                            "c1,conv2d,planned,,,,\n"}) {
    write_text(folder + "/layers.csv", table);
    const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"layers"});
    EXPECT_TRUE(drawn.plots.empty());
    const std::string said = join(drawn.left_out, "\n");
    EXPECT_NE(said.find("a new, longer run writes them"), std::string::npos) << said;
  }
}

TEST(Plots, an_unknown_kind_names_the_nearest) {
  try {
    draw_plots(RunSet{}, {"curvs"});
    FAIL() << "drawn";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'curves'?"), std::string::npos);
  }
}

int call(std::vector<std::string> words, std::string* err = nullptr) {
  words.insert(words.begin(), "convscope");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
  ::testing::internal::GetCapturedStdout();
  const std::string text = ::testing::internal::GetCapturedStderr();
  if (err != nullptr) *err = text;
  return code;
}

TEST(PlotCommand, writes_a_file_for_each_kind_and_a_page) {
  const TemporaryFolder root;
  write_run(root.path(), {.seed = 1});
  write_run(root.path(), {.seed = 2});
  write_run(root.path(), {.name = "other"});
  std::string err;
  EXPECT_EQ(call({"plot", root.path()}, &err), 0);
  EXPECT_NE(err.find("sparsity: no run has a sparsity.csv"), std::string::npos) << err;
  for (const char* kind : {"curves", "pareto", "bars", "memory", "schedule"}) {
    expect_well_formed(text_of(cat(root.path(), "/plots/", kind, ".svg")));
  }
  const std::string page = text_of(root.path() + "/report.html");
  EXPECT_NE(page.find("<td>lenet</td><td class=\"n\">2</td>"), std::string::npos);
  for (const char* outside : {"src=", "href=\"h", "@import", "<script", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  // The folder with plots does not count as a run, so a second call finds the same runs.
  EXPECT_EQ(call({"plot", root.path(), "--kind", "bars,memory", "-o", root.path() + "/x/y"}), 0);
  EXPECT_FALSE(text_of(root.path() + "/x/y/memory.svg").empty());
  EXPECT_FALSE(std::filesystem::exists(root.path() + "/x/y/curves.svg"));
  EXPECT_FALSE(std::filesystem::exists(root.path() + "/x/y/report.html"));
  EXPECT_EQ(call({"plot", root.path(), "--kind", "bars", "-o", root.path() + "/one.svg", "--html",
                  root.path() + "/one.html"}),
            0);
  EXPECT_FALSE(text_of(root.path() + "/one.svg").empty());
  EXPECT_FALSE(text_of(root.path() + "/one.html").empty());
}

TEST(PlotCommand, bad_input_is_one_sentence_and_an_exit_code) {
  const TemporaryFolder root;
  std::string err;
  EXPECT_EQ(call({"plot", root.path() + "/nothing"}, &err), 6);
  EXPECT_NE(err.find("which is no folder and no file"), std::string::npos) << err;
  EXPECT_EQ(call({"plot", root.path()}, &err), 6);
  EXPECT_NE(err.find("expected at least one run in"), std::string::npos) << err;
  EXPECT_EQ(call({"plot"}), 2);
  EXPECT_EQ(call({"plot", root.path(), "--kind", "pie"}, &err), 2);
  EXPECT_NE(err.find("unknown kind of plot 'pie'"), std::string::npos) << err;
  EXPECT_EQ(call({"plot", root.path(), "-o", "x.svg"}, &err), 2);
  const std::string folder = write_run(root.path(), {});
  EXPECT_EQ(call({"plot", folder, "--kind", "sparsity"}, &err), 4);
  EXPECT_NE(err.find("no run has a sparsity.csv"), std::string::npos) << err;
  // A broken line is reported, and the rest is drawn.
  write_text(folder + "/epochs.csv", text_of(folder + "/epochs.csv") + "3,oops\n");
  EXPECT_EQ(call({"plot", folder}, &err), 0);
  EXPECT_NE(err.find("epochs.csv:4: expected 8 cells, got 2"), std::string::npos) << err;
  // Adds a run without any results.
  for (const char* file : {"epochs.csv", "metrics.jsonl", "summary.json"}) {
    write_text(folder + "/" + file, "");
  }
  EXPECT_EQ(call({"plot", folder}, &err), 4);
  EXPECT_NE(err.find("no run has finished an epoch"), std::string::npos) << err;
}

// Sets PATH during one test.
class PathIs {
 public:
  explicit PathIs(const std::string& path) : before_(std::getenv("PATH")) {
    setenv("PATH", path.c_str(), 1);
  }
  ~PathIs() { setenv("PATH", before_.c_str(), 1); }
  PathIs(const PathIs&) = delete;
  PathIs& operator=(const PathIs&) = delete;

 private:
  std::string before_;
};

TEST(PlotCommand, WithoutAConverterPngIsOneSentenceThatNamesThePackage) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path() + "/runs", {});
  std::filesystem::create_directories(root.path() + "/empty");
  const PathIs path(root.path() + "/empty");
  std::string err;
  EXPECT_EQ(call({"plot", folder, "--format", "svg,png"}, &err), 6);
  EXPECT_NE(err.find("librsvg2-bin"), std::string::npos) << err;
  EXPECT_FALSE(std::filesystem::exists(folder + "/plots"));
  EXPECT_EQ(call({"plot", folder, "-k", "bars", "-o", root.path() + "/a.pdf"}, &err), 6);
  EXPECT_FALSE(std::filesystem::exists(root.path() + "/a.pdf"));
  EXPECT_EQ(call({"plot", folder}), 0);  // SVG needs nothing
}

TEST(PlotCommand, AConverterThatFailsIsOneSentenceAndLeavesNoFile) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path() + "/runs", {});
  const std::string program = root.path() + "/bin/rsvg-convert";
  write_text(program, "#!/bin/sh\necho no such font >&2\nexit 3\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const PathIs path(root.path() + "/bin");
  EXPECT_EQ(svg_converter(), program);
  std::filesystem::create_directories(root.path() + "/out");
  std::string err;
  EXPECT_EQ(call({"plot", folder, "-k", "bars", "-o", root.path() + "/out/a.png"}, &err), 6);
  EXPECT_NE(err.find("got exit code 3: no such font"), std::string::npos) << err;
  EXPECT_TRUE(std::filesystem::is_empty(root.path() + "/out"));
}

// Returns the width of a PNG from its header.
int png_width(const std::string& png) {
  int out = 0;
  for (std::size_t i = 16; i < 20; ++i) out = out * 256 + static_cast<unsigned char>(png.at(i));
  return out;
}

TEST(PlotCommand, PngAndPdfStandBesideTheSvg) {
  if (svg_converter().empty()) GTEST_SKIP() << "rsvg-convert is not installed";
  const TemporaryFolder root;
  const std::string folder = write_run(root.path() + "/runs", {});
  EXPECT_EQ(call({"plot", folder, "-k", "bars,curves", "--format", "svg,png,pdf", "-o",
                  root.path() + "/out", "--width", "480", "--dpi", "144"}),
            0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root.path() + "/out")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"bars.pdf", "bars.png", "bars.svg", "curves.pdf",
                                             "curves.png", "curves.svg"}));
  EXPECT_TRUE(text_of(root.path() + "/out/bars.pdf").starts_with("%PDF-"));
  EXPECT_EQ(text_of(root.path() + "/out/bars.png").substr(1, 3), "PNG");
  EXPECT_EQ(png_width(text_of(root.path() + "/out/bars.png")), 480 * 144 / 96);
  EXPECT_EQ(call({"plot", folder, "-k", "bars", "-o", root.path() + "/one.pdf"}), 0);
  EXPECT_TRUE(text_of(root.path() + "/one.pdf").starts_with("%PDF-"));
}

TEST(PlotCommand, FormatsThatDoNotFitAreUsageErrors) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  std::string err;
  EXPECT_EQ(call({"plot", folder, "--format", "jpg"}, &err), 2);
  EXPECT_NE(err.find("got 'jpg'"), std::string::npos) << err;
  EXPECT_EQ(call({"plot", folder, "-k", "bars", "-o", "a.svg", "--format", "png"}, &err), 2);
  EXPECT_NE(err.find("because -o names a.svg"), std::string::npos) << err;
  EXPECT_EQ(call({"plot", folder, "-k", "bars", "-o", "a.jpg"}, &err), 2);
  EXPECT_EQ(call({"plot", folder, "--width", "10"}, &err), 2);
}

}  // namespace
}  // namespace convscope::testing
