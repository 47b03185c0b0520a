// SPDX-License-Identifier: Apache-2.0
// pad_test.cpp: the padding modes and their gradients.
#include "framework/ops/pad.h"

#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::same_bits;

constexpr PadMode kModes[] = {PadMode::zeros, PadMode::reflect, PadMode::replicate,
                              PadMode::circular};

TEST(Pad, EachModeContinuesARowAsItsNameSays) {
  const Tensor x = Tensor::from({1, 2, 3, 4}, {1, 1, 1, 4});
  const Padding2d sides{.left = 2, .right = 3};
  const auto row = [&](PadMode mode) { return pad2d(x, sides, mode).reshape({9}); };
  EXPECT_TRUE(near(row(PadMode::zeros), Tensor::from({0, 0, 1, 2, 3, 4, 0, 0, 0}, {9}), 0, 0));
  EXPECT_TRUE(near(row(PadMode::reflect), Tensor::from({3, 2, 1, 2, 3, 4, 3, 2, 1}, {9}), 0, 0));
  EXPECT_TRUE(near(row(PadMode::replicate), Tensor::from({1, 1, 1, 2, 3, 4, 4, 4, 4}, {9}), 0, 0));
  EXPECT_TRUE(near(row(PadMode::circular), Tensor::from({3, 4, 1, 2, 3, 4, 1, 2, 3}, {9}), 0, 0));
}

TEST(Pad, RowsAndColumnsAreTreatedAlike) {
  // Padding the transposed image gives the transposed result.
  const Tensor x = normal({1, 1, 4, 5}, DType::f32);
  const auto transposed = [](const Tensor& t) {
    const std::int64_t h = t.dim(2), w = t.dim(3);
    Tensor out = Tensor::empty({1, 1, w, h});
    for (std::int64_t i = 0; i < h * w; ++i) {
      out.data<float>()[i % w * h + i / w] = t.data<float>()[i];
    }
    return out;
  };
  for (PadMode mode : kModes) {
    const Tensor y = pad2d(x, {.top = 1, .bottom = 2, .left = 3, .right = 0}, mode);
    const Tensor z = pad2d(transposed(x), {.top = 3, .bottom = 0, .left = 1, .right = 2}, mode);
    EXPECT_TRUE(same_bits(transposed(y), z)) << name_of(mode);
  }
}

TEST(Pad, GradientsMatchDifferencesInEveryMode) {
  for (PadMode mode : kModes) {
    const auto f = [&](const std::vector<Variable>& v) {
      return pad2d(v[0], {.top = 2, .bottom = 1, .left = 0, .right = 3}, mode);
    };
    const GradcheckResult result = gradcheck(f, {leaf(normal({2, 2, 3, 4}))});
    EXPECT_TRUE(result.ok) << name_of(mode) << " " << result.str();
  }
}

TEST(Pad, FloatMatchesDoubleInBothDirections) {
  const Tensor x = normal({7, 9, 13, 17}, DType::f32);
  const Padding2d padding{.top = 3, .bottom = 1, .left = 2, .right = 5};
  const Tensor dy = normal({7, 9, 17, 24}, DType::f32, 2);
  for (PadMode mode : kModes) {
    const auto run = [&](DType dtype, bool gradient) {
      const Variable v = leaf(x.to(dtype));
      const Variable y = pad2d(v, padding, mode);
      if (!gradient) return y.value();
      y.backward(dy.to(dtype));
      return v.grad();
    };
    const Tensor y = run(DType::f64, false);
    const Tensor dx = run(DType::f64, true);
    on_every_machine([&] { return run(DType::f32, false); },
                     [&](const Tensor& got) { EXPECT_TRUE(near(got, y, 0, 0)); });
    // Sums of at most 24 terms.
    on_every_machine([&] { return run(DType::f32, true); },
                     [&](const Tensor& got) { EXPECT_TRUE(near(got, dx, 100 * 0x1p-24, 0)); });
  }
}

TEST(Pad, NothingToAddGivesTheSameTensor) {
  const Tensor x = normal({1, 2, 3, 4});
  EXPECT_TRUE(pad2d(x, {}, PadMode::reflect).shares_memory_with(x));
}

TEST(Pad, EmptyBatchesWork) {
  const Variable x = leaf(Tensor::empty({0, 2, 3, 4}));
  const Variable y = pad2d(x, {.top = 1}, PadMode::reflect);
  EXPECT_EQ(y.shape(), (Shape{0, 2, 4, 4}));
  y.backward(Tensor::empty(y.shape()));
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST(Pad, RefusesWhatAModeCannotDo) {
  const Tensor x = Tensor::zeros({1, 1, 3, 4});
  EXPECT_EQ(error_of([&] { pad2d(x, {.bottom = 3}, PadMode::reflect); }),
            "[pad] expected a reflect padding smaller than H = 3 because the edge itself is not "
            "repeated, got 3 for x [1,1,3,4]");
  EXPECT_EQ(error_of([&] { pad2d(x, {.left = 5}, PadMode::circular); }),
            "[pad] expected a circular padding of at most W = 4 because the image is repeated "
            "once, got 5 for x [1,1,3,4]");
  EXPECT_NE(error_of([&] { pad2d(x, {.top = -1}); }).find("expected a padding of 0 to 2^31"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              pad2d(Tensor::zeros({3, 4}), {.top = 1});
            }).find("[N,C,H,W]"),
            std::string::npos);
  EXPECT_NE(error_of([] { parse_pad_mode("mirror"); }).find("got 'mirror'"), std::string::npos);
}

}  // namespace
}  // namespace convscope
