// SPDX-License-Identifier: Apache-2.0
// race_test.cpp: tests the notebook function that checks a reader's own convolution and times it
// against the algorithms.
#include "experiments/notebooks/race.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/notebooks/display.h"
#include "experiments/notebooks/measured_pictures.h"
#include "experiments/notebooks/places.h"
#include "experiments/notebooks/show_tensor.h"

namespace convscope {
namespace {

Tensor by_reference(const Conv2dProblem& z, const Tensor& x, const Tensor& w) {
  return conv2d_by("reference", z, x, w);
}
Tensor one_wrong(const Conv2dProblem& z, const Tensor& x, const Tensor& w) {
  const Tensor y = by_reference(z, x, w);
  y.data<float>()[0] += 0.01f;
  return y;
}

std::string last_shown;

class Race : public testing::Test {
 protected:
  Race() {
    last_shown.clear();
    before_ = set_display_sink(
        [](const char*, const char* data, std::size_t bytes) { last_shown.assign(data, bytes); });
  }
  ~Race() override { set_display_sink(before_); }

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

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Race, ChecksAgainstTheReference) {
  testing::internal::CaptureStdout();
  check_conv2d("mine", by_reference,
               {"c=3,h=6,w=7,k=2,r=3,s=3,pad=1", "c=2,h=5,w=5,k=2,r=3,s=3,groups=2"});
  EXPECT_TRUE(
      has(testing::internal::GetCapturedStdout(), "mine agrees with reference on 2 problems"));
  const std::string wrong =
      error_of([] { check_conv2d("mine", one_wrong, {"c=3,h=6,w=7,k=2,r=3,s=3"}); });
  EXPECT_TRUE(has(wrong, "[mine]") && has(wrong, "c=3,h=6,w=7")) << wrong;
}

TEST_F(Race, SaysWhatShapeItExpects) {
  const auto flat = [](const Conv2dProblem&, const Tensor&, const Tensor&) {
    return Tensor::zeros({3});
  };
  const auto none = [](const Conv2dProblem&, const Tensor&, const Tensor&) { return Tensor(); };
  EXPECT_TRUE(has(error_of([&] { check_conv2d("flat", flat, {"h=5,w=5,r=3,s=3"}); }),
                  "[flat] expected y of f32[1,1,3,3], got f32[3] cpu"));
  EXPECT_TRUE(
      has(error_of([&] { check_conv2d("none", none, {"h=5,w=5,r=3,s=3"}); }), "got no tensor"));
  EXPECT_TRUE(
      has(error_of([] { check_conv2d("half", by_reference, {"h=5,w=5,r=3,s=3,dtype=f64"}); }),
          "expected a problem of f32"));
}

TEST_F(Race, TimesThoseThatAreRightAndSaysWhyOthersAreLeftOut) {
  const std::vector<RaceRow> rows =
      race("c=4,h=9,w=9,k=8,r=3,s=3,pad=1", {{"mine", by_reference}, {"wrong", one_wrong}},
           {"direct", "gemm_1x1"}, {.min_seconds = 0.001, .title = "a race"});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_GT(rows[0].median_ms, 0);
  EXPECT_EQ(rows[1].median_ms, 0);
  EXPECT_FALSE(rows[1].left_out.empty());
  EXPECT_GT(rows[2].gflops, 0);
  EXPECT_TRUE(has(rows[3].left_out, "1x1")) << rows[3].left_out;
  for (const char* part : {"a race", "mine", "wrong is left out", "gemm_1x1 is left out"}) {
    EXPECT_TRUE(has(last_shown, part)) << part;
  }
  EXPECT_TRUE(
      has(error_of([] { race("h=5,w=5,r=3,s=3", {}, {"dierct"}); }), "did you mean 'direct'?"));
}

TEST_F(Race, AlgorithmsByName) {
  const Conv2dProblem z = Conv2dProblem::parse("c=3,h=6,w=7,k=2,r=3,s=3,pad=1");
  const Tensor x = normal_tensor(z.x_shape()), w = normal_tensor(z.w_shape(), 2);
  EXPECT_LT(largest_difference(conv2d_by("winograd_lesson", z, x, w), by_reference(z, x, w)), 1e-4);
  EXPECT_TRUE(has(error_of([&] { conv2d_by("gemm_1x1", z, x, w); }), "[gemm_1x1]"));
  EXPECT_TRUE(has(error_of([&] { conv2d_by("direct", z, w, w); }), "expected x of f32[1,3,6,7]"));
}

Tensor dx_by_reference(const Conv2dProblem& z, const Tensor& dy, const Tensor& w) {
  return conv2d_by("reference", z, dy, w, Direction::backward_data);
}

TEST_F(Race, TheWaysBack) {
  const Conv2dProblem z = Conv2dProblem::parse("n=2,c=3,h=6,w=7,k=2,r=3,s=2,pad=1,stride=2");
  const Tensor x = normal_tensor(z.x_shape()), w = normal_tensor(z.w_shape(), 2),
               dy = normal_tensor(z.y_shape(), 3);
  for (const auto& [direction, first, second] : {std::tuple(Direction::backward_data, dy, w),
                                                 std::tuple(Direction::backward_weight, x, dy)}) {
    const Tensor right = conv2d_by("reference", z, first, second, direction);
    EXPECT_LT(largest_difference(conv2d_by("direct", z, first, second, direction), right), 1e-4);
  }
  EXPECT_TRUE(has(error_of([&] { dx_by_reference(z, x, w); }), "expected dy of f32[2,2,"));

  const std::vector<std::string> problems = {"c=3,h=6,w=7,k=2,r=3,s=3,pad=1"};
  testing::internal::CaptureStdout();
  check_conv2d("dx", dx_by_reference, problems, 8, Direction::backward_data);
  EXPECT_TRUE(has(testing::internal::GetCapturedStdout(), "dx agrees with reference on 1 problem"));
  const std::string wrong = error_of([&] {
    check_conv2d("mine", by_reference, {"c=3,h=6,w=6,k=3,r=3,s=3,pad=1"}, 8,
                 Direction::backward_data);
  });
  EXPECT_TRUE(has(wrong, "[mine]")) << wrong;
  const std::vector<RaceRow> rows =
      race(problems[0], {{"dx", dx_by_reference}}, {"direct", "direct_lesson"},
           {.min_seconds = 0.001, .direction = Direction::backward_data});
  for (const RaceRow& row : rows) EXPECT_GT(row.median_ms, 0) << row.name << row.left_out;
  EXPECT_TRUE(has(last_shown, "dx; algorithms on 1 thread"));
}

TEST_F(Race, DifferencesOfNumbersThatAreNone) {
  const Tensor a = Tensor::from({1, 2}, {2}), b = Tensor::from({1, 5}, {2});
  EXPECT_EQ(largest_difference(a, b), 3);
  EXPECT_TRUE(std::isnan(largest_difference(a, Tensor::from({NAN, 2}, {2}))));
  EXPECT_TRUE(has(error_of([&] { largest_difference(a, Tensor::zeros({3})); }), "of one shape"));
}

TEST_F(Race, ExercisesSayRightOrNotYet) {
  testing::internal::CaptureStdout();
  EXPECT_TRUE(exercise("exercise 1", [] { expect(true, "never"); }));
  EXPECT_FALSE(exercise("exercise 2", [] { expect(false, "3 is not 4"); }));
  EXPECT_FALSE(exercise("exercise 3", [] { Tensor::zeros({2}).reshape({3}); }));
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(has(
      said, "exercise 1: right\nexercise 2: not yet. 3 is not 4\nexercise 3: not yet. [reshape]"))
      << said;
}

TEST_F(Race, LaddersAndRooflinesAreFigures) {
  show_ladder("winograd", {.problem = "c=4,h=8,w=8,k=4,r=3,s=3,pad=1", .min_seconds = 0.001});
  EXPECT_TRUE(has(last_shown, "winograd_lesson, 1 thread"));
  EXPECT_TRUE(has(error_of([] { show_ladder("winogard"); }), "winogard"));
  testing::internal::CaptureStdout();
  show_roofline({{"mine", 2e6, 1e5, 0.5}});
  testing::internal::GetCapturedStdout();
  EXPECT_TRUE(has(last_shown, "20 FLOP/byte, 4 GFLOP/s"));
  EXPECT_TRUE(has(error_of([] { show_roofline({{"no time", 1, 1, 0}}); }), "'no time'"));
}

TEST_F(Race, TimesACall) {
  volatile double sum = 0;
  EXPECT_GT(time_ms(
                [&] {
                  for (int i = 0; i < 10000; ++i) sum = sum + 1;
                },
                0.001),
            0);
}

TEST(NotebookPaths, AreThoseOfTheSourceTree) {
  const NotebookPaths places = notebook_paths();
  EXPECT_EQ(places.folder, std::string(CONVSCOPE_SOURCE_DIR) + "/experiments/notebooks");
  EXPECT_FALSE(places.installed);
  EXPECT_TRUE(has(places.library, "libconvscope.so"));
  const std::vector<ShippedNotebook> all = shipped_notebooks(places.folder);
  ASSERT_GE(all.size(), 3u);
  EXPECT_EQ(all[0].name, "01_what_a_convolution_is");
  for (const ShippedNotebook& one : all) {
    EXPECT_TRUE(has(one.question, "?")) << one.name << ": " << one.question;
  }
  EXPECT_TRUE(shipped_notebooks("/nowhere").empty());
}

}  // namespace
}  // namespace convscope
