// SPDX-License-Identifier: Apache-2.0
// figure_geometry_test.cpp: tests the texts in all kinds of plots, in several widths: each text is
// inside the picture, overlaps no other text, and is near the object that it names.
#include <filesystem>
#include <map>

#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/experiments/report/svg_geometry.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kAlgorithms = {
    "direct",        "im2col_gemm", "im2col_gemm_eigen", "fft", "winograd_f2x3", "winograd_f4x3",
    "winograd_f6x3", "gemm_1x1",    "direct_batch_lanes"};

// Writes a benchmark file with six problems and three roofs. Nine algorithms run; three of them
// refuse some problems. Two more algorithms refuse all problems.
std::string bench_file(int threads) {
  std::string rows, refusals;
  const auto add = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : ",") + item;
  };
  for (int p = 0; p < 6; ++p) {
    const int c = 64 << (p % 4), kernel = p % 2 == 0 ? 3 : 1;
    const std::string names =
        cat("\"problem\":\"n=1,c=", c, ",h=56,w=56,k=", 2 * c, ",r=", kernel, ",s=", kernel,
            ",stride=", 1 + p % 3, "\",\"direction\":\"forward\",\"algorithm\":\"");
    for (std::size_t a = 0; a < kAlgorithms.size(); ++a) {
      const bool refused = kernel == 1 && a > 2 && a < 7;
      const std::string row_start = names + kAlgorithms[a] + "\"";
      if (refused) add(refusals, cat("{", row_start, ",\"reason\":\"needs a kernel of 3x3\"}"));
      if (refused) continue;
      const double ms =
          (1.0 + 7.0 * static_cast<double>((a * 5 + static_cast<std::size_t>(p)) % 9)) / threads;
      const double flops = 2.0 * c * 2 * c * kernel * kernel * 56 * 56;
      add(rows, cat("{", row_start, ",\"device\":\"cpu\",\"threads\":", threads,
                    ",\"median_ms\":", ms, ",\"gflops_executed\":", flops / ms * 1e-6,
                    ",\"gflops_effective\":", flops / ms * 1e-6, ",\"workspace_bytes\":",
                    1000 * (a + 1) * (a + 1) * 50, ",\"auto_choice\":", a == 0 ? "true" : "false",
                    ",\"baseline\":\"onednn 3.2.0\",\"baseline_median_ms\":5}"));
    }
    for (const char* never : {"depthwise", "int8_block_sparse"}) {
      add(refusals, cat("{", names, never, "\",\"reason\":\"takes other types & groups\"}"));
    }
  }
  const auto peak = [](const char* name, double one) {
    return cat("\"", name, "\":{\"one_thread\":", one, ",\"all_threads\":", 2 * one, "}");
  };
  return cat("{\"machine\":{\"cpu\":\"a cpu\",\"isa\":\"avx2\",\"peaks\":{\"cores\":2,",
             peak("flops_per_second", 1.2e11), ",", peak("l2_copy_bytes_per_second", 9.68e10), ",",
             peak("l3_copy_bytes_per_second", 6.85e10), ",",
             peak("dram_copy_bytes_per_second", 1.9e10),
             "}},\"settings\":{\"device\":\"cpu\",\"cache\":\"warm\",\"threads\":", threads,
             "},\"rows\":[", rows, "],\"refusals\":[", refusals, "]}");
}

void write_runs(const std::string& root) {
  for (const char* name : {"lenet_baseline", "lenet_with_a_long_name_and_lsq_w4a4", "pruned"}) {
    for (const int seed : {1, 2}) {
      const std::string folder =
          write_run(root, {.name = name, .seed = seed, .test_acc = 90.0 + seed});
      write_text(
          folder + "/sparsity.csv",
          "step,wanted,layer,density\n0,0,c1,1\n0,0,total,1\n10,0.9,c1,0.1\n10,0.9,total,0.1\n");
      write_text(
          folder + "/quant.csv",
          "step,epoch,layer,tensor,bits,signed,step_size_min,step_size_mean,step_size_max,"
          "saturated_percent\n1,1,c1,weight,4,1,0.1,0.2,0.3,0\n20,2,c1,weight,4,1,0.2,0.3,0.5,0\n");
      write_text(folder + "/layers.csv",
                 cat("layer,kind,step,forward_ms,backward_ms,kept_mib,timed_with\n"
                     "c1,conv2d,planned,0.5",
                     seed, ",0.75", seed,
                     ",2,\nr1,relu,planned,,,,c1\n"
                     "layer1.0.downsample,linear,planned,0.25,0.125,1,\n"));
    }
  }
}

