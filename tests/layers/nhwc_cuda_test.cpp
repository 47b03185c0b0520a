// SPDX-License-Identifier: Apache-2.0
// nhwc_cuda_test.cpp: tests algorithms on fp16/bf16 NHWC images where the test matrix
// (experiments/check/matrix) has no cases: bias, residual and ReLU in one call, f32 weights that
// fp16/bf16 cannot represent, and refusals of such problems.
#include "experiments/check/matrix/convolution_case.h"
#include "framework/random.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cuda.h"
#include "tests/support/nhwc.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::normal;
using NhwcOnCuda = testing::CudaTest;

constexpr ActivationLayout kLast = ActivationLayout::nhwc;

// The problems cover one tile and several tiles, sums that several thread blocks share (split K),
// groups, strides, and channels that leave lanes unused.
constexpr const char* kTexts[] = {"n=2,c=3,h=9,w=7,k=12,r=3,s=3,pad=1",
                                  "n=1,c=64,h=4,w=4,k=40,r=3,s=3,pad=1",
                                  "n=3,c=24,h=8,w=8,k=70,r=1,s=1,stride=2",
                                  "n=2,c=32,h=7,w=6,k=48,r=3,s=3,pad=1,groups=2",
                                  "n=2,c=13,h=9,w=11,k=13,r=3,s=3,pad=1,groups=13",
                                  "n=2,c=16,h=9,w=8,k=16,r=5,s=3,stride=2,pad=1,groups=16",
                                  "n=2,c=70,h=9,w=9,k=70,r=3,s=3,stride=2,pad=1,groups=70"};

Tensor on_device(const Tensor& plain, DType half) {
  return stored_images(plain.to(half), kLast).to(cuda());
}

// Returns y, computed in double from fp16/bf16 x, w and residual, and from f32 b. With
// `magnitudes`, sums the magnitudes of the terms instead.
Tensor expected(const Conv2dProblem& half_problem, Tensor x, Tensor w, Tensor b, bool magnitudes) {
  Conv2dProblem problem = half_problem;
  problem.dtype = DType::f64;
  problem.types.reset();
  problem.layout = ActivationLayout::nchw;
  if (magnitudes) {
    for (Tensor* const t : {&x, &w, &b}) {
      *t = t->clone();
      for (std::int64_t i = 0; i < t->numel(); ++i) {
        t->data<double>()[i] = std::abs(t->data<double>()[i]);
      }
    }
  }
  const Tensor y = Tensor::empty(problem.y_shape(), DType::f64);
  conv2d_algorithms(DeviceType::cpu)
      .get("reference")
      .forward({problem, x.raw_data(), w.raw_data(), b.raw_data(), y.raw_data(), nullptr});
  return y;
}

TEST_F(NhwcOnCuda, BiasResidualAndReluComeBeforeTheOnlyRounding) {
  for (const DType half : {DType::bf16, DType::f16}) {
    const double unit = half == DType::bf16 ? 0x1p-8 : 0x1p-11;
    for (const char* text : kTexts) {
      const Conv2dProblem problem = testing::half_nhwc_problem(text, half);
      const Tensor x = normal(problem.x_shape(), DType::f32, 1);
      const Tensor w = normal(problem.w_shape(), DType::f32, 2);  // rounded by prepare_weights
      const Tensor b = normal({problem.k}, DType::f32, 3);
      const Tensor beside = normal(problem.y_shape(), DType::f32, 4);
      const auto wide = [&](const Tensor& t) { return t.to(half).to(DType::f64); };
      const Tensor sums = expected(problem, wide(x), wide(w), b.to(DType::f64), false);
      const Tensor sizes = expected(problem, wide(x), wide(w), b.to(DType::f64), true);
      const Tensor residual = on_device(beside, half);
      const Tensor on_w = w.to(cuda()), on_b = b.to(cuda()), on_x = on_device(x, half);
      int algorithms = 0;
      for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cuda).entries()) {
        if (!support_of(algorithm, problem, Direction::forward).yes || !algorithm.fuses_epilogue)
          continue;
        ++algorithms;
        const Scratch<Conv2dProblem> scratch(algorithm, problem, Direction::forward, cuda());
        const void* const prepared = scratch.prepare(on_w.raw_data());
        for (const bool with_residual : {false, true}) {
          for (const bool relu : {false, true}) {
            const Tensor y = Tensor::full(stored_shape(problem.y_shape(), kLast),
                                          std::numeric_limits<double>::quiet_NaN(), half, cuda());
            algorithm.forward({problem,
                               on_x.raw_data(),
                               on_w.raw_data(),
                               on_b.raw_data(),
                               y.raw_data(),
                               scratch.workspace(),
                               {.residual = with_residual ? residual.raw_data() : nullptr,
                                .relu = relu,
                                .residual_type = half},
                               prepared});
            const Tensor stored = y.to(Device{});
            EXPECT_TRUE(has_clean_lanes(stored, problem.y_shape(), kLast)) << name;
            const Tensor got = plain_images(stored, problem.y_shape(), kLast);
            for (std::int64_t i = 0; i < got.numel(); ++i) {
              double want = sums.at(i) + (with_residual ? beside.to(half).at(i) : 0);
              if (relu) want = std::max(want, 0.0);
              const double size = sizes.at(i) + std::abs(beside.at(i));
              ASSERT_LE(std::abs(got.at(i) - want),
                        unit * std::abs(want) + algorithm.error_growth * 0x1p-23 * size + 0x1p-24)
                  << name << " on " << problem.text() << " element " << i << ": got " << got.at(i)
                  << ", expected " << want << (relu ? " relu" : "");
            }
          }
        }
      }
      EXPECT_GE(algorithms, 1) << problem.text();
    }
  }
}

TEST_F(NhwcOnCuda, AlgorithmsSayWhatTheyExpect) {
  const auto& algorithms = conv2d_algorithms(DeviceType::cuda);
  const auto reason = [&](const char* algorithm, const Conv2dProblem& problem) {
    return support_of(algorithms.get(algorithm), problem, Direction::forward).reason;
  };
  Conv2dProblem problem = testing::half_nhwc_problem(kTexts[0], DType::bf16);
  EXPECT_EQ(reason("implicit_gemm", problem), "");
  EXPECT_NE(reason("direct", problem), "");
  EXPECT_NE(reason("depthwise_nhwc", problem).find("got 3 and 12 channels in 1 groups"),
            std::string::npos);
  problem.types.reset();
  EXPECT_NE(reason("implicit_gemm", problem).find("weights of f32"), std::string::npos);
  problem.dtype = DType::f32;
  EXPECT_EQ(reason("implicit_gemm", problem), "");
  problem = testing::half_nhwc_problem("n=1,c=24,h=5,w=5,k=24,r=3,s=3,pad=1,groups=2", DType::f16);
  EXPECT_NE(reason("implicit_gemm", problem).find("multiple of 8"), std::string::npos);
}

}  // namespace
}  // namespace convscope
