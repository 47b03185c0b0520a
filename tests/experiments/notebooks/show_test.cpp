// SPDX-License-Identifier: Apache-2.0
// show_test.cpp: tests the pictures, tables, heat maps, charts and windows that cells of a notebook
// show.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "experiments/look/look_data.h"
#include "experiments/notebooks/display.h"
#include "experiments/notebooks/draw_window.h"
#include "experiments/notebooks/png.h"
#include "experiments/notebooks/quick_charts.h"
#include "experiments/notebooks/show_tensor.h"
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

std::vector<std::pair<std::string, std::string>> shown;  // MIME type and text

class Show : public testing::Test {
 protected:
  Show() {
    shown.clear();
    before_ = set_display_sink([](const char* mime, const char* data, std::size_t bytes) {
      shown.emplace_back(mime, std::string(data, bytes));
    });
  }
  ~Show() override { set_display_sink(before_); }

 private:
  DisplaySink before_;
};

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST_F(Show, FiguresFitTheColumnOfANotebook) {
  show(Figure{.title = "Loss & more", .panels = {LinePanel{}}});
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0].first, "image/svg+xml");
  EXPECT_NE(shown[0].second.find("width=\"720\""), std::string::npos);
  EXPECT_NE(shown[0].second.find("Loss &amp; more"), std::string::npos);
  EXPECT_NE(error_of([] { display("", "x"); }).find("expected a MIME type"), std::string::npos);
}

TEST_F(Show, WithoutAPlaceALineStandsForIt) {
  set_display_sink(nullptr);
  testing::internal::CaptureStdout();
  show_html("<b>bold</b>");
  display("text/plain", "words");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "[text/html, 11 bytes]\nwords\n");
}

TEST_F(Show, PngOfTwoPixelsIsTheOneOfAnotherProgram) {
  // The expected bytes are the chunk names, the sizes and the checksums of a PNG of 2x1 grey
  // pixels.
  const std::string png = to_png({.height = 1, .width = 2, .values = {0, 255}});
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(8, 25),
            std::string("\0\0\0\rIHDR\0\0\0\2\0\0\0\1\x8\0\0\0\0\xd1\x49\x20\x56", 25));
  EXPECT_EQ(png.substr(png.size() - 12), std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));
  EXPECT_NE(error_of([] {
              to_png({.height = 1, .width = 2, .values = {0}});
            }).find("expected 1x2x1 values"),
            std::string::npos);
  EXPECT_NE(error_of([] { to_png({.height = 0, .width = 2}); }).find("expected sides of 1"),
            std::string::npos);
  show_png("\x89PNG");
  EXPECT_EQ(shown.back(), (std::pair<std::string, std::string>("image/png", "iVBORw==")));
}

TEST_F(Show, Base64OfEveryRest) {
  const std::map<std::string, std::string> known = {{"", ""},
                                                    {"f", "Zg=="},
                                                    {"fo", "Zm8="},
                                                    {"foo", "Zm9v"},
                                                    {"foobar", "Zm9vYmFy"}};  // RFC 4648
  for (const auto& [bytes, text] : known) EXPECT_EQ(base64(bytes), text);
}

TEST_F(Show, ImagesAreOnePictureForEachPlane) {
  show_image(counted_tensor({2, 4, 4}), {.title = "two <planes>"});
  EXPECT_EQ(count_of(shown.back().second, "<img"), 2u);
  EXPECT_NE(shown.back().second.find("two &lt;planes&gt;, plane 1"), std::string::npos);
  EXPECT_NE(shown.back().second.find("black 0, white 31"), std::string::npos);
  show_image(counted_tensor({3, 4, 4}), {.color = true});
  EXPECT_EQ(count_of(shown.back().second, "<img"), 1u);
  show_image(counted_tensor({20, 4, 4}));
  EXPECT_EQ(count_of(shown.back().second, "<img"), 16u);
  EXPECT_NE(shown.back().second.find("4 planes more are not shown"), std::string::npos);
  EXPECT_NE(error_of([] { show_image(Tensor()); }).find("[show_image] expected a tensor"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              show_image(counted_tensor({2, 4, 4}), {.color = true});
            }).find("expected three planes"),
            std::string::npos);
}

TEST_F(Show, TablesHaveTheNumbersAndSayWhatIsLeftOut) {
  show_table(Tensor::from({1, 2.5f, -3, 4e-7f}, {2, 2}), {.title = "small"});
  EXPECT_NE(shown.back().second.find("<td>2.5</td>"), std::string::npos);
  EXPECT_NE(shown.back().second.find("<td>4e-07</td>"), std::string::npos);
  EXPECT_EQ(shown.back().second.find("the first"), std::string::npos);
  show_table(counted_tensor({2, 30, 40}));
  EXPECT_NE(shown.back().second.find("the first 12x16 of [2,30,40]"), std::string::npos);
  show_table({{"name", "ms"}, {"a<b", "3"}}, "times");
  EXPECT_NE(shown.back().second.find("<th>name</th>"), std::string::npos);
  EXPECT_NE(shown.back().second.find("<td>a&lt;b</td>"), std::string::npos);
  EXPECT_NE(error_of([] { show_table(std::vector<std::vector<std::string>>{}); }).find("the head"),
            std::string::npos);
}

