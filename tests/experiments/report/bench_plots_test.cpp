// SPDX-License-Identifier: Apache-2.0
// bench_plots_test.cpp: the plots of benchmarks show the right numbers.
#include <cmath>
#include <filesystem>
#include <map>

#include "experiments/cli/cli.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/plot_kind.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/svg_geometry.h"
#include "tests/experiments/report/xml_check.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

constexpr const char* kProblem = "n=8,c=16,h=28,w=28,k=16,r=3,s=3,stride=1,pad=1";

std::string row(const std::string& algorithm, double ms, int threads, const std::string& rest = "",
                const std::string& problem = kProblem) {
  return cat("{\"problem\":\"", problem, "\",\"direction\":\"forward\",\"algorithm\":\"", algorithm,
             "\",\"device\":\"cpu\",\"threads\":", threads, ",\"median_ms\":", ms,
             ",\"gflops_executed\":10,\"workspace_bytes\":2097152", rest, "}");
}

std::string file(const std::string& rows, int threads = 1, const std::string& weights = "") {
  return cat(
      "{\"machine\":{\"cpu\":\"a <cpu>\",\"isa\":\"avx2\",\"peaks\":{\"cores\":2,"
      "\"flops_per_second\":{\"one_thread\":1e11,\"all_threads\":2e11},"
      "\"dram_copy_bytes_per_second\":{\"one_thread\":1e10,\"all_threads\":1.5e10}}},"
      "\"settings\":{\"device\":\"cpu\",\"cache\":\"warm\",\"threads\":",
      threads, weights.empty() ? "" : cat(",\"weights\":\"", weights, "\""), "},\"rows\":[", rows,
      "],\"refusals\":[{\"problem\":\"", kProblem,
      "\",\"direction\":\"forward\",\"algorithm\":\"depthwise\",\"reason\":\"needs C < 2 & "
      "more\"}]}");
}

const std::string kTwo =
    row("direct", 2, 1, ",\"auto_choice\":true,\"baseline\":\"onednn\",\"baseline_median_ms\":4") +
    "," + row("fft", 8, 1, ",\"baseline\":\"onednn\",\"baseline_median_ms\":4");

BenchSet read_text(const TemporaryFolder& root, const std::string& text) {
  write_text(root.path() + "/b.json", text);
  return read_bench({root.path() + "/b.json"});
}

const Figure& figure_of(const DrawnPlots& drawn) { return drawn.plots.at(0).figure; }

