// SPDX-License-Identifier: Apache-2.0
// chart_test.cpp: axes, ticks and panels of the SVG charts.
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <set>

#include "experiments/report/chart/figure.h"
#include "experiments/report/chart/series_style.h"
#include "experiments/report/chart/svg_text.h"
#include "layers/conv2d/algorithm.h"
#include "tests/experiments/report/svg_geometry.h"
#include "tests/experiments/report/xml_check.h"

namespace convscope::testing {
namespace {

using Numbers = std::vector<double>;
using Texts = std::vector<std::string>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Axis, ticks_are_multiples_of_1_2_or_5_times_a_power_of_ten) {
  EXPECT_EQ(nice_ticks(0, 10, 5), (Numbers{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(93.2, 98.9, 6), (Numbers{93, 94, 95, 96, 97, 98, 99}));
  EXPECT_EQ(nice_ticks(-3, 7, 2), (Numbers{-5, 0, 5, 10}));
  EXPECT_EQ(nice_ticks(0, 1, 2), (Numbers{0, 0.5, 1}));
  for (const double scale : {1e-9, 1.0, 1e7}) {
    for (const double high : {1.0, 1.3, 2.2, 4.9, 7.7, 9.99}) {
      const Numbers ticks = nice_ticks(0.1 * scale, high * scale, 6);
      EXPECT_GE(ticks.size(), 4u);
      EXPECT_LE(ticks.size(), 9u);
      EXPECT_LE(ticks.front(), 0.1 * scale);
      EXPECT_GE(ticks.back(), high * scale * (1 - 1e-9));
    }
  }
}

TEST(Axis, epochs_have_no_ticks_between_whole_numbers) {
  EXPECT_EQ(nice_ticks(1, 3, 8, /*whole_numbers=*/true), (Numbers{1, 2, 3}));
}

TEST(Axis, logarithmic_ticks_fit_the_number_of_decades) {
  EXPECT_EQ(log_ticks(0.03, 2.3, 6), (Numbers{0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}));
  const Numbers wide = log_ticks(1e-6, 1e6, 6);
  EXPECT_LE(wide.size(), 8u);
  EXPECT_LE(wide.front(), 1e-6 * (1 + 1e-9));
  EXPECT_GE(wide.back(), 1e6 * (1 - 1e-9));
  for (double tick : log_ticks(40, 100, 6)) EXPECT_GT(tick, 0);
  for (double tick : log_ticks(0.001, 0.0049, 6)) EXPECT_GT(tick, 0);
  EXPECT_GE(log_ticks(7, 7, 6).size(), 2u);
}

TEST(Axis, tick_texts_share_their_decimals) {
  EXPECT_EQ(tick_texts({0, 0.5, 1}, false), (Texts{"0.0", "0.5", "1.0"}));
  EXPECT_EQ(tick_texts({0, 20, 40}, false), (Texts{"0", "20", "40"}));
  EXPECT_EQ(tick_texts({0, 20000, 40000}, false), (Texts{"0", "20k", "40k"}));
  EXPECT_EQ(tick_texts({1e-6, 1e-4, 1e-2}, true), (Texts{"1e-6", "0.0001", "0.01"}));
}

TEST(Axis, any_numbers_give_finite_pixels_inside_the_axis) {
  const Numbers values = {0, -1, 1, 1e-320, 1e-200, 5e-17, 1 + 1e-15, 1e9, 1e300, -1e300, 100};
  for (const bool log : {false, true}) {
    for (double a : values) {
      for (double b : values) {
        Extent extent;
        extent.add(a);
        extent.add(b);
        const Axis axis({.label = "", .log = log}, extent, 6, 100, 200);
        EXPECT_LE(axis.ticks().size(), 40u) << a << " " << b;
        for (double value : values) {
          const double pixel = axis.pixel(value);
          EXPECT_TRUE(pixel >= 100 && pixel <= 200) << a << " " << b << " " << value;
        }
      }
    }
  }
}

TEST(Axis, percent_never_goes_beyond_100) {
  Extent extent;
  extent.add(97.5);
  extent.add(103);  // mean plus deviation
  const Axis axis({.label = "", .lowest = 0, .highest = 100}, extent, 5, 0, 1);
  EXPECT_EQ(axis.high(), 100);
  EXPECT_EQ(axis.ticks().back(), 100);
}

TEST(SvgText, escapes_what_xml_does_not_allow) {
  EXPECT_EQ(escape_markup("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(escape_markup(std::string("a\x01\0b", 4)), "a\uFFFD\uFFFDb");
  EXPECT_EQ(escape_markup("\xC3\xA4 \xFF \xED\xA0\x80 \xC3"),
            "\u00E4 \uFFFD \uFFFD\uFFFD\uFFFD \uFFFD");
}

TEST(SvgText, long_names_keep_both_ends) {
  const std::string name = "cifar10_lenet5_quantized_with_a_very_long_name_w4a4";
  const std::string shown = elide(name, 11, 120);
  EXPECT_LE(text_width(shown, 11), 120);
  EXPECT_TRUE(shown.starts_with("cifar10"));
  EXPECT_TRUE(shown.ends_with("_w4a4"));
  EXPECT_NE(shown.find("\u2026"), std::string::npos);
  EXPECT_EQ(elide("short", 11, 120), "short");
  EXPECT_NO_THROW(elide("\u00E4\u00E4\u00E4\u00E4\u00E4\u00E4", 11, 5));
}

Figure line_figure(Series series, AxisSpec y = {.label = "loss (nats)"}) {
  return {.title = "Loss <train & test>",
          .panels = {LinePanel{.title = "t",
                               .x = {.label = "step"},
                               .y = std::move(y),
                               .series = {std::move(series)},
                               .end_labels = true}},
          .legend = {{.name = "a < b"}},
          .notes = {"note"},
          .data = {{"x", "y"}, {"1", "<2>"}}};
}

TEST(Figure, has_title_axes_with_units_a_legend_and_its_data) {
  const Figure figure = line_figure({.name = "train", .x = {0, 50, 100}, .y = {2.3, 0.5, 0.1}});
  const std::string svg = to_svg(figure);
  expect_well_formed(svg);
  for (const char* text : {"<title>Loss &lt;train &amp; test&gt;</title>",
                           "<desc>x\ty\n1\t&lt;2&gt;\n</desc>", ">step<", ">loss (nats)<",
                           ">train<", ">a &lt; b<", ">note<", ">100<", ">2.5<", "role=\"img\""}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(svg, to_svg(figure));
  EXPECT_EQ(svg.find("href"), std::string::npos);
}

// Returns the path of the line named "s".
std::string line_of(const std::string& svg) {
  const std::size_t title = svg.find("<title>s</title></path>");
  const std::size_t path = svg.rfind("<path d=\"", title) + 9;
  return title == std::string::npos ? "" : svg.substr(path, svg.find('"', path) - path);
}

TEST(Figure, a_gap_in_the_data_is_a_gap_in_the_line) {
  for (const double gap : {kNan, kInfinity, -kInfinity, 1e308}) {
    const std::string svg =
        to_svg(line_figure({.name = "s", .x = {0, 1, 2, 3}, .y = {1, gap, 2, 3}}));
    expect_well_formed(svg);
    const std::string path = line_of(svg);
    EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2) << path;
    EXPECT_EQ(std::count(path.begin(), path.end(), 'L'), 1) << path;
  }
}

TEST(Figure, a_value_of_zero_on_a_logarithmic_axis_makes_it_linear) {
  const AxisSpec log{.label = "y", .log = true};
  EXPECT_NE(to_svg(line_figure({.name = "s", .x = {0, 1}, .y = {1, 2}}, log)).find("log scale"),
            std::string::npos);
  EXPECT_EQ(to_svg(line_figure({.name = "s", .x = {0, 1}, .y = {0, 2}}, log)).find("log scale"),
            std::string::npos);
}

TEST(Figure, a_band_below_zero_ends_at_the_logarithmic_axis) {
  const std::string svg = to_svg(line_figure(
      {.name = "s", .x = {0, 1}, .y = {0.1, 0.2}, .low = {-0.3, 0.1}, .high = {0.5, 0.3}},
      {.label = "y", .log = true}));
  expect_well_formed(svg);
  EXPECT_NE(svg.find("log scale"), std::string::npos);
  EXPECT_NE(svg.find("fill-opacity"), std::string::npos);
}

TEST(Figure, no_data_one_point_and_equal_values_make_a_chart_too) {
  for (const Series& series :
       {Series{.name = "s"}, Series{.name = "s", .x = {5}, .y = {0}},
        Series{.name = "s", .x = {1, 2}, .y = {3, 3}}, Series{.name = "s", .x = {kNan}, .y = {1}},
        Series{.name = "s", .x = {1}, .y = {1}, .low = {kNan}, .high = {kNan}, .line = false}}) {
    for (const bool log : {false, true}) {
      expect_well_formed(to_svg(line_figure(series, {.label = "y", .log = log})));
    }
  }
  expect_well_formed(to_svg({}));
  expect_well_formed(to_svg({.title = "t", .panels = {BarPanel{}, LegendPanel{}}}));
}

TEST(Figure, bars_show_values_deviations_and_what_is_missing) {
  const std::string svg = to_svg(
      {.title = "t",
       .panels = {BarPanel{.x = {.label = "ms"},
                           .categories = {"a",
                                          "a name that is much too long to stand beside the "
                                          "bars of a figure that is only so wide, so it is "
                                          "shortened"},
                           .series = {{.name = "forward", .values = {1.5, kNan}, .std = {0.25, 0}},
                                      {.name = "backward", .values = {2}}}}}});
  expect_well_formed(svg);
  EXPECT_NE(svg.find(">1.50 \u00B1 0.25<"), std::string::npos);
  EXPECT_NE(svg.find("<title>a, forward: 1.50 \u00B1 0.25</title>"), std::string::npos);
  EXPECT_NE(svg.find(">-<"), std::string::npos);
  EXPECT_NE(svg.find(">a name that is much"), std::string::npos);  // in lines, to its end
  EXPECT_NE(svg.find("so it is shortened<"), std::string::npos);
}

TEST(Figure, series_differ_in_dashes_and_marks_not_in_colour_alone) {
  std::vector<std::string> looks;
  for (int style = 0; style < 8; ++style) {
    std::string svg = to_svg({.title = "t", .legend = {{.name = "x", .style = style}}});
    for (std::size_t at = svg.find('#'); at != std::string::npos; at = svg.find('#', at + 1)) {
      svg.replace(at, svg.find('"', at) - at, "#");  // as if printed in one colour
    }
    EXPECT_EQ(std::find(looks.begin(), looks.end(), svg), looks.end()) << style;
    looks.push_back(svg);
  }
}

TEST(Axis, ShowsAtLeastItsLeastSpan) {
  Extent extent;
  extent.add(99.1);
  extent.add(99.2);
  const Axis percent({.least_span = 2, .lowest = 0, .highest = 100}, extent, 5, 0, 1);
  EXPECT_GE(percent.high() - percent.low(), 2);
  EXPECT_LE(percent.high(), 100);
  Extent times;
  times.add(1.0);
  times.add(1.05);
  const Axis time({.log = true, .least_ratio = 2}, times, 5, 0, 1);
  EXPECT_GE(time.high() / time.low(), 2 * (1 - 1e-9));
}

TEST(Axis, LogarithmicTicksAreRoundNumbers) {
  for (const double tick : log_ticks(0.000492, 0.00198, 4)) {
    const double digits = tick / std::pow(10, std::floor(std::log10(tick) + 1e-9));
    EXPECT_NEAR(digits * 10, std::round(digits * 10), 1e-6) << tick;
  }
}

TEST(SvgText, MeasuredNumbersHaveTheDigitsOfTheirDeviation) {
  EXPECT_EQ(measured_text(1.2903, 0.0043), "1.2903 \u00B1 0.0043");
  EXPECT_EQ(measured_text(28.43, 3.2), "28.4 \u00B1 3.2");
  EXPECT_EQ(measured_text(1234.5, 56), "1234 \u00B1 56");
  EXPECT_EQ(measured_text(0.55), "0.550");
  EXPECT_EQ(measured_text(412.3), "412");
  EXPECT_EQ(measured_text(kNan), "-");
}

TEST(SvgText, LongTextsAreWrappedNotCut) {
  const std::string text = "quickstart data.val_split=0 model.kernel_size=3 conv.algorithm=fft";
  const Texts lines = wrap_text(text, 12, 200, 4);
  EXPECT_GE(lines.size(), 2u);
  std::string whole;
  for (const std::string& line : lines) {
    EXPECT_LE(text_width(line, 12), 200) << line;
    whole += line;
  }
  std::string letters = text;
  std::erase(letters, ' ');
  std::erase(whole, ' ');
  EXPECT_EQ(whole, letters);
  EXPECT_NE(wrap_text(text, 12, 100, 2).back().find("\u2026"), std::string::npos);
  EXPECT_TRUE(wrap_text("", 12, 100, 2).empty());
}

TEST(Figure, MarksStandInsideTheFrame) {
  const Series marks{.name = "s", .x = {0, 10, 5}, .y = {0, 10, 10}, .line = false};
  const std::string svg = to_svg(line_figure(marks));
  const std::regex frame(R"x(<path d="M([0-9.]+) ([0-9.]+)V([0-9.]+)H([0-9.]+)" fill="none")x");
  std::smatch at;
  ASSERT_TRUE(std::regex_search(svg, at, frame));
  const std::vector<SvgPoint> found = marks_in(svg.substr(0, svg.find(">a &lt; b<")));
  ASSERT_GE(found.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GE(found[i].x, std::stod(at[1]) + 5);
    EXPECT_LE(found[i].x, std::stod(at[4]) - 5);
    EXPECT_GE(found[i].y, std::stod(at[2]) + 5);
    EXPECT_LE(found[i].y, std::stod(at[3]) - 5);
  }
}

TEST(Figure, NoLabelLiesOnAMark) {
  // A cloud of points surrounds a line. Some points have numbers next to them; the line has a name,
  // but no marks.
  Series cloud{.name = "cloud", .line = false}, line{.name = "roof", .marks = false};
  for (int i = 0; i < 40; ++i) {
    cloud.x.push_back(i % 8);
    cloud.y.push_back(3 + 0.4 * (i / 8));
    cloud.tags.push_back(i % 3 == 0 ? std::to_string(i) : "");
  }
  line.x = {0, 7};
  line.y = {0, 7};
  line.label = "DRAM 21.5 GB/s";
  Figure figure = line_figure(cloud);
  auto& panel = std::get<LinePanel>(figure.panels[0]);
  panel.series.push_back(line);
  panel.end_labels = false;
  figure.legend.clear();
  const std::string svg = to_svg(figure);
  const std::vector<SvgBox> labels = labels_in(svg);
  EXPECT_EQ(labels.size(), 15u);  // 14 numbers and the name
  const std::vector<SvgPoint> marks = marks_in(svg);
  EXPECT_EQ(marks.size(), 40u);
  for (const SvgBox& label : labels) {
    for (const SvgPoint& mark : marks) {
      EXPECT_FALSE(mark.x > label.left - 4 && mark.x < label.right + 4 && mark.y > label.top - 4 &&
                   mark.y < label.bottom + 4)
          << label.text << " lies on the mark at " << mark.x << ", " << mark.y;
    }
  }
}

TEST(Figure, ANarrowOneHasFewerColumnsAndNothingBeyondItsEdge) {
  const LinePanel panel{.title = "a title with as many words as a long config has, and more",
                        .x = {.label = "epoch"},
                        .y = {.label = "loss"},
                        .series = {{.name = "s", .x = {1, 2}, .y = {1, 2}}}};
  Figure figure{.title = "t", .columns = 4, .panels = {panel, panel, panel, panel}};
  const std::regex frame(R"x(<path d="M([0-9.]+) ([0-9.]+)V([0-9.]+)H([0-9.]+)" fill="none")x");
  for (const int width : {320, 480, 960}) {
    figure.width = width;
    const std::string svg = to_svg(figure);
    expect_well_formed(svg);
    EXPECT_NE(svg.find(cat("width=\"", width, "\"")), std::string::npos);
    int frames = 0;
    for (std::sregex_iterator at(svg.begin(), svg.end(), frame), end; at != end; ++at, ++frames) {
      EXPECT_LE(std::stod((*at)[4]), width);
      EXPECT_GT(std::stod((*at)[4]) - std::stod((*at)[1]), 100);
    }
    EXPECT_EQ(frames, 4);
    EXPECT_EQ(svg.find("\u2026"), std::string::npos) << "a title is cut";
  }
}

TEST(SeriesStyle, EachAlgorithmHasOneOfItsOwn) {
  std::map<int, std::string> taken;
  for (const std::string& name : conv2d_algorithms(DeviceType::cpu).names()) {
    const int style = algorithm_style(name);
    EXPECT_EQ(style, algorithm_style(std::string(name)));
    EXPECT_TRUE(taken.emplace(style, name).second) << name << " looks like " << taken[style];
  }
  // Frequently compared algorithms have different colours.
  std::set<std::string> colors;
  for (const char* name : {"direct", "im2col_gemm", "winograd_f4x3", "fft", "depthwise",
                           "direct_batch_lanes", "winograd_f2x3", "gemm_1x1"}) {
    EXPECT_TRUE(colors.insert(style_color(algorithm_style(name))).second) << name;
  }
}

}  // namespace
}  // namespace convscope::testing
