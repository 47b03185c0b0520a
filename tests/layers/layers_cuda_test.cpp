// SPDX-License-Identifier: Apache-2.0
// layers_cuda_test.cpp: compares pooling, dropout, batch norm and the epilogue of a convolution on
// `device cuda` with the CPU.
#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/batch_norm2d/batch_norm2d_fused.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/epilogue.h"
#include "layers/dropout.h"
#include "layers/pool2d/pool2d.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::expect_gradients_like_cpu;
using testing::expect_like_cpu;
using testing::few_ulp;
using testing::normal;
using PoolOnCuda = testing::CudaTest;
using DropoutOnCuda = testing::CudaTest;
using BatchNormOnCuda = testing::CudaTest;
using ConvolutionEndsOnCuda = testing::CudaTest;

constexpr DType kTypes[] = {DType::f32, DType::f64};

const Pool2dWindow kWindows[] = {
    {},
    {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
    {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .ceil_mode = true},
    {.kernel_h = 3, .kernel_w = 2, .stride_h = 1, .stride_w = 3, .pad_h = 1, .pad_w = 0},
    {.kernel_h = 5, .kernel_w = 3, .stride_h = 7, .stride_w = 4, .pad_h = 2, .pad_w = 1},
    {.kernel_h = 3,
     .kernel_w = 3,
     .stride_h = 2,
     .stride_w = 2,
     .pad_h = 1,
     .pad_w = 1,
     .ceil_mode = true,
     .count_include_pad = false}};

TEST_F(PoolOnCuda, TakesMaximaAndMeansOfEveryWindow) {
  for (const DType dtype : kTypes) {
    for (const Pool2dWindow& window : kWindows) {
      for (const Shape& shape : {Shape{2, 3, 8, 12}, Shape{1, 2, 9, 13}, Shape{2, 1, 5, 7}}) {
        SCOPED_TRACE(cat(shape, " ", window.kernel_h, "x", window.kernel_w, " stride ",
                         window.stride_h, "x", window.stride_w, " ", name_of(dtype)));
        const Tensor x = normal(shape, dtype, 3);
        // Max-pool adds the gradients of a pixel in the same order as the CPU. Average pooling may
        // add in another order.
        expect_gradients_like_cpu([&](const auto& v) { return max_pool2d(v[0], window); }, {x}, {});
        expect_gradients_like_cpu([&](const auto& v) { return avg_pool2d(v[0], window); }, {x},
                                  few_ulp(dtype, 8));
      }
    }
  }
}

TEST_F(PoolOnCuda, GivesTheGradientToTheFirstOfEquals) {
  expect_gradients_like_cpu([](const auto& v) { return max_pool2d(v[0], kWindows[1]); },
                            {Tensor::full({2, 2, 6, 6}, 1.5)}, {});
}

TEST_F(PoolOnCuda, RemembersPlacesInWindowsAbove256Elements) {
  const Pool2dWindow window{.kernel_h = 17, .kernel_w = 16, .stride_h = 3, .stride_w = 2};
  expect_gradients_like_cpu([&](const auto& v) { return max_pool2d(v[0], window); },
                            {normal({1, 2, 20, 19}, DType::f32)}, {});
}

TEST_F(PoolOnCuda, AveragesToAnyNumberOfParts) {
  for (const DType dtype : kTypes) {
    for (const auto& [p, q] : {std::pair{1, 1}, std::pair{3, 2}, std::pair{4, 9}}) {
      expect_gradients_like_cpu([&](const auto& v) { return adaptive_avg_pool2d(v[0], p, q); },
                                {normal({2, 3, 7, 5}, dtype)}, few_ulp(dtype, 8));
      expect_gradients_like_cpu([&](const auto& v) { return adaptive_avg_pool2d(v[0], p, q); },
                                {normal({3, 3, 4, 6}, dtype)}, few_ulp(dtype, 8));
    }
  }
}

TEST_F(PoolOnCuda, TakesAnEmptyBatch) {
  const Tensor none = Tensor::empty({0, 2, 4, 4});
  expect_gradients_like_cpu([](const auto& v) { return max_pool2d(v[0], {}); }, {none}, {});
  expect_gradients_like_cpu([](const auto& v) { return avg_pool2d(v[0], {}); }, {none}, {});
  expect_gradients_like_cpu([](const auto& v) { return adaptive_avg_pool2d(v[0], 1, 1); }, {none},
                            {});
}

TEST_F(DropoutOnCuda, DropsTheElementsThatTheCpuDrops) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {0, 1, 4, 1023}) {
      const DropoutMask mask{.seed = 11, .stream = 5, .step = 1234567, .p = 0.3};
      expect_gradients_like_cpu([&](const auto& v) { return dropout(v[0], mask); },
                                {normal({n}, dtype)}, {});
    }
  }
}

