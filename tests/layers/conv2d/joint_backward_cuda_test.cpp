// SPDX-License-Identifier: Apache-2.0
// joint_backward_cuda_test.cpp: tests kernels that compute dx and dw of a convolution together.
// They must have the same bits as the two separate kernels, and on integers those of the reference.
#include "experiments/check/matrix/convolution_case.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "layers/plan/joint_backward.h"
#include "tests/support/cuda.h"
#include "tests/support/kernel_tally.h"
#include "tests/support/nhwc.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::normal;
using JointBackwardOnCuda = testing::CudaTest;

constexpr ActivationLayout kLast = ActivationLayout::nhwc;
constexpr const char* kAlgorithmName = "depthwise_nhwc";

// The problems cover both strides, every padding, image borders inside a tile, images divided among
// several blocks, channels that leave lanes unused, and more channels than a block handles.
constexpr const char* kTexts[] = {"n=2,c=13,h=9,w=11,k=13,r=3,s=3,pad=1,groups=13",
                                  "n=1,c=8,h=5,w=6,k=8,r=3,s=3,groups=8",
                                  "n=1,c=16,h=3,w=4,k=16,r=3,s=3,pad=2,groups=16",
                                  "n=3,c=70,h=31,w=5,k=70,r=3,s=3,pad=1,groups=70",
                                  "n=2,c=13,h=9,w=11,k=13,r=3,s=3,stride=2,pad=1,groups=13",
                                  "n=1,c=8,h=8,w=10,k=8,r=3,s=3,stride=2,groups=8",
                                  "n=2,c=24,h=7,w=8,k=24,r=3,s=3,stride=2,pad=2,groups=24",
                                  "n=3,c=70,h=60,w=4,k=70,r=3,s=3,stride=2,pad=1,groups=70",
                                  "n=1,c=8,h=6,w=5,k=8,r=3,s=3,stride=2,pad=0x1x1x0,groups=8",
                                  "n=1,c=72,h=1,w=1,k=72,r=3,s=3,pad=1,groups=72"};

Tensor integers(const Shape& shape, std::uint64_t stream) {
  Tensor out = normal(shape, DType::f32, stream);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = std::clamp(std::round(2 * out.data<float>()[i]), -4.0f, 4.0f);
  }
  return out;
}

struct Inputs {
  Tensor x, w, dy, dw_before;  // on the CPU, f32
};
struct Gradients {
  Tensor dx, dw;  // on the CPU; dx in its memory layout
};

class Call {
 public:
  Call(const Conv2dProblem& problem, const Inputs& in)
      : problem_(problem),
        x_(stored_images(in.x.to(problem.dtype), kLast).to(cuda())),
        w_(in.w.to(cuda())),
        dy_(stored_images(in.dy.to(problem.dtype), kLast).to(cuda())),
        dw_before_(in.dw_before) {}

  // `prepared`: with weights from prepare_weights(), or as they are.
  Gradients run(bool together, bool accumulate, bool prepared) const {
    const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cuda).get(kAlgorithmName);
    const Tensor dx =
        Tensor::full(stored_shape(problem_.x_shape(), kLast),
                     std::numeric_limits<double>::quiet_NaN(), problem_.dtype, cuda());
    const Tensor dw = dw_before_.to(cuda());
    const Scratch<Conv2dProblem> weights(algorithm, problem_, Direction::backward_data, cuda(),
                                         prepared ? WeightUse::often : WeightUse::once);
    const Conv2dBackwardDataArgs data{problem_,      dy_.raw_data(),
                                      w_.raw_data(), dx.raw_data(),
                                      nullptr,       weights.prepare(w_.raw_data())};
    const JointBackward* const both = joint_backward_of(algorithm, problem_);
    EXPECT_NE(both, nullptr);
    const std::size_t bytes = together
                                  ? both->workspace_bytes(problem_)
                                  : algorithm.workspace_bytes(problem_, Direction::backward_weight);
    const Workspace workspace(cuda(), bytes);
    const Conv2dBackwardWeightArgs weight{problem_,      x_.raw_data(), dy_.raw_data(),
                                          dw.raw_data(), accumulate,    workspace.data()};
    if (together) {
      run_joint_backward(algorithm, *both, data, weight);
    } else {
      algorithm.backward_data(data);
      algorithm.backward_weight(weight);
    }
    return {dx.to(Device{}), dw.to(Device{})};
  }

 private:
  Conv2dProblem problem_;
  Tensor x_, w_, dy_, dw_before_;
};

