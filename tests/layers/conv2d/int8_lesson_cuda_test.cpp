// SPDX-License-Identifier: Apache-2.0
// int8_lesson_cuda_test.cpp: the lesson on integers on `device cuda` gives the codes of the lesson
// on the CPU, with all that stands beside the products.
#include <cstring>
#include <optional>

#include "framework/random.h"
#include "layers/conv2d/algorithm.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using Int8LessonOnCuda = testing::CudaTest;

Tensor random_values(const Shape& shape, DType type, std::uint64_t seed) {
  if (type == DType::f32) return testing::normal(shape, DType::f32, seed);
  const Tensor out = Tensor::empty(shape, type);
  Generator random(seed, 4);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    static_cast<std::uint8_t*>(out.raw_data())[i] = static_cast<std::uint8_t>(random.below(256));
  }
  return out;
}

struct Beside {
  bool bias, relu;
  float most;
  std::optional<DType> residual;
  std::int32_t low, high;  // of y
};

Tensor y_on(Device device, const Conv2dProblem& problem, const Beside& beside) {
  const auto blocked = ActivationLayout::blocked;
  const Shape y_shape = stored_shape(problem.y_shape(), blocked);
  const auto there = [&](const Tensor& tensor) { return tensor.to(device); };
  const Tensor x =
      there(stored_images(random_values(problem.x_shape(), problem.types->x, 1), blocked));
  const Tensor w = there(random_values(problem.w_shape(), DType::i8, 2));
  const Tensor residual =
      beside.residual
          ? there(stored_images(random_values(problem.y_shape(), *beside.residual, 3), blocked))
          : Tensor();
  const Tensor b = there(testing::normal({problem.k}, DType::f64, 4));
  const Tensor w_steps = there(testing::uniform({problem.k}, 0.001f, 0.01f, DType::f64, 5));
  const double terms = problem.nominal_flops() / 2 / static_cast<double>(problem.y_shape().numel());
  const Tensor x_step = there(Tensor::full({1}, 0.013, DType::f64));
  const Tensor y_step = there(Tensor::full({1}, 0.01 * std::sqrt(terms), DType::f64));
  const Tensor residual_step = there(Tensor::full({1}, 0.031, DType::f64));
  const Tensor y = Tensor::empty(y_shape, problem.types->y);
  std::memset(y.raw_data(), 0x5a, static_cast<std::size_t>(y.size_bytes()));
  const Tensor to = there(y);
  OperandViews views;
  views.x = {.scales = x_step.data<double>()};
  views.w = {.scales = w_steps.data<double>(), .per_channel = true};
  if (problem.types->y != DType::f32) {
    views.y = {.scales = y_step.data<double>(), .low = beside.low, .high = beside.high};
  }
  views.residual = {.scales = residual_step.data<double>()};
  conv2d_algorithms(device.type)
      .get("int8_lesson")
      .forward({problem,
                x.raw_data(),
                w.raw_data(),
                beside.bias ? b.raw_data() : nullptr,
                to.raw_data(),
                nullptr,
                {.residual = residual.defined() ? residual.raw_data() : nullptr,
                 .relu = beside.relu,
                 .most = beside.most,
                 .residual_type = beside.residual.value_or(DType::f32)},
                nullptr,
                views});
  return to.to(Device{});
}

TEST_F(Int8LessonOnCuda, GivesTheCodesOfTheCpu) {
  constexpr const char* kTypes[] = {"u8:i8:i32:u8", "i8:i8:i32:i8", "u8:i8:i32:f32", "i8:i8:i32:u8",
                                    "u8:i8:i32:i8"};
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::uint64_t i = 0; i < 60; ++i) {
    Conv2dProblem problem = testing::shrunk(testing::random_problem(11, i), 5e4);
    if (problem.is_empty()) continue;
    OperandTypes types;
    ASSERT_TRUE(OperandTypes::parse(kTypes[i % 5], types));
    problem.types = types;
    problem.dtype = types.x;
    problem.math = MathMode::f32;
    problem.layout = ActivationLayout::blocked;
    Beside beside{.bias = i % 3 != 0,
                  .relu = i % 2 == 0,
                  .most = i % 4 == 0 ? 6.0f : infinity,
                  .residual = {},
                  .low = types.y == DType::i8 ? -128 : 0,
                  .high = types.y == DType::i8 ? 127 : 255};
    if (i % 7 == 3) {
      beside.low = types.y == DType::i8 ? -8 : 0;
      beside.high = 7;
    }
    if (i % 4 == 1) beside.residual = DType::u8;
    if (i % 4 == 2) beside.residual = DType::i8;
    if (i % 4 == 3) beside.residual = DType::f32;
    SCOPED_TRACE(problem.text());
    const Tensor got = y_on(cuda(), problem, beside), want = y_on({}, problem, beside);
    // A GPU may fuse a product and a sum in double: f32 numbers may differ by one rounding.
    const double bound = types.y == DType::f32 ? 0x1p-23 : 0;
    ASSERT_TRUE(testing::near(got, want, 0, bound));
    ASSERT_TRUE(has_clean_lanes(got, problem.y_shape(), ActivationLayout::blocked));
  }
}

}  // namespace
}  // namespace convscope