// GPU and CPU sum some hundred elements in different orders, so results differ by an ulp of the sum
// over magnitudes.
TEST_F(BatchNormOnCuda, NormalisesInTrainingAndAfterIt) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape :
         {Shape{4, 3, 5, 7}, Shape{2, 5, 8, 8}, Shape{40, 2, 16, 16}, Shape{3, 2, 1, 1}}) {
      SCOPED_TRACE(cat(shape, " ", name_of(dtype)));
      const std::vector<Tensor> inputs{
          normal(shape, dtype, 1), normal({shape[1]}, dtype, 2), normal({shape[1]}, dtype, 3),
          normal({shape[1]}, DType::f32, 4), testing::uniform({shape[1]}, 0.5f, 2, DType::f32, 5)};
      expect_gradients_like_cpu([](const auto& v) { return batch_norm2d(v[0], v[1], v[2], 1e-5); },
                                {inputs[0], inputs[1], inputs[2]}, few_ulp(dtype, 512));
      expect_gradients_like_cpu(
          [&](const auto& v) {
            const Device device = v[0].device();
            return batch_norm2d(v[0], v[1], v[2], inputs[3].to(device), inputs[4].to(device), 1e-5);
          },
          {inputs[0], inputs[1], inputs[2]}, few_ulp(dtype, 512));
    }
  }
}

TEST_F(BatchNormOnCuda, KeepsItsDigitsWhenTheMeanIsFarFromZero) {
  const Tensor x =
      elementwise(BinaryOp::add, normal({8, 2, 10, 10}, DType::f32), Tensor::full({}, 10000.0));
  const Tensor mean = Tensor::empty({2}, DType::f64, testing::cuda());
  const Tensor variance = Tensor::empty({2}, DType::f64, testing::cuda());
  batch_norm_statistics_kernel.get(testing::cuda())(x.to(testing::cuda()), mean, variance);
  const Tensor exact_mean = Tensor::empty({2}, DType::f64);
  const Tensor exact = Tensor::empty({2}, DType::f64);
  batch_norm_statistics_kernel.get(Device{})(x.to(DType::f64), exact_mean, exact);
  EXPECT_TRUE(testing::near(variance.to(Device{}), exact, 0, 1e-9));
  EXPECT_TRUE(testing::near(mean.to(Device{}), exact_mean, 0, 1e-12));
}