Inputs inputs_of(const Conv2dProblem& z, bool whole_numbers) {
  const auto make = [&](const Shape& shape, std::uint64_t stream) {
    return whole_numbers ? integers(shape, stream) : normal(shape, DType::f32, stream);
  };
  return {make(z.x_shape(), 1), make(z.w_shape(), 2), make(z.y_shape(), 3), make(z.w_shape(), 4)};
}

void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape());
  for (std::int64_t i = 0; i < got.numel(); ++i) {
    ASSERT_EQ(got.at(i), want.at(i)) << what << ", element " << i << " of " << got.numel();
  }
}

TEST_F(JointBackwardOnCuda, GivesTheBitsOfTheTwoKernelsApart) {
  for (const DType half : {DType::bf16, DType::f16}) {
    for (const char* text : kTexts) {
      const Conv2dProblem problem = testing::half_nhwc_problem(text, half);
      const Call call(problem, inputs_of(problem, false));
      for (const bool accumulate : {false, true}) {
        for (const bool prepared : {false, true}) {
          const Gradients got = call.run(true, accumulate, prepared);
          const Gradients want = call.run(false, accumulate, prepared);
          expect_same(got.dx, want.dx, cat("dx of ", problem.text()));
          expect_same(got.dw, want.dw, cat("dw of ", problem.text()));
        }
      }
    }
  }
}

TEST_F(JointBackwardOnCuda, IsExactOnIntegers) {
  for (const char* text : kTexts) {
    const Conv2dProblem problem = testing::half_nhwc_problem(text, DType::bf16);
    const Inputs in = inputs_of(problem, true);
    const Gradients got = Call(problem, in).run(true, false, false);
    Conv2dProblem plain = problem;
    plain.dtype = DType::f32;
    plain.types.reset();
    plain.layout = ActivationLayout::nchw;
    const Conv2dAlgorithm& reference = conv2d_algorithms(DeviceType::cpu).get("reference");
    const Tensor dx = Tensor::empty(plain.x_shape(), DType::f32);
    const Tensor dw = Tensor::empty(plain.w_shape(), DType::f32);
    reference.backward_data({plain, in.dy.raw_data(), in.w.raw_data(), dx.raw_data(), nullptr});
    reference.backward_weight(
        {plain, in.x.raw_data(), in.dy.raw_data(), dw.raw_data(), false, nullptr});
    EXPECT_TRUE(has_clean_lanes(got.dx, plain.x_shape(), kLast));
    expect_same(plain_images(got.dx, plain.x_shape(), kLast), dx.to(DType::bf16),
                cat("dx of ", problem.text()));
    expect_same(got.dw, dw, cat("dw of ", problem.text()));
  }
}

TEST_F(JointBackwardOnCuda, BothDirectionsAreCounted) {
  const Conv2dProblem problem = testing::half_nhwc_problem(kTexts[0], DType::bf16);
  const Call call(problem, inputs_of(problem, false));
  const KernelCounter counter;
  call.run(true, false, false);
  const std::map<KernelRun, std::int64_t> want{
      {{kAlgorithmName, "backward_data", problem.text()}, 1},
      {{kAlgorithmName, "backward_weight", problem.text()}, 1}};
  EXPECT_EQ(counter.runs(), want);
}

TEST_F(JointBackwardOnCuda, OthersHaveNone) {
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cuda).get(kAlgorithmName);
  EXPECT_EQ(
      joint_backward_of(algorithm, testing::half_nhwc_problem(
                                       "n=1,c=8,h=9,w=9,k=8,r=5,s=5,pad=2,groups=8", DType::bf16)),
      nullptr);
  EXPECT_EQ(joint_backward_of(conv2d_algorithms(DeviceType::cuda).get("implicit_gemm"),
                              testing::half_nhwc_problem(kTexts[0], DType::bf16)),
            nullptr);
}

}  // namespace
}  // namespace convscope
