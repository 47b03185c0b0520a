// SPDX-License-Identifier: Apache-2.0
// transforms_cuda_test.cpp: tests winograd and fft on CUDA with cases that the tests of all
// algorithms do not contain.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "layers/conv2d/select.h"
#include "layers/dispatch/execute.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using TransformsOnCuda = testing::CudaTest;

// Returns ||ours - reference|| / ||reference|| of one direction.
double relative_error(const char* algorithm, const Conv2dProblem& problem, Direction direction) {
  const Tensor x = testing::normal(problem.x_shape(), DType::f32, 1);
  const Tensor w = testing::normal(problem.w_shape(), DType::f32, 2);
  const Tensor dy = testing::normal(problem.y_shape(), DType::f32, 3);
  const auto run = [&](const char* name, Device device, DType dtype) {
    Conv2dProblem z = problem;
    z.dtype = dtype;
    const auto there = [&](const Tensor& tensor) { return tensor.to(dtype).to(device); };
    const Conv2dChoice choice = select_conv2d(name, z, direction, device);
    const Tensor out = Tensor::zeros(direction == Direction::forward         ? z.y_shape()
                                     : direction == Direction::backward_data ? z.x_shape()
                                                                             : z.w_shape(),
                                     dtype, device);
    if (direction == Direction::forward) {
      execute(choice, z, Direction::forward, {.in = {there(x), there(w)}, .out = {out}});
    } else if (direction == Direction::backward_data) {
      execute(choice, z, Direction::backward_data, {.in = {there(dy), there(w)}, .out = {out}});
    } else {
      execute(choice, z, Direction::backward_weight, {.in = {there(x), there(dy)}, .out = {out}});
    }
    return out.to(Device{});
  };
  const Tensor ours = run(algorithm, cuda(), DType::f32);
  const Tensor reference = run("reference", Device{}, DType::f64);
  double difference = 0;
  double size = 0;
  for (std::int64_t i = 0; i < ours.numel(); ++i) {
    difference += (ours.at(i) - reference.at(i)) * (ours.at(i) - reference.at(i));
    size += reference.at(i) * reference.at(i);
  }
  return std::sqrt(difference / size);
}

// Favours `schedules` of the algorithm where they are given.
void expect_f32_grade(const char* algorithm, const char* text, double most = 2e-6,
                      const std::vector<std::string>& schedules = {}) {
  for (const Direction direction : kDirections) {
    const testing::FavouredKernel favoured({"conv2d", algorithm, direction}, schedules);
    const double error = relative_error(algorithm, Conv2dProblem::parse(text), direction);
    EXPECT_LT(error, most) << algorithm << ", " << name_of(direction) << " of " << text;
    EXPECT_GT(error, 0) << "nothing was computed in f32";
  }
}

// The kernel sums 300 channels in two parts. A single sum of 512 terms would exceed the error
// bound.
TEST_F(TransformsOnCuda, LongSumsOfWinogradStayF32Grade) {
  expect_f32_grade("winograd_f4x3", "n=1,c=300,h=8,w=8,k=8,r=3,s=3,pad=1");
  expect_f32_grade("winograd_f4x3", "n=1,c=8,h=8,w=8,k=300,r=3,s=3,pad=1");
  expect_f32_grade("winograd_f2x3", "n=1,c=300,h=8,w=8,k=8,r=3,s=3,pad=1");
}

// One problem has many tiles, with partial tiles at all borders of the image, and few weights. The
// other has few tiles and many weights.
TEST_F(TransformsOnCuda, TilesAtAllEndsOfWinogradStayF32Grade) {
  expect_f32_grade("winograd_f4x3", "n=3,c=4,h=41,w=47,k=6,r=3,s=3,pad=1");
  expect_f32_grade("winograd_f4x3", "n=1,c=256,h=3,w=5,k=256,r=3,s=3,pad=1");
}

// Runs every compiled tile of the matrix products, for more and fewer than 64 rows and columns,
// sums in one accumulator and in two, and dw in several partial sums. Tensor cores truncate sums,
// while the emulation rounds. Without the products of the low fp16 parts, the error would be 1e-3.
TEST_F(TransformsOnCuda, Fp16x3WinogradStaysF32Grade) {
  for (const char* text :
       {"n=1,c=300,h=8,w=8,k=8,r=3,s=3,pad=1", "n=1,c=70,h=12,w=8,k=140,r=3,s=3,pad=1",
        "n=2,c=5,h=41,w=47,k=6,r=3,s=3,pad=1", "n=3,c=9,h=60,w=60,k=130,r=3,s=3,pad=1"}) {
    for (const std::string tile : {"128x128", "64x128", "128x64", "64x64"}) {
      expect_f32_grade("winograd_f4x3_fp16x3", text, 3e-6, {tile, tile + " unaligned"});
    }
  }
}

// Cases, each with transforms of every length that is long enough: many small tiles, one tile whose
// padding wraps around, tiles of 64 with an 11x11 kernel, dilation.
TEST_F(TransformsOnCuda, FourierTilesOfEveryLength) {
  for (const char* text :
       {"n=2,c=3,h=13,w=13,k=5,r=3,s=3,pad=1", "n=1,c=2,h=40,w=29,k=3,r=5,s=4,pad=3x2",
        "n=1,c=3,h=56,w=56,k=2,r=11,s=11,pad=5", "n=1,c=2,h=70,w=20,k=3,r=3,s=3,dilation=5x2"}) {
    for (const char* length : {"16", "32", "64"}) expect_f32_grade("fft", text, 2e-6, {length});
  }
}

}  // namespace
}  // namespace convscope