TEST_F(BatchNormOnCuda, MovesItsRunningStatisticsAsTheCpuDoes) {
  Tensor states[2][2];
  for (const Device device : {Device{}, testing::cuda()}) {
    LayerContext context;
    context.device = device;
    BatchNorm2d layer(3, {}, context);
    for (int step = 0; step < 3; ++step) {
      layer.forward(Variable(normal({4, 3, 6, 5}, DType::f32, 10 + step).to(device)));
    }
    const auto buffers = layer.buffers();
    ASSERT_EQ(buffers.size(), 2u);
    for (int i = 0; i < 2; ++i) {
      states[device.type == DeviceType::cpu ? 0 : 1][i] =
          buffers[static_cast<std::size_t>(i)].tensor.to(Device{});
    }
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(testing::near(states[1][i], states[0][i], 1e-6, 1e-6));
}

// Computes all results of the fused kernels from x, weight, bias, residual and dy.
std::vector<Tensor> fused(const std::vector<Tensor>& t, bool residual, bool relu, bool accumulate,
                          bool wants_dx) {
  const Device device = t[0].device();
  const DType dtype = t[0].dtype();
  const Shape channels{t[0].dim(1)};
  const auto statistic = [&] { return Tensor::empty(channels, DType::f64, device); };
  const BatchNormTrainArgs forward{.x = t[0],
                                   .weight = t[1],
                                   .bias = t[2],
                                   .eps = 1e-5,
                                   .residual = residual ? t[3] : Tensor(),
                                   .relu = relu,
                                   .y = Tensor::empty(t[0].shape(), dtype, device),
                                   .mean = statistic(),
                                   .variance = statistic(),
                                   .inverse_deviation = statistic()};
  batch_norm_train_kernel.get(device)(forward);
  const Tensor beside = t[3].clone();
  const BatchNormTrainGradientArgs backward{
      .dy = t[4].clone(),
      .x = t[0],
      .weight = t[1],
      .y = relu ? forward.y : Tensor(),
      .mean = forward.mean,
      .inverse_deviation = forward.inverse_deviation,
      .residual_gradient = residual ? beside : Tensor(),
      .residual_accumulate = accumulate,
      .dx = wants_dx ? Tensor::empty(t[0].shape(), dtype, device) : Tensor(),
      .sum_dy = statistic(),
      .sum_dy_x = statistic()};
  batch_norm_train_gradient_kernel.get(device)(backward);
  std::vector<Tensor> out{forward.y, forward.mean,    forward.variance, forward.inverse_deviation,
                          beside,    backward.sum_dy, backward.sum_dy_x};
  if (wants_dx) out.push_back(backward.dx);
  return out;
}

TEST_F(BatchNormOnCuda, TakesTheResidualAndTheReluWithIt) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{3, 4, 6, 6}, Shape{5, 3, 7, 3}}) {
      const std::vector<Tensor> inputs{normal(shape, dtype, 1), normal({shape[1]}, dtype, 2),
                                       normal({shape[1]}, dtype, 3), normal(shape, dtype, 4),
                                       normal(shape, dtype, 5)};
      for (int flags = 0; flags < 16; ++flags) {
        SCOPED_TRACE(cat(shape, " ", name_of(dtype), " flags ", flags));
        expect_like_cpu(
            [&](const auto& t) {
              return fused(t, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0,
                           (flags & 8) != 0);
            },
            inputs, few_ulp(dtype, 512));
      }
    }
  }
}

TEST_F(ConvolutionEndsOnCuda, AddsTheBiasGradientAndFinishesTheSums) {
  for (const DType dtype : kTypes) {
    for (const Shape& shape : {Shape{3, 5, 4, 6}, Shape{2, 3, 5, 5}, Shape{0, 4, 2, 2}}) {
      for (const bool accumulate : {false, true}) {
        expect_like_cpu(
            [&](const auto& t) {
              const Tensor db = t[1].clone();
              conv2d_bias_gradient_kernel.get(db.device())(t[0], db, accumulate);
              return std::vector<Tensor>{db};
            },
            {normal(shape, dtype, 1), normal({shape[1]}, dtype, 2)}, few_ulp(dtype, 64));
      }
      for (int flags = 1; flags < 4; ++flags) {
        expect_like_cpu(
            [&](const auto& t) {
              const Tensor y = t[0].clone();
              const Conv2dEpilogue epilogue{
                  .residual = (flags & 1) != 0 ? t[1].raw_data() : nullptr,
                  .relu = (flags & 2) != 0};
              conv2d_epilogue_kernel.get(y.device())(epilogue, y);
              return std::vector<Tensor>{y};
            },
            {normal(shape, dtype, 1), normal(shape, dtype, 3)}, {});
      }
    }
  }
}

}  // namespace
}  // namespace convscope
