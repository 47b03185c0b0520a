// SPDX-License-Identifier: Apache-2.0
// device_time_emulation_test.cpp: tests the terms of GPU cost estimates: blocks distributed over
// SMs, matrix products, preparation of weights (program test_emulation).
#include <gtest/gtest.h>

#pragma GCC diagnostic push  // warnings that nvcc does not print
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "layers/conv2d/shared/cuda/device_time.cuh"
#pragma GCC diagnostic pop

namespace convscope::device_time {
namespace {

TEST(DeviceTime, OneBlockTakesAsLongAsOneForEachMultiprocessor) {
  const TileRate rate{.busy = 0.8, .alone = 0.4};
  const auto us = [&](double blocks) { return blocks_us(blocks, 1e6, 1e12, rate); };
  const double all = processors();
  const double alone = 1e6 * 1e6 * all / 1e12 / 0.4;
  EXPECT_DOUBLE_EQ(us(1), alone);
  EXPECT_DOUBLE_EQ(us(all), alone);
  EXPECT_DOUBLE_EQ(us(2 * all), alone);  // the second hides the loads of the first
  EXPECT_DOUBLE_EQ(us(2 * all + 1), 1.5 * alone);
  EXPECT_DOUBLE_EQ(us(20 * all), 10 * alone);
}

TEST(DeviceTime, ALongDepthOfASingleProductIsCut) {
  const Products one{.m = 64, .n = 64, .k = 64 * 1024};
  Products many = one;
  many.batch = 2;  // no library splits the reduction of a batch
  EXPECT_LT(2 * f32_products_us(one), f32_products_us(many));
  // Dividing a short sum among blocks does not pay off, because adding the parts takes another
  // pass.
  const Products small{.m = 16, .n = 16, .k = 64};
  Products two = small;
  two.batch = 2;
  EXPECT_DOUBLE_EQ(f32_products_us(small), f32_products_us(two));
}

TEST(DeviceTime, ManySmallProductsOfF32HaveSmallTiles) {
  const auto us = [](std::int64_t side) {
    return f32_products_us({.m = side, .n = side, .k = 256, .batch = 100000}) -
           kF32Products.around_us;
  };
  EXPECT_LT(1.5 * us(16), us(32));  // a tile of 32 would take as long for both
  EXPECT_DOUBLE_EQ(us(5), us(16));
}

TEST(DeviceTime, WhatTheSecondCacheHoldsIsPassedFaster) {
  EXPECT_DOUBLE_EQ(passed(0), 0);
  EXPECT_DOUBLE_EQ(passed(2e6), 2 * passed(1e6));
  EXPECT_LT(passed(1e6), 0.9e6);
  EXPECT_DOUBLE_EQ(passed(kCacheBytes + 3e6) - passed(kCacheBytes), 3e6);
}

TEST(DeviceTime, TensorCoresWantRowsOn16Bytes) {
  Conv2dProblem problem = Conv2dProblem::parse("n=1,c=1,h=1,w=1,k=1,precision=tf32");
  ASSERT_TRUE(on_tensor_cores(problem));
  const Products even{.m = 512, .n = 512, .k = 512, .batch = 8, .apart = 48};
  Products odd = even;
  odd.apart = 49;
  EXPECT_LT(1.5 * products_us(even, problem), products_us(odd, problem));
  problem.math = MathMode::f32;
  EXPECT_DOUBLE_EQ(products_us(even, problem), products_us(odd, problem));
}

TEST(DeviceTime, RowsOfFp16On8BytesAreSlow) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=1,c=1,h=1,w=1,k=1,dtype=bf16");
  const Products even{.m = 512, .n = 512, .k = 512, .batch = 8, .apart = 56};
  Products eight_bytes = even, odd = even;
  eight_bytes.apart = 4 * 49;
  odd.apart = 49;
  EXPECT_LT(1.5 * products_us(even, problem), products_us(eight_bytes, problem));
  EXPECT_LE(products_us(eight_bytes, problem), products_us(odd, problem));
}

TEST(DeviceTime, SharesSayTheTimeAgain) {
  const double peak = kUnmeasuredGpu.f32_flops;
  const Conv2dCost cost{.flops = 1e9, .peak_share = share_of(1e9, 250, peak), .launches = 0};
  EXPECT_NEAR(1e3 * estimated_ms(cost, DeviceType::cuda, DType::f32), 250,
              250 * std::abs(peak / machine_peaks(DeviceType::cuda).flops_per_second - 1) + 1e-6);
}

TEST(DeviceTime, WeightsThatArePreparedOnceCostWhatTheCallTakes) {
  const double peak = kUnmeasuredGpu.f32_flops;
  const Conv2dCost call{.flops = 1e9, .bytes = 1e6, .peak_share = 0.5, .launches = 3};
  const Conv2dCost both = with_preparation(call, peak, 1e8, 2);
  set_machine_peaks({.flops_per_second = peak,
                     .bytes_per_second = kUnmeasuredGpu.copy_bytes,
                     .launch_seconds = kUnmeasuredGpu.launch_seconds},
                    DeviceType::cuda);
  const auto us = [](const Conv2dCost& cost) {
    return 1e3 * estimated_ms(cost, DeviceType::cuda, DType::f32);
  };
  EXPECT_NEAR(us(both) - us(call), 1e8 / kUnmeasuredGpu.copy_bytes * 1e6 + 4, 1e-6);
  EXPECT_NEAR(1e3 * estimated_ms({"conv2d", "direct", Direction::forward}, both, DeviceType::cuda,
                                 DType::f32, WeightUse::often, 1),
              us(call), 1e-6);
  set_machine_peaks({}, DeviceType::cuda);
}

}  // namespace
}  // namespace convscope::device_time