TEST_F(Show, HeatMapsHaveEachNumberAndItsName) {
  heat_map(Tensor::from({1, -2, 0, 0.5f}, {2, 2}),
           {.title = "B", .rows = {"a", "b"}, .columns = {"x", "y"}});
  for (const char* part : {">B<", ">a<", ">y<", ">-2<", ">0.5<"}) {
    EXPECT_NE(shown.back().second.find(part), std::string::npos) << part;
  }
  // The sign has a separate colour: 1 and -1 differ.
  heat_map(Tensor::from({1, -1}, {1, 2}));
  std::set<std::string> fills;
  const std::regex cell(R"x(<g><title>0, [01]: -?1</title><rect [^>]*fill="(#[0-9a-f]+)")x");
  const std::string svg = shown.back().second;
  for (std::sregex_iterator at(svg.begin(), svg.end(), cell), end; at != end; ++at) {
    fills.insert((*at)[1]);
  }
  EXPECT_EQ(fills.size(), 2u);
  EXPECT_NE(error_of([] {
              heat_map(Tensor::zeros({65, 2}));
            }).find("at most 64 rows"),
            std::string::npos);
}

TEST_F(Show, ReadsOfAWatchedLessonAreThoseOfTheWindows) {
  Recorder seen;
  const Conv2dProblem z = Conv2dProblem::parse("h=5,w=5,r=3,s=3");
  watch_conv2d("im2col_gemm_lesson", z, Direction::forward, normal_tensor(z.x_shape()),
               normal_tensor(z.w_shape()), seen);
  show_reads(seen, "x", "reads");
  // The heat map has 25 pixels. The centre pixel is read 9 times and each corner once; the colour
  // scale ends at 9.
  EXPECT_EQ(count_of(shown.back().second, ">9</text>"), 2u);
  EXPECT_EQ(count_of(shown.back().second, "0, 0: 1<"), 1u);
  EXPECT_EQ(count_of(shown.back().second, "2, 2: 9<"), 1u);
  EXPECT_NE(error_of([&] { show_reads(seen, "z"); }).find("got 'z'"), std::string::npos);
}

TEST_F(Show, ChartsTakeLinesAndBars) {
  line_plot({.title = "t", .x = "m", .y = "error", .log_y = true},
            {{"F", {1, 2}, {1, 100}}, {"G", {1, 2}, {2, 3}}});
  EXPECT_NE(shown.back().second.find("log scale"), std::string::npos);
  EXPECT_NE(shown.back().second.find(">G<"), std::string::npos);
  bar_plot({.title = "t", .x = "ms"}, {{"direct", 0.25}, {"fft", 1.5}});
  EXPECT_NE(shown.back().second.find("0.25"), std::string::npos);
  EXPECT_NE(error_of([] {
              line_plot({}, {{"bad", {1, 2}, {1}}});
            }).find("as many x as y of 'bad', got 2 and 1"),
            std::string::npos);
}

TEST_F(Show, WindowsNameTheTapsOfOneOutput) {
  const Conv2dProblem z = Conv2dProblem::parse("h=5,w=5,r=3,s=3,stride=2,pad=1,dilation=1");
  const std::string svg = window_svg(z, {.p = 1, .q = 1});
  for (const char* tap : {">0,0<", ">1,1<", ">2,2<"}) EXPECT_EQ(count_of(svg, tap), 1u) << tap;
  EXPECT_EQ(count_of(svg, "stroke-dasharray"), 7u * 7 - 5 * 5);  // the frame
  EXPECT_EQ(count_of(svg, "#d55e00"), 1u);
}

TEST_F(Show, WindowsCountTheReadsOfATile) {
  const Conv2dProblem z = Conv2dProblem::parse("h=6,w=6,r=3,s=3");
  const std::string svg = window_svg(z, {.p = 0, .q = 0, .rows = 2, .columns = 2});
  EXPECT_EQ(count_of(svg, ">4</text>"), 4u);
  EXPECT_EQ(count_of(svg, ">1</text>"), 4u);
  EXPECT_EQ(count_of(svg, ">2</text>"), 8u);
  EXPECT_EQ(count_of(svg, "#d55e00"), 4u);
  const std::string numbers = window_svg(z, {}, counted_tensor({1, 1, 6, 6}));
  EXPECT_EQ(count_of(numbers, ">35</text>"), 1u);
}

TEST_F(Show, WindowsRefuseWhatCannotBeDrawn) {
  const Conv2dProblem z = Conv2dProblem::parse("h=6,w=6,r=3,s=3");
  EXPECT_NE(
      error_of([&] { draw_window(z, {.p = 3, .rows = 2}); }).find("inside of y, which is 4x4"),
      std::string::npos);
  EXPECT_NE(
      error_of([] { draw_window(Conv2dProblem::parse("h=99,w=9,r=3,s=3")); }).find("at most 24x32"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              draw_window(z, {}, Tensor::zeros({5, 5}));
            }).find("planes of 6x6"),
            std::string::npos);
}

TEST_F(Show, ViewsAndTestDataAreWhatTheySay) {
  const Tensor x = counted_tensor({2, 3, 4, 5});
  EXPECT_EQ(view_of(x)(1, 2, 3, 4), 119);
  EXPECT_EQ(view_of(x).or_zero(0, 0, -1, 0), 0);
  EXPECT_NE(error_of([] { view_of(Tensor::zeros({2}, DType::f64)); }).find("expected f32"),
            std::string::npos);
  const Tensor a = normal_tensor({1000}), b = normal_tensor({1000}), c = normal_tensor({1000}, 2);
  double sum = 0, squares = 0, same = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.at(i), b.at(i));
    same += a.at(i) == c.at(i) ? 1 : 0;
    sum += a.at(i);
    squares += a.at(i) * a.at(i);
  }
  EXPECT_EQ(same, 0);
  EXPECT_NEAR(sum / 1000, 0, 5 / std::sqrt(1000.0));  // five deviations
  EXPECT_NEAR(squares / 1000, 1, 5 * std::sqrt(2 / 1000.0));
  const Tensor image = test_image(16, 24);
  EXPECT_EQ(image.shape(), (Shape{1, 1, 16, 24}));
}

}  // namespace
}  // namespace convscope