// kind/width -> picture
const std::map<std::string, std::string>& pictures() {
  static const std::map<std::string, std::string> drawn = [] {
    std::map<std::string, std::string> out;
    const TemporaryFolder root;
    write_text(root.path() + "/1.json", bench_file(1));
    write_text(root.path() + "/2.json", bench_file(2));
    write_runs(root.path() + "/runs");
    for (const char* width : {"320", "480", "960", "paper"}) {
      const std::string to = root.path() + "/" + width;
      for (std::vector<std::string> words :
           {std::vector<std::string>{"plot", root.path() + "/1.json", root.path() + "/2.json"},
            {"plot", root.path() + "/runs"}}) {
        words.insert(words.end(), {"-o", to});
        if (std::string(width) == "paper") {
          words.emplace_back("--paper");
        } else {
          words.insert(words.end(), {"--width", width});
        }
        const Output called = run_here(words);
        EXPECT_EQ(called.code, 0) << called.err;
      }
      if (!fs::exists(to)) continue;
      for (const auto& entry : fs::directory_iterator(to)) {
        if (entry.path().extension() != ".svg") continue;
        out[cat(entry.path().stem().string(), "/", width)] = text_of(entry.path().string());
      }
    }
    return out;
  }();
  return drawn;
}

TEST(FigureGeometry, TextsOfAllKindsAreInsideThePictureAndNotOnEachOther) {
  for (const char* kind : {"curves", "pareto", "bars", "roofline", "heatmap", "speedup",
                           "workspace", "scaling", "layers", "memory", "sparsity"}) {
    for (const char* width : {"320", "480", "960", "paper"}) {
      EXPECT_TRUE(pictures().contains(cat(kind, "/", width))) << kind << " " << width;
    }
  }
  for (const auto& [name, svg] : pictures()) {
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"x(viewBox="0 0 ([0-9.]+) ([0-9.]+)")x")));
    const double right = std::stod(size[1]), bottom = std::stod(size[2]);
    const std::vector<SvgText> texts = texts_in(svg);
    EXPECT_GT(texts.size(), 5u) << name;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      for (const SvgPoint& corner : texts[i].corners) {
        EXPECT_TRUE(corner.x >= 0 && corner.x <= right && corner.y >= 0 && corner.y <= bottom)
            << name << ": '" << texts[i].text << "' leaves the picture at " << corner.x << ", "
            << corner.y;
      }
      for (std::size_t k = 0; k < i; ++k) {
        EXPECT_FALSE(overlap(texts[i], texts[k]))
            << name << ": '" << texts[i].text << "' is on '" << texts[k].text << "'";
      }
    }
  }
}

TEST(FigureGeometry, EachRoofHasItsNameBesideItAndDashesOfItsOwn) {
  for (const char* width : {"320", "480", "960", "paper"}) {
    const std::string& svg = pictures().at(cat("roofline/", width));
    std::map<std::string, std::vector<std::string>> roofs;  // word -> a path in each panel
    std::map<std::string, int> dashes;
    for (const char* name : {"peak 120 GFLOP/s", "L2 96.8 GB/s", "L3 68.5 GB/s", "DRAM 19 GB/s",
                             "peak 240 GFLOP/s", "L2 194 GB/s", "L3 137 GB/s", "DRAM 38 GB/s"}) {
      const std::vector<std::string> paths = lines_called(svg, name);
      ASSERT_EQ(paths.size(), 2u) << name;
      const std::string word = std::string(name).substr(0, std::string(name).find(' '));
      roofs[word].insert(roofs[word].end(), paths.begin(), paths.end());
      const std::size_t at = svg.find("d=\"" + paths[0] + "\"");
      ++dashes[attribute_of(svg.substr(at, svg.find('>', at) - at), "stroke-dasharray")];
      EXPECT_NE(svg.find(">" + word + (word == "peak" ? " of multiply-add<" : " bandwidth<")),
                std::string::npos)
          << word << " is not in the legend";
    }
    EXPECT_EQ(dashes.size(), 4u) << width;
    int labels = 0;
    for (const SvgText& label : texts_in(svg)) {
      if (!label.label) continue;
      double own = 1e9, other = 1e9;
      for (const auto& [word, paths] : roofs) {
        double& nearest = label.text.substr(0, label.text.find(' ')) == word ? own : other;
        for (const std::string& path : paths) {
          nearest = std::min(nearest, distance_to_line(label.middle(), path));
        }
      }
      ++labels;
      EXPECT_LT(own, 10) << width << ": " << label.text;
      EXPECT_LT(own, other) << width << ": " << label.text;
    }
    EXPECT_GE(labels, 12) << width;  // of 4 roofs in 4 panels
  }
}

