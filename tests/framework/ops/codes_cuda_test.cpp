// SPDX-License-Identifier: Apache-2.0
// codes_cuda_test.cpp: tests arrays of integer codes on `device cuda`: rounding, conversion to f32
// and pooling have the same bits as on the CPU.
#include <cstring>
#include <limits>

#include "framework/ops/codes/codes.h"
#include "layers/dispatch/activation_layout.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::same_bits;
using CodesOnCuda = testing::CudaTest;

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{2, 3, 9, 11}, {1, 16, 7, 7}, {2, 17, 5, 3},
                                      {3, 40, 1, 1}, {2, 48, 1, 1}, {1, 1, 28, 28},
                                      {2, 31, 2, 9}, {0, 20, 3, 3}, {1, 33, 17, 13}};
  return all;
}

// Returns ordinary numbers, alternating with numbers that are hard to round: odd multiples of half
// a step, NaN, infinities, numbers beyond the range of the codes, and -0.
Tensor numbers(const Shape& shape, double step) {
  const Tensor out = Tensor::empty(shape);
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {std::nanf(""), infinity, -infinity, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
  Generator random(5, 1);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    const int half = static_cast<int>(random.below(520)) - 260;
    const auto tie = static_cast<float>(step * (half + 0.5));
    const float beside = std::nextafter(tie, random.below(2) == 0 ? -infinity : infinity);
    out.data<float>()[i] = i % 7 == 3   ? odd[i / 7 % 8]
                           : i % 3 == 0 ? tie
                           : i % 3 == 1 ? beside
                                        : static_cast<float>(step * 90) * random.normal();
  }
  return out;
}

struct Range {
  std::int32_t low, high;
};
constexpr Range kRanges[] = {{0, 255}, {-128, 127}, {0, 15}, {-8, 7}, {0, 1}};
constexpr double kSteps[] = {0.25, 0.0137, 1.0 / 3};

Tensor dirty_codes(const Shape& shape) {
  const Tensor out = Tensor::empty(stored_shape(shape, ActivationLayout::nchw16c), DType::u8);
  if (out.numel() > 0) {
    std::memset(out.raw_data(), 0xa5, static_cast<std::size_t>(out.size_bytes()));
  }
  return out;
}

TEST_F(CodesOnCuda, RoundsToTheCodesOfTheCpu) {
  for (const Shape& shape : shapes()) {
    for (const double step : kSteps) {
      const Tensor x = numbers(shape, step);
      const Tensor s = Tensor::full({1}, step, DType::f64);
      for (const Range range : kRanges) {
        for (const bool in_nchw16c : {false, true}) {
          SCOPED_TRACE(cat(shape, " step ", step, " codes ", range.low, "..", range.high,
                           in_nchw16c ? " in blocks" : ""));
          const auto codes_on = [&](Device device) {
            const auto layout = in_nchw16c ? ActivationLayout::nchw16c : ActivationLayout::nchw;
            const Tensor from = stored_images(x, layout).to(device), by = s.to(device);
            const Tensor to = dirty_codes(shape).to(device);
            round_images_kernel.get(device)({.images = shape[0],
                                             .channels = shape[1],
                                             .pixels = shape[2] * shape[3],
                                             .in_nchw16c = in_nchw16c,
                                             .from = from.data<float>(),
                                             .step = by.data<double>(),
                                             .low = range.low,
                                             .high = range.high,
                                             .to = to.data<std::uint8_t>()});
            return to.to(Device{});
          };
          const Tensor want = codes_on({}), got = codes_on(cuda());
          ASSERT_TRUE(same_bits(got, want));
          ASSERT_TRUE(has_clean_lanes(got, shape, ActivationLayout::nchw16c));
        }
      }
    }
  }
}

TEST_F(CodesOnCuda, TurnsCodesIntoTheNumbersOfTheCpu) {
  for (const Shape& shape : shapes()) {
    const Tensor plain = Tensor::empty(shape, DType::u8);
    Generator random(3, 1);
    for (std::int64_t i = 0; i < plain.numel(); ++i) {
      plain.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
    }
    const Tensor codes = stored_images(plain, ActivationLayout::nchw16c);
    const Tensor s = Tensor::full({1}, 0.0137, DType::f64);
    for (const bool is_signed : {false, true}) {
      for (const bool in_nchw16c : {false, true}) {
        SCOPED_TRACE(cat(shape, is_signed ? " signed" : "", in_nchw16c ? " in blocks" : ""));
        const auto numbers_on = [&](Device device) {
          const auto layout = in_nchw16c ? ActivationLayout::nchw16c : ActivationLayout::nchw;
          const Tensor from = codes.to(device), by = s.to(device);
          const Tensor to = Tensor::full(stored_shape(shape, layout), 7.0).to(device);
          real_images_kernel.get(device)({.images = shape[0],
                                          .channels = shape[1],
                                          .pixels = shape[2] * shape[3],
                                          .in_nchw16c = in_nchw16c,
                                          .is_signed = is_signed,
                                          .from = from.data<std::uint8_t>(),
                                          .step = by.data<double>(),
                                          .to = to.data<float>()});
          return to.to(Device{});
        };
        const Tensor want = numbers_on({}), got = numbers_on(cuda());
        ASSERT_TRUE(same_bits(got, want));
        if (in_nchw16c || shape.numel() == 0) continue;
        const int first = plain.data<std::uint8_t>()[0];
        EXPECT_EQ(want.at(0), static_cast<float>(
                                  0.0137 * (is_signed ? static_cast<std::int8_t>(first) : first)));
      }
    }
  }
}

TEST_F(CodesOnCuda, PoolsAsTheCpu) {
  const CodesPool windows[] = {
      {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2},
      {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
      {.kernel_h = 1, .kernel_w = 3, .stride_h = 1, .stride_w = 2, .pad_h = 0, .pad_w = 1}};
  for (const Shape& shape : shapes()) {
    for (CodesPool pool : windows) {
      pool.h = shape[2];
      pool.w = shape[3];
      pool.p = (pool.h + 2 * pool.pad_h - pool.kernel_h) / pool.stride_h + 1;
      pool.q = (pool.w + 2 * pool.pad_w - pool.kernel_w) / pool.stride_w + 1;
      if (pool.h < pool.kernel_h || pool.w < pool.kernel_w) continue;
      pool.planes = shape[0] * ceil_div(shape[1], kChannelBlock);
      const Tensor x = Tensor::empty({pool.planes, pool.h, pool.w, 16}, DType::u8);
      Generator random(9, 1);
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        x.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
      }
      for (const bool is_signed : {false, true}) {
        SCOPED_TRACE(cat(shape, " window ", pool.kernel_h, is_signed ? " signed" : ""));
        const auto pooled_on = [&](Device device) {
          const Tensor from = x.to(device);
          const Tensor to = Tensor::zeros({pool.planes, pool.p, pool.q, 16}, DType::u8).to(device);
          CodesPool now = pool;
          now.is_signed = is_signed;
          now.from = from.data<std::uint8_t>();
          now.to = to.data<std::uint8_t>();
          pool_codes_kernel.get(device)(now);
          return to.to(Device{});
        };
        ASSERT_TRUE(same_bits(pooled_on(cuda()), pooled_on({})));
      }
    }
  }
}

}  // namespace
}  // namespace convscope
