// SPDX-License-Identifier: Apache-2.0
// pool2d_nchw16c_test.cpp: tests that pooling on NCHW16c images has the same bits as pooling on
// NCHW, forward and backward.
#include <gtest/gtest.h>

#include "layers/pool2d/pool2d.h"
#include "tests/layers/nchw16c_images.h"

namespace convscope {
namespace {

using namespace testing;

struct Case {
  std::int64_t n, h, w;
  Pool2dWindow window;
};

std::vector<Case> cases() {
  const auto square = [](std::int64_t size, std::int64_t stride, std::int64_t pad) {
    return Pool2dWindow{.kernel_h = size,
                        .kernel_w = size,
                        .stride_h = stride,
                        .stride_w = stride,
                        .pad_h = pad,
                        .pad_w = pad};
  };
  std::vector<Case> out{
      {2, 4, 6, {}},
      {1, 5, 7, {}},                   // a row and a column left over
      {1, 5, 7, {.ceil_mode = true}},  // windows that extend over the edge
      {2, 9, 11, square(3, 2, 1)},     // the stem of ResNet
      {1, 7, 6, square(3, 1, 1)},
      {1, 7, 6, square(3, 3, 1)},
      {1, 1, 1, square(1, 1, 0)},
      {3, 1, 1, square(3, 2, 1)},
      {1, 6, 5, {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1}},
      {1, 9, 8, {.kernel_h = 2, .kernel_w = 2, .stride_h = 4, .stride_w = 3}},  // gaps
      {1, 7, 7, square(7, 7, 0)},
      {1, 12, 11, square(9, 1, 4)},  // many windows over each pixel
      {1, 20, 19, {.kernel_h = 18, .kernel_w = 17, .stride_h = 1, .stride_w = 1}},  // > 256
      {2, 70, 30, square(3, 2, 1)}};  // several chunks
  out.push_back({1, 7, 6, square(3, 2, 1)});
  out.back().window.ceil_mode = true;
  out.back().window.count_include_pad = false;
  return out;
}

constexpr std::int64_t kChannels[] = {1, 16, 17, 40};

// Gradients of -0 and of NaN need not differ from others.
Tensor gradient_of(const Shape& y, Numbers kind) { return images_of(kind, y, 3); }

void expect_same(const Tensor& stored, const Tensor& images) {
  EXPECT_TRUE(same_bits(plain(stored, images.shape()), images));
  EXPECT_TRUE(has_clean_lanes(stored, images.shape(), kNchw16c));
}

TEST(Nchw16cPool, TheLargestHasTheBitsOfPlanes) {
  for (const Case& c : cases()) {
    for (const std::int64_t channels : kChannels) {
      const Shape shape{c.n, channels, c.h, c.w}, out = c.window.output_shape(shape, "test");
      const bool small = c.window.kernel_h * c.window.kernel_w <= 256;
      const DType type = small ? DType::u8 : DType::i32;
      for (const Numbers kind : kAllNumbers) {
        SCOPED_TRACE(cat(shape, " window ", c.window.kernel_h, " by ", c.window.kernel_w,
                         " stride ", c.window.stride_h, " numbers ", static_cast<int>(kind)));
        const Tensor x = images_of(kind, shape), dy = gradient_of(out, kind);
        on_every_isa([&] {
          const Tensor y = dirty(out), taps = dirty(out, type), dx = dirty(shape);
          max_pool_kernel.get(kCpu)(x, c.window, y, taps);
          max_pool_gradient_kernel.get(kCpu)(dy, taps, c.window, dx);
          const Tensor yb = dirty_nchw16c(out), without = dirty_nchw16c(out);
          const Tensor tb = dirty_nchw16c(out, type), dxb = dirty_nchw16c(shape);
          max_pool_kernel.get(kCpu)(nchw16c(x), c.window, yb, tb);
          max_pool_kernel.get(kCpu)(nchw16c(x), c.window, without, Tensor());
          max_pool_gradient_kernel.get(kCpu)(nchw16c(dy), tb, c.window, dxb);
          expect_same(yb, y);
          expect_same(without, y);
          EXPECT_TRUE(same_bits(plain(tb, out), taps));
          expect_same(dxb, dx);
        });
      }
    }
  }
}

TEST(Nchw16cPool, TheMeanHasTheBitsOfPlanes) {
  for (const Case& c : cases()) {
    for (const std::int64_t channels : kChannels) {
      const Shape shape{c.n, channels, c.h, c.w}, out = c.window.output_shape(shape, "test");
      for (const Numbers kind : kAllNumbers) {
        SCOPED_TRACE(cat(shape, " window ", c.window.kernel_h, " by ", c.window.kernel_w,
                         " stride ", c.window.stride_h, " numbers ", static_cast<int>(kind)));
        const Tensor x = images_of(kind, shape), dy = gradient_of(out, kind);
        on_every_isa([&] {
          const Tensor y = dirty(out), dx = dirty(shape);
          avg_pool_kernel.get(kCpu)(x, c.window, y);
          avg_pool_gradient_kernel.get(kCpu)(dy, c.window, dx);
          const Tensor yb = dirty_nchw16c(out), dxb = dirty_nchw16c(shape);
          avg_pool_kernel.get(kCpu)(nchw16c(x), c.window, yb);
          avg_pool_gradient_kernel.get(kCpu)(nchw16c(dy), c.window, dxb);
          expect_same(yb, y);
          expect_same(dxb, dx);
        });
      }
    }
  }
}

TEST(Nchw16cPool, TheAdaptiveMeanHasTheBitsOfPlanes) {
  for (const auto& [p, q] : {std::pair{1, 1}, {2, 3}, {5, 4}, {7, 9}}) {
    for (const std::int64_t channels : kChannels) {
      for (const Shape& shape : {Shape{2, channels, 5, 7}, Shape{1, channels, 1, 1}}) {
        const Shape out{shape[0], channels, p, q};
        for (const Numbers kind : kAllNumbers) {
          SCOPED_TRACE(cat(shape, " to ", out, " numbers ", static_cast<int>(kind)));
          const Tensor x = images_of(kind, shape), dy = gradient_of(out, kind);
          on_every_isa([&] {
            const Tensor y = dirty(out), dx = dirty(shape);
            adaptive_pool_kernel.get(kCpu)(x, y);
            adaptive_pool_gradient_kernel.get(kCpu)(dy, dx);
            const Tensor yb = dirty_nchw16c(out), dxb = dirty_nchw16c(shape);
            adaptive_pool_kernel.get(kCpu)(nchw16c(x), yb);
            adaptive_pool_gradient_kernel.get(kCpu)(nchw16c(dy), dxb);
            expect_same(yb, y);
            expect_same(dxb, dx);
          });
        }
      }
    }
  }
}

TEST(Nchw16cPool, AnEmptyBatchIsNoWork) {
  const Shape shape{0, 17, 4, 4}, out{0, 17, 2, 2};
  const Tensor y = dirty_nchw16c(out), taps = dirty_nchw16c(out, DType::u8);
  max_pool_kernel.get(kCpu)(dirty_nchw16c(shape), {}, y, taps);
  max_pool_gradient_kernel.get(kCpu)(y, taps, {}, dirty_nchw16c(shape));
  avg_pool_kernel.get(kCpu)(dirty_nchw16c(shape), {}, y);
  adaptive_pool_gradient_kernel.get(kCpu)(y, dirty_nchw16c(shape));
}

TEST(Nchw16cPool, OperationsSaySoAndUsersDoNotSeeIt) {
  EXPECT_TRUE(
      MaxPool({}).format(Graph({1, 1, 2, 2}, PlanMode::inference), ActivationLayout::nchw16c));
  const Variable x(dirty_nchw16c({1, 16, 4, 4}));
  EXPECT_NE(error_of([&] { max_pool2d(x, {}); }).find("[N,C,H,W]"), std::string::npos);
  EXPECT_NE(error_of([&] { avg_pool2d(x, {}); }).find("[N,C,H,W]"), std::string::npos);
  EXPECT_NE(error_of([&] { adaptive_avg_pool2d(x, 1, 1); }).find("[N,C,H,W]"), std::string::npos);
}

}  // namespace
}  // namespace convscope