TEST(FigureGeometry, NoNumberOfAHeatMapIsWiderThanItsCell) {
  const std::regex cell(
      R"x(<rect x="[^"]*" y="[^"]*" width="([0-9.]+)" [^>]*/>(?:\n)?<text [^>]*>([^<]*)</text>)x");
  for (const char* width : {"320", "480", "960", "paper"}) {
    for (const char* kind : {"heatmap", "workspace"}) {
      const std::string& svg = pictures().at(cat(kind, "/", width));
      int numbers = 0;
      for (std::sregex_iterator at(svg.begin(), svg.end(), cell), end; at != end; ++at, ++numbers) {
        EXPECT_LE(text_width((*at)[2].str(), 11), std::stod((*at)[1])) << width << " " << (*at)[2];
        EXPECT_EQ((*at)[2].str().find("\u2026"), std::string::npos) << (*at)[2];
      }
      EXPECT_GT(numbers, 100) << kind << " " << width;
    }
  }
}

TEST(FigureGeometry, ThePaperIsOneColumnWithLettersOf8Points) {
  constexpr double kPoint = 25.4 / 72;  // mm
  int seen = 0;
  for (const auto& [name, svg] : pictures()) {
    if (!name.ends_with("/paper")) continue;
    ++seen;
    EXPECT_NE(svg.find("width=\"85mm\""), std::string::npos) << name;
    std::smatch size;
    ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"x(viewBox="0 0 ([0-9.]+) )x")));
    const double mm = 85 / std::stod(size[1]);
    const std::regex letters(R"x(font-size="([0-9.]+)")x");
    for (std::sregex_iterator at(svg.begin(), svg.end(), letters), end; at != end; ++at) {
      EXPECT_GE(std::stod((*at)[1]) * mm / kPoint, 7.95) << name;
    }
    EXPECT_EQ(svg.find("pointer"), svg.find("pointer-events")) << name << ": paper has no pointer";
  }
  EXPECT_GE(seen, 11);
}

TEST(FigureGeometry, WhatRefusesAllIsNamedBelowTheTableAndItsReasonIsInThePage) {
  const TemporaryFolder root;
  write_text(root.path() + "/1.json", bench_file(1));
  EXPECT_EQ(run_here({"plot", root.path() + "/1.json", "-o", root.path() + "/out"}).code, 0);
  const std::string svg = text_of(root.path() + "/out/heatmap.svg");
  EXPECT_NE(svg.find("they refuse all of these problems: depthwise, int8_block_sparse<"),
            std::string::npos);
  EXPECT_NE(svg.find(">time / time of the fastest<"), std::string::npos) << "no colour scale";
  EXPECT_EQ(svg.find("pointer rests"), std::string::npos);
  const std::string page = text_of(root.path() + "/out/report.html");
  const std::size_t refused = page.find("id=\"refused\"");
  ASSERT_NE(refused, std::string::npos);
  EXPECT_NE(page.find("takes other types &amp; groups", refused), std::string::npos);
}

TEST(FigureGeometry, WidthAndPaperTogetherAreAMistake) {
  const Output out = run_here({"plot", "runs", "--width", "400", "--paper"});
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("--width or --paper"), std::string::npos) << out.err;
}

}  // namespace
}  // namespace convscope::testing