TEST(BenchPlots, the_heat_map_holds_ratios_refusals_and_the_choice_of_auto) {
  const TemporaryFolder root;
  const DrawnPlots drawn = draw_plots(read_text(root, file(kTwo)), {"heatmap"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<HeatPanel>(figure_of(drawn).panels.at(0));
  EXPECT_EQ(panel.columns, (std::vector<std::string>{"direct", "fft", "onednn (baseline)"}));
  EXPECT_EQ(panel.note, "not in the table, because it refuses this problem: depthwise");
  const std::vector<HeatCell>& cells = panel.cells.at(0);
  EXPECT_EQ(cells[0].text, "1.00");
  EXPECT_TRUE(cells[0].framed);
  EXPECT_EQ(cells[1].text, "4.00");
  EXPECT_FALSE(cells[1].framed);
  EXPECT_GT(cells[0].shade, cells[1].shade);
  EXPECT_EQ(cells[2].text, "2.00");
  // An algorithm that refuses some problems keeps its column.
  std::string text =
      file(kTwo + "," + row("depthwise", 2, 1, "", "n=8,c=16,h=9,w=9,k=16,r=3,s=3,stride=1,pad=1"));
  const DrawnPlots some = draw_plots(read_text(root, text), {"heatmap"});
  const auto& wider = std::get<HeatPanel>(figure_of(some).panels.at(0));
  ASSERT_EQ(wider.columns.at(0), "depthwise");
  EXPECT_EQ(wider.cells.at(0)[0].text, "refused");
  EXPECT_EQ(wider.note, "");
  EXPECT_NE(some.plots[0].svg.find("refused: needs C &lt; 2 &amp; more</title>"),
            std::string::npos);
}

TEST(BenchPlots, read_the_columns_of_an_older_version) {
  const TemporaryFolder root;
  const auto older = [](std::string text) {
    for (std::size_t at; (at = text.find("baseline")) != std::string::npos;) {
      text.replace(at, 8, "peer");
    }
    const std::size_t at = text.find("\"peaks\"");
    return at == std::string::npos ? text : text.replace(at, 7, "\"ceilings\"");
  };
  for (const char* kind : {"speedup", "roofline"}) {
    const DrawnPlots today = draw_plots(read_text(root, file(kTwo)), {kind});
    const DrawnPlots old = draw_plots(read_text(root, older(file(kTwo))), {kind});
    ASSERT_EQ(today.plots.size(), 1u) << kind;
    ASSERT_EQ(old.plots.size(), 1u) << kind;
    EXPECT_EQ(old.plots[0].svg, today.plots[0].svg) << kind;
  }
}

TEST(BenchPlots, the_roofline_has_the_peaks_of_the_threads_that_were_used) {
  const TemporaryFolder root;
  const BenchSet set = read_text(root, file(row("direct", 2, 2), 2));
  const DrawnPlots drawn = draw_plots(set, {"roofline"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<LinePanel>(figure_of(drawn).panels.at(0));
  ASSERT_EQ(panel.series.size(), 3u);
  // The expected intensity is the number of FLOPs that are executed in 2 ms at 10 GFLOP/s, divided
  // by the bytes of x, w and y.
  const double bytes = 4.0 * (2 * 8 * 16 * 28 * 28 + 16 * 16 * 9);
  EXPECT_NEAR(panel.series[0].x.at(0), 2e7 / bytes, 1e-9);
  EXPECT_EQ(panel.series[0].y.at(0), 10);
  EXPECT_NEAR(panel.series[1].x.back(), 200.0 / 15, 1e-9);  // the ridge
  EXPECT_NEAR(panel.series[2].y.at(0), 200, 1e-9);
  const auto& effective = std::get<LinePanel>(figure_of(drawn).panels.at(1));
  EXPECT_NEAR(effective.series[0].y.at(0), 2.0 * 8 * 16 * 28 * 28 * 16 * 9 / 2e6, 1e-9);
}

TEST(BenchPlots, the_speed_up_is_the_baselines_time_over_ours) {
  const TemporaryFolder root;
  const DrawnPlots drawn = draw_plots(read_text(root, file(kTwo)), {"speedup"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const auto& panel = std::get<BarPanel>(figure_of(drawn).panels.at(0));
  EXPECT_TRUE(panel.x.log);
  EXPECT_EQ(panel.categories.back(), "geometric mean");
  EXPECT_EQ(panel.series[0].values, (std::vector<double>{2, 2}));
  EXPECT_EQ(panel.series[0].notes.at(0), "direct");
  const DrawnPlots none = draw_plots(read_text(root, file(row("direct", 2, 1))), {"speedup"});
  EXPECT_TRUE(none.plots.empty());
  EXPECT_NE(none.left_out.at(0).find("measure with --baseline"), std::string::npos);
}

TEST(BenchPlots, scaling_is_drawn_over_what_alone_differs) {
  const TemporaryFolder root;
  write_text(root.path() + "/1.json", file(row("direct", 2, 1)));
  write_text(root.path() + "/2.json", file(row("direct", 1, 2), 2));
  const BenchSet set = read_bench({root.path() + "/1.json", root.path() + "/2.json"});
  const DrawnPlots drawn = draw_plots(set, {"scaling"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  ASSERT_EQ(figure_of(drawn).panels.size(), 1u);
  const auto& panel = std::get<LinePanel>(figure_of(drawn).panels[0]);
  EXPECT_EQ(panel.series.at(0).x, (std::vector<double>{1, 2}));
  EXPECT_NEAR(panel.series[0].y.at(1) / panel.series[0].y.at(0), 2, 1e-12);
  // Two points are too few for a line; a remark says how many points a line needs.
  EXPECT_FALSE(panel.series[0].line);
  EXPECT_TRUE(lines_called(drawn.plots[0].svg, "direct").empty());
  EXPECT_NE(join(drawn.left_out, " ")
                .find("a line needs three numbers of threads of one problem, "
                      "got 1 and 2"),
            std::string::npos)
      << join(drawn.left_out, " ");
  write_text(root.path() + "/4.json", file(row("direct", 0.7, 4), 4));
  const DrawnPlots three = draw_plots(
      read_bench({root.path() + "/1.json", root.path() + "/2.json", root.path() + "/4.json"}),
      {"scaling"});
  EXPECT_EQ(lines_called(three.plots.at(0).svg, "direct").size(), 1u);
  EXPECT_TRUE(three.left_out.empty());
  // The problems with 3x3 and 5x5 kernels have equal output sizes, because the larger kernel has
  // more padding. So one line connects them.
  const BenchSet kernels =
      read_text(root, file(row("direct", 2, 1) + "," +
                           row("direct", 3, 1, "", "n=8,c=16,h=28,w=28,k=16,r=5,s=5,pad=2") + "," +
                           row("direct", 3, 1, "", "n=8,c=16,h=28,w=28,k=16,r=7,s=7")));
  const DrawnPlots over_kernel = draw_plots(kernels, {"scaling"});
  ASSERT_EQ(over_kernel.plots.size(), 1u);
  ASSERT_EQ(figure_of(over_kernel).panels.size(), 1u);
  EXPECT_EQ(std::get<LinePanel>(figure_of(over_kernel).panels[0]).series.at(0).x,
            (std::vector<double>{3, 5}));
}

const std::string kBytesProblem =
    std::string(kProblem) + ",dtype=u8,types=u8:i8:i32:u8,layout=nchw16c";

// Two problems of equal sizes but different types are different problems, so each has a separate
// panel.
TEST(BenchPlots, RowsOfBytesAndOfF32AreNotMixed) {
  const TemporaryFolder root;
  const std::string baseline = ",\"baseline\":\"onednn\",\"baseline_median_ms\":";
  const std::string rows =
      row("direct", 4, 1, baseline + "6") + "," + row("fft", 8, 1, baseline + "6") + "," +
      row("direct", 3, 1, baseline + "6", std::string(kProblem) + ",layout=nchw16c") + "," +
      row("int8_direct", 1, 1, baseline + "1.5", kBytesProblem);
  const BenchSet set = read_text(root, file(rows));
  ASSERT_EQ(set.problems.size(), 3u);
  EXPECT_NE(set.names.at(2).find("u8:i8:i32:u8"), std::string::npos) << set.names.at(2);
  const std::vector<BenchPart> parts = set.parts();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_FALSE(parts[0].bytes);
  EXPECT_EQ(parts[0].problems, (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(parts[1].bytes);
  EXPECT_EQ(parts[1].title, "forward of bytes, 1 thread");
  const DrawnPlots speedup = draw_plots(set, {"speedup"});
  const auto& f32_panel = std::get<BarPanel>(figure_of(speedup).panels.at(0));
  EXPECT_NEAR(f32_panel.series[0].values.back(), std::sqrt(1.5 * 2), 1e-12);
  const auto& bytes_panel = std::get<BarPanel>(figure_of(speedup).panels.at(1));
  EXPECT_NEAR(bytes_panel.series[0].values.back(), 1.5, 1e-12);
  // The int8 plot has two bars: the int8 speedup of Convscope over its fastest f32 algorithm in any
  // layout, and the int8 speedup of the baseline over its f32 time.
  const DrawnPlots int8 = draw_plots(set, {"int8"});
  ASSERT_EQ(int8.plots.size(), 1u);
  const auto& panel = std::get<BarPanel>(figure_of(int8).panels.at(0));
  ASSERT_EQ(panel.series.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {  // the layer, the mean
    EXPECT_NEAR(panel.series[0].values.at(i), 3, 1e-12);
    EXPECT_NEAR(panel.series[1].values.at(i), 4, 1e-12);
  }
  expect_well_formed(int8.plots[0].svg);
  const DrawnPlots none = draw_plots(read_text(root, file(kTwo)), {"int8"});
  EXPECT_NE(none.left_out.at(0).find("no layer has rows of int8 and of f32"), std::string::npos);
  // No line connects two problems of different kernel sizes if one of them has int8 operands.
  const BenchSet other = read_text(
      root, file(row("direct", 2, 1) + "," +
                 row("direct", 3, 1, "",
                     "n=8,c=16,h=28,w=28,k=16,r=5,s=5,pad=2,dtype=u8,types=u8:i8:i32:u8")));
  EXPECT_TRUE(draw_plots(other, {"scaling"}).plots.empty());
}

// A convolution and two deformable convolutions of equal sizes count as three problems.
TEST(BenchPlots, DeformableConvolutionsHaveTheirOwnSizes) {
  const TemporaryFolder root;
  const std::string masked = cat(kProblem, ",offset_groups=1,mask=1");
  const std::string two_groups = cat(kProblem, ",offset_groups=2,mask=0");
  const BenchSet set = read_text(
      root, file(row("fused", 2, 1, "", masked) + "," + row("im2col_gemm", 6, 1, "", masked) + "," +
                 row("fused", 3, 1, "", two_groups) + "," + row("im2col_gemm", 1, 1)));
  ASSERT_EQ(set.problems.size(), 3u);
  EXPECT_TRUE(set.names.at(0).ends_with(" deformable")) << set.names[0];
  EXPECT_TRUE(set.names.at(1).ends_with(" deformable, no mask, 2 offset groups")) << set.names[1];
  EXPECT_TRUE(set.names.at(2).ends_with("3\u00D73")) << set.names[2];
  EXPECT_TRUE(set.problems[0].text().ends_with(",offset_groups=1,mask=1"));
  const DrawnPlots heat = draw_plots(set, {"heatmap"});
  const auto& cells = std::get<HeatPanel>(figure_of(heat).panels.at(0)).cells;
  EXPECT_EQ(cells.at(0).at(1).text, "3.00");
  EXPECT_EQ(cells.at(1).at(1).text, "-");
  // The bytes include offsets and mask.
  const DrawnPlots roof = draw_plots(set, {"roofline"});
  const auto& points = std::get<LinePanel>(figure_of(roof).panels.at(0)).series.at(0);
  const double bytes = 4.0 * (2 * 8 * 16 * 28 * 28 + 16 * 16 * 9), place = 4.0 * 8 * 9 * 28 * 28;
  EXPECT_NEAR(points.x.at(0), 2e7 / (bytes + 3 * place), 1e-9);
  EXPECT_NEAR(points.x.at(1), 3e7 / (bytes + 2 * 2 * place), 1e-9);
  // Batches of both kinds of layers make no line.
  const std::string other = "n=4,c=16,h=28,w=28,k=16,r=3,s=3,stride=1,pad=1";
  const auto lines = [&](const std::string& batch_of_four) {
    return draw_plots(read_text(root, file(row("fused", 2, 1, "", masked) + "," +
                                           row("fused", 1, 1, "", batch_of_four))),
                      {"scaling"})
        .plots.size();
  };
  EXPECT_EQ(lines(other + ",offset_groups=1,mask=1"), 1u);
  EXPECT_EQ(lines(other + ",offset_groups=1,mask=0"), 0u);
  EXPECT_EQ(lines(other), 0u);
}

// The output padding is part of the problem. 4 H W products for each of C K channels, not P Q.
TEST(BenchPlots, TransposedConvolutionsHaveTheirOwnSizes) {
  const TemporaryFolder root;
  const std::string base = "n=8,c=16,h=28,w=28,k=16,r=2,s=2,stride=2";
  const BenchSet set = read_text(root, file(row("direct", 2, 1, "", base + ",opad=0") + "," +
                                            row("direct", 3, 1, "", base + ",opad=1")));
  ASSERT_EQ(set.problems.size(), 3u);  // the third one is that of a refusal
  EXPECT_TRUE(set.problems[1].text().ends_with(",opad=1")) << set.problems[1].text();
  EXPECT_EQ(set.problems[0].nominal_flops(), 2.0 * 8 * 16 * 16 * 28 * 28 * 4);
  EXPECT_EQ(draw_plots(set, {"heatmap"}).plots.size(), 1u);
}

TEST(BenchPlots, TheRooflineOfBytesHasTheirPeak) {
  const TemporaryFolder root;
  std::string text = file(row("int8_direct", 2, 2, "", kBytesProblem), 2);
  const auto peak_of = [&](const std::string& content) {
    const DrawnPlots drawn = draw_plots(read_text(root, content), {"roofline"});
    const auto& panel = std::get<LinePanel>(figure_of(drawn).panels.at(0));
    return panel.series.size() < 2 ? 0 : panel.series.back().y.at(0);
  };
  EXPECT_EQ(peak_of(text), 0);  // an older file: none, instead of the f32 peak
  const std::string before = "\"dram_copy_bytes";
  text.insert(text.find(before),
              "\"int8_ops_per_second\":{\"one_thread\":4e11,\"all_threads\":8e11},");
  EXPECT_NEAR(peak_of(text), 800, 1e-9);
}

TEST(BenchPlots, RowsOfWeightsUsedOnceAndOftenAreNotMixed) {
  const TemporaryFolder root;
  write_text(root.path() + "/old.json", file(row("direct", 2, 1)));
  write_text(root.path() + "/once.json", file(row("direct", 2.5, 1), 1, "once"));
  write_text(root.path() + "/often.json", file(row("direct", 1, 2), 2, "often"));
  // Files without the setting `weights` (from earlier versions) count as benchmarks of weights used
  // once.
  const BenchSet set = read_bench(
      {root.path() + "/old.json", root.path() + "/once.json", root.path() + "/often.json"});
  ASSERT_EQ(set.rows.size(), 2u);
  ASSERT_EQ(set.settings.size(), 2u);
  EXPECT_EQ(set.settings[0].label, "1 thread, weights used once");
  EXPECT_EQ(set.settings[1].label, "2 threads, weights used often");
  EXPECT_TRUE(draw_plots(set, {"scaling"}).plots.empty());
  EXPECT_EQ(set.text().find("weights"), std::string::npos) << set.text();
  const BenchSet often = read_bench({root.path() + "/often.json"});
  EXPECT_NE(often.text().find("; weights used often"), std::string::npos) << often.text();
  EXPECT_EQ(often.settings[0].label, "2 threads");
}

TEST(BenchPlots, NoNameOfAPeakLiesOnAPoint) {
  const TemporaryFolder root;
  // The roofline plot has two roofs. The points are on both sides of them, where the names of the
  // roofs are usually drawn.
  std::string rows;
  int count = 0;
  const double bytes = 4.0 * (2 * 8 * 16 * 28 * 28 + 16 * 16 * 9);  // of kProblem
  const auto add = [&](double intensity, double gflops) {
    rows += cat(count == 0 ? "" : ",", row(cat("a", count), intensity * bytes / (gflops * 1e6), 1,
                                           cat(",\"gflops_executed\":", gflops)));
    ++count;
  };
  for (const double intensity : {2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0}) {
    for (const double part : {0.5, 0.6, 0.75, 1.0, 1.3, 1.7}) add(intensity, 10 * intensity * part);
  }
  for (double intensity = 9; intensity < 60; intensity *= 1.1) {
    add(intensity, 85);
    add(intensity, 130);
  }
  const DrawnPlots drawn = draw_plots(read_text(root, file(rows)), {"roofline"});
  ASSERT_EQ(drawn.plots.size(), 1u);
  const std::string& svg = drawn.plots[0].svg;
  const std::vector<SvgBox> labels = labels_in(svg);
  EXPECT_GE(labels.size(), 2u);
  const std::vector<SvgPoint> marks = marks_in(svg);
  EXPECT_GE(marks.size(), 80u);
  for (const SvgBox& label : labels) {
    for (const SvgPoint& mark : marks) {
      EXPECT_FALSE(mark.x > label.left - 4 && mark.x < label.right + 4 && mark.y > label.top - 4 &&
                   mark.y < label.bottom + 4)
          << label.text << " lies on the point at " << mark.x << ", " << mark.y;
    }
  }
}

// A file may lack the baseline's version, because earlier programs did not store it. If files have
// different versions, one title names all of them.
TEST(BenchPlots, TheBaselineIsNamedWithEveryVersionThatRan) {
  const TemporaryFolder root;
  const auto with = [](const std::string& version) {
    return ",\"baseline\":\"onednn\"" + version + ",\"baseline_median_ms\":4";
  };
  const std::string old = ",\"baseline_version\":\"2.6.3\"",
                    fresh = ",\"baseline_version\":\"3.2.0\"";
  EXPECT_EQ(read_text(root, file(row("direct", 2, 1, with("")))).baseline(), "onednn");
  EXPECT_EQ(
      read_text(root, file(row("direct", 2, 1, with(fresh)) + "," + row("fft", 2, 1))).baseline(),
      "onednn 3.2.0");
  const std::string refused = "\"algorithm\":\"depthwise\"";
  std::string both = file(row("direct", 2, 1, with(fresh)) + "," + row("fft", 3, 1, with(old)));
  both.replace(both.find(refused), refused.size(), "\"algorithm\":\"onednn 2.6.3 winograd\"");
  const BenchSet set = read_text(root, both);
  EXPECT_EQ(set.baseline(), "onednn 2.6.3, onednn 3.2.0");
  const DrawnPlots drawn = draw_plots(set, {"heatmap"});
  EXPECT_EQ(std::get<HeatPanel>(figure_of(drawn).panels.at(0)).columns,
            (std::vector<std::string>{"direct", "fft", "onednn 2.6.3, onednn 3.2.0 (baseline)"}));
}

TEST(BenchPlots, AnAlgorithmLooksTheSameInEveryKindAndWhateverStandsBesideIt) {
  const TemporaryFolder root;
  const std::string with_baseline = ",\"baseline\":\"onednn\",\"baseline_median_ms\":4";
  const auto marks_of = [&](const std::string& rows) {
    std::map<std::string, bool> out;
    const int style = algorithm_style("fft");
    const std::string look = style_mark(style, 0, 0, 4, false, "")
                                 .substr(style_mark(style, 0, 0, 4, false, "").find(" fill"));
    for (const DrawnPlot& plot : draw_plots(read_text(root, file(rows))).plots) {
      out[plot.kind] = plot.svg.find(look.substr(0, look.find("/>"))) != std::string::npos;
    }
    return out;
  };
  for (const std::string& rows :
       {row("fft", 2, 1, with_baseline),
        row("direct", 3, 1, with_baseline) + "," + row("fft", 2, 1, with_baseline),
        row("im2col_gemm", 9, 1, with_baseline) + "," + row("gemm_1x1", 9, 1, with_baseline) + "," +
            row("fft", 2, 1, with_baseline)}) {
    const auto found = marks_of(rows);
    for (const char* kind : {"heatmap", "roofline", "speedup", "workspace"}) {
      ASSERT_TRUE(found.contains(kind)) << kind;
      EXPECT_TRUE(found.at(kind)) << kind;
    }
  }
}

TEST(BenchPlots, every_kind_is_well_formed_and_a_second_time_replaces_the_first) {
  const TemporaryFolder root;
  write_text(root.path() + "/1.json", file(kTwo));
  write_text(root.path() + "/2.json",
             file(row("direct", 1, 1, ",\"baseline\":\"onednn\",\"baseline_median_ms\":3") + "," +
                  row("direct", 1, 2)));
  const BenchSet set = read_bench({root.path() + "/1.json", root.path() + "/2.json"});
  EXPECT_EQ(set.rows.size(), 3u);
  EXPECT_EQ(set.rows[0].median_ms, 1);
  ASSERT_EQ(set.remarks.size(), 1u);
  EXPECT_NE(set.remarks[0].find("2.json: 1 row was measured before"), std::string::npos);
  const DrawnPlots drawn = draw_plots(set);
  EXPECT_EQ(drawn.plots.size(), 5u) << join(drawn.left_out, "\n");
  for (const DrawnPlot& plot : drawn.plots) {
    SCOPED_TRACE(plot.kind);
    expect_well_formed(plot.svg);
    for (const auto& cells : plot.figure.data) EXPECT_EQ(cells.size(), plot.figure.data[0].size());
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

TEST(PlotCommand, draws_benchmarks_beside_their_file) {
  const TemporaryFolder root;
  write_text(root.path() + "/b.json", file(kTwo));
  EXPECT_EQ(call({"plot", root.path() + "/b.json"}), 0);
  expect_well_formed(text_of(root.path() + "/b_plots/heatmap.svg"));
  EXPECT_NE(text_of(root.path() + "/b_plots/report.html").find("id=\"roofline\""),
            std::string::npos);
  EXPECT_EQ(call({"plot", root.path() + "/b.json", "-k", "speedup", "-o", root.path() + "/s.svg"}),
            0);
  EXPECT_FALSE(text_of(root.path() + "/s.svg").empty());
}

TEST(PlotCommand, a_file_that_is_no_benchmark_is_one_sentence_and_an_exit_code) {
  const TemporaryFolder root;
  const std::string path = root.path() + "/b.json";
  const auto says = [&](const std::string& text, int code, const std::string& sentence) {
    write_text(path, text);
    std::string err;
    EXPECT_EQ(call({"plot", path}, &err), code) << err;
    EXPECT_NE(err.find(sentence), std::string::npos) << err;
  };
  says("epoch,loss\n", 4, "got text that is not JSON");
  says("[1]", 4, "got JSON without a list named rows");
  says("{\"rows\":[]}", 4, "got no row, so nothing was measured");
  says("{\"rows\":[7]}", 4, "got row 1 without names");
  says("{\"rows\":[{\"problem\":\"n=1\",\"direction\":\"up\"}]}", 4, "row 1 without a direction");
  says(
      "{\"rows\":[{\"problem\":\"n=1\",\"direction\":\"forward\",\"algorithm\":\"a\","
      "\"threads\":1}]}",
      4, "row 1 without a median_ms");
  says(file(row("direct", 2, 1, "", "n=1,r=9")), 4, "got the problem n=1,r=9");
  says(file(row("fused", 2, 1, "", cat(kProblem, ",offset_groups=3,mask=1"))), 4,
       "expected offset groups that divide the input channels");
  write_text(path, file(kTwo));
  std::string err;
  EXPECT_EQ(call({"plot", path, "-k", "curves"}, &err), 4);
  EXPECT_NE(err.find("curves: it is drawn from run folders"), std::string::npos) << err;
  EXPECT_EQ(call({"plot", path, write_run(root.path() + "/runs", {})}, &err), 2);
  EXPECT_NE(err.find("got both"), std::string::npos) << err;
}

}  // namespace
}  // namespace convscope::testing
