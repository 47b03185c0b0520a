// SPDX-License-Identifier: Apache-2.0
// plots_test.cpp: every kind of plot, drawn from run folders made here.
#include <algorithm>
#include <filesystem>

#include "experiments/cli/cli.h"
#include "experiments/report/html/html_report.h"
#include "experiments/report/plot_kind.h"
#include "experiments/run_folder/run_search.h"
#include "tests/experiments/report/run_folders.h"
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
        add_tables(write_run(
            root.path(),
            {.name = cat("<a & b>-", i), .seed = seed, .test_acc = 70.0 + i * 0.5 + seed}));
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
      EXPECT_NE(plot.svg.find("&lt;a &amp; b&gt;"), std::string::npos);
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
  EXPECT_EQ(drawn.plots[0].figure.data[1][7], "85.00 \u00B1 7.07");
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
  // Alone, it still shows the steps that it has logged.
  const DrawnPlots alone = draw_plots(runs_below(root.path() + "/begun"));
  ASSERT_NE(find(alone, "curves"), nullptr);
  EXPECT_NE(find(alone, "curves")->svg.find(">step<"), std::string::npos);
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
  const DrawnPlots drawn = draw_plots(runs_below(root.path()), {"pareto"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const Series& front = std::get<LinePanel>(drawn.plots[0].figure.panels[0]).series[0];
  ASSERT_EQ(front.x.size(), 2u);
  EXPECT_NEAR(front.x[0], 1000, 1e-9);  // microseconds for each of 64 images
  EXPECT_NEAR(front.x[1], 3000, 1e-9);
  EXPECT_EQ(front.y, (std::vector<double>{80, 90}));
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
  // The folder of plots is no run: a second call sees what the first saw.
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
  // A broken line: named, and the rest is drawn.
  write_text(folder + "/epochs.csv", text_of(folder + "/epochs.csv") + "3,oops\n");
  EXPECT_EQ(call({"plot", folder}, &err), 0);
  EXPECT_NE(err.find("epochs.csv:4: expected 8 cells, got 2"), std::string::npos) << err;
  // A run of which there is nothing yet.
  for (const char* file : {"epochs.csv", "metrics.jsonl", "summary.json"}) {
    write_text(folder + "/" + file, "");
  }
  EXPECT_EQ(call({"plot", folder}, &err), 4);
  EXPECT_NE(err.find("no run has finished an epoch"), std::string::npos) << err;
}

}  // namespace
}  // namespace convscope::testing
