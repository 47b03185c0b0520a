// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_tma_moments_cuda_test.cpp: tests mean and variance of the channels, which the
// forward pass of implicit_gemm_tma computes for a batch norm. Compares these moments with sums in
// double over the stored y. Cases: every kernel, divided sums, partial tiles, data with an offset
// and with heavy tails. Also compares a batch norm that receives the moments with a batch norm that
// reads the images itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "layers/batch_norm2d/batch_norm2d_half.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/implicit_gemm_tma/cuda/implicit_gemm_tma_plan.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/dispatch/layout/half_operands.h"
#include "layers/dispatch/run.h"
#include "layers/plan/forward_moments.h"
#include "tests/support/cuda.h"
#include "tests/support/favoured_kernel.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace implicit_gemm_tma;  // NOLINT(google-build-using-namespace)
using testing::cuda;
using testing::normal;

class ForwardMomentsOnCuda : public testing::CudaTest {};

constexpr ActivationLayout kLast = ActivationLayout::nhwc;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kU = 0x1p-24;

// On the eight SMs of the emulation, these problems can use every tile of kGatherShapes except the
// narrow one. Cases: several tiles per block, fewer tiles than blocks, tile rows without a
// pixel, several images in a tile. Other cases: columns after the last channel, numbers of column
// tiles that do not divide the number of blocks, and divided sums.
constexpr const char* kProblems[] = {"n=1,c=3,h=3,w=23,k=24,r=5,s=5,pad=2",
                                     "n=3,c=40,h=15,w=22,k=24,r=1,s=1",
                                     "n=6,c=3,h=9,w=23,k=72,r=1,s=1",
                                     "n=1,c=40,h=17,w=8,k=130,r=2,s=2,pad=1",
                                     "n=6,c=3,h=8,w=16,k=130,r=1,s=1",
                                     "n=1,c=3,h=3,w=3,k=300,r=2,s=2,pad=1",
                                     "n=2,c=24,h=6,w=1,k=130,r=2,s=2,pad=1",
                                     "n=6,c=8,h=1,w=21,k=300,r=2,s=2,pad=1",
                                     "n=6,c=40,h=15,w=12,k=72,r=1,s=1",
                                     "n=3,c=3,h=14,w=16,k=200,r=2,s=2,pad=1",
                                     "n=6,c=3,h=22,w=10,k=72,r=3,s=3,pad=1",
                                     "n=5,c=40,h=12,w=17,k=72,r=2,s=2,pad=1",
                                     "n=5,c=72,h=15,w=14,k=40,r=2,s=2,pad=1",
                                     "n=6,c=40,h=20,w=12,k=72,r=2,s=2,pad=1",
                                     "n=2,c=20,h=9,w=8,k=17,r=4,s=4,stride=4",
                                     "n=5,c=3,h=10,w=13,k=130,r=2,s=2",
                                     "n=4,c=72,h=27,w=26,k=72,r=1,s=1,stride=2",
                                     "n=3,c=72,h=7,w=7,k=72,r=3,s=3,pad=1",
                                     "n=2,c=131,h=3,w=3,k=130,r=3,s=3,pad=1",
                                     "n=1,c=520,h=2,w=3,k=300,r=1,s=1",
                                     "n=8,c=16,h=32,w=32,k=256,r=1,s=1",
                                     "n=2,c=136,h=20,w=20,k=64,r=3,s=3,pad=1",
                                     "n=2,c=32,h=16,w=16,k=128,r=3,s=3,pad=1",
                                     "n=4,c=24,h=16,w=16,k=264,r=1,s=1",
                                     "n=5,c=40,h=9,w=20,k=264,r=1,s=1",
                                     "n=2,c=9,h=15,w=21,k=17,r=2,s=2"};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("implicit_gemm_tma");
}

Conv2dProblem problem_of(const char* text) {
  Conv2dProblem z = Conv2dProblem::parse(text);
  z.layout = kLast;
  z.math = MathMode::tf32;
  return z;
}

GatherPlan plan_of(const Conv2dProblem& z) {
  // Returns the tiling for 8 SMs on the emulation, and for the 132 SMs of an H100 or H200 on a GPU.
  const Machine machine{.multiprocessors = testing::is_emulated() ? 8 : 132};
  return plan_gather(as_one_line(z), Direction::forward, machine);
}

enum class Data { normal, offset, heavy_tails };

// Returns a bias that gives y an offset of some hundred standard deviations.
float offset_of(Data data) { return data == Data::offset ? 300.0f : 0.0f; }

class Call {
 public:
  Call(const Conv2dProblem& z, Data data)
      : z_(z), w_(normal(z.w_shape(), DType::f32, 2).to(cuda())), b_(normal({z.k}, DType::f32, 3)) {
    Tensor x = normal(z.x_shape(), DType::f32, 1);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      float& v = x.data<float>()[i];
      v *= 0.1f;
      if (data == Data::heavy_tails) v = std::sinh(20 * v) * 0.1f;
    }
    for (std::int64_t i = 0; i < z.k; ++i) b_.data<float>()[i] += offset_of(data);
    b_ = b_.to(cuda());
    x = stored_images(x, kLast).to(cuda());
    const auto bytes = static_cast<std::int64_t>(half_operands_bytes(x.numel()));
    factors_ = Tensor::empty({bytes}, DType::u8, cuda());
    pack_half_operands_kernel.get(cuda())(x, factors_.raw_data());
  }

  struct Result {
    Tensor y, moments;  // on the device; without moments: undefined
  };
  Result run(bool with_moments) const {
    const ForwardMoments* const moments = forward_moments_of(algorithm(), z_);
    EXPECT_NE(moments, nullptr) << z_.text();
    Result out{.y = Tensor::full(stored_shape(z_.y_shape(), kLast), kNaN, DType::f32, cuda()),
               .moments = {}};
    const Scratch<Conv2dProblem> scratch(algorithm(), z_, Direction::forward, cuda(),
                                         WeightUse::often);
    const Conv2dForwardArgs args{.problem = z_,
                                 .x = nullptr,
                                 .w = nullptr,
                                 .b = b_.raw_data(),
                                 .y = out.y.raw_data(),
                                 .workspace = scratch.workspace(),
                                 .prepared = scratch.prepare(w_.raw_data()),
                                 .views = {},
                                 .x_half = half_operands_in(factors_.raw_data())};
    if (!with_moments) {
      algorithm().forward(args);
      return out;
    }
    // One more part than needed, which must stay untouched.
    const std::int64_t parts = moments->parts(z_);
    const Tensor to = Tensor::full({parts + 1, 4, out.y.dim(4)}, kNaN, DType::f32, cuda());
    run_forward_moments(algorithm(), *moments, args, to.data<float>());
    const Tensor host = to.to(Device{});
    out.moments = Tensor::empty({parts, 4, out.y.dim(4)});
    const float* const from = host.data<float>();
    const std::int64_t count = out.moments.numel();
    std::copy(from, from + count, out.moments.data<float>());
    for (std::int64_t i = count; i < host.numel(); ++i) EXPECT_TRUE(std::isnan(from[i])) << i;
    out.moments = out.moments.to(cuda());
    return out;
  }

 private:
  Conv2dProblem z_;
  Tensor factors_, w_, b_;
};

// Moments of one channel: the count, the mean, the sum of squares about the mean, and the largest
// magnitude. `held` is the sum of squared differences that the partial results contain.
struct Moments {
  double count = 0, mean = 0, squares = 0, largest = 0, held = 0;
};

Moments value_moments(const Tensor& y, std::int64_t channel) {
  const std::int64_t lanes = y.dim(4);
  const auto* const from = y.data<float>();
  Moments out;
  const auto for_all = [&](auto&& body) {
    for (std::int64_t i = channel; i < y.numel(); i += lanes) body(static_cast<double>(from[i]));
  };
  for_all([&](double v) {
    out.mean += v;
    ++out.count;
    out.largest = std::max(out.largest, std::abs(v));
  });
  out.mean /= out.count;
  for_all([&](double v) { out.squares += (v - out.mean) * (v - out.mean); });
  return out;
}

Moments part_moments(const Tensor& moments, std::int64_t channel) {
  const std::int64_t lanes = moments.dim(2);
  Moments out;
  const auto value = [&](std::int64_t part, std::int64_t sum) {
    return static_cast<double>(moments.data<float>()[(part * 4 + sum) * lanes + channel]);
  };
  for (std::int64_t p = 0; p < moments.dim(0); ++p) {
    out.count += value(p, 0);
    out.mean += value(p, 0) * value(p, 1) + value(p, 2);
    out.held += value(p, 3);
  }
  out.mean /= out.count;
  for (std::int64_t p = 0; p < moments.dim(0); ++p) {
    const double off = value(p, 1) - out.mean;
    out.squares += value(p, 3) + 2 * off * value(p, 2) + value(p, 0) * off * off;
  }
  return out;
}

// Checks the error bounds of channel_moments.cuh. `merges` counts the merges of partial moments:
// three between lanes, eight between warps, and one per tile of a block. With `in_parts` the sums
// are shared by several blocks: a thread adds up to 64 differences from a shift, and a block adds
// 32 such sums.
void check(const Moments& got, const Moments& want, double merges, bool in_parts,
           const std::string& where) {
  EXPECT_EQ(got.count, want.count) << where;
  const double s = want.squares, n = want.count;
  const double sums = in_parts ? 100 * kU : 0;
  const double e = (merges + 2) * kU * want.largest + sums * std::sqrt(got.held / n);
  EXPECT_LE(std::abs(got.mean - want.mean), e) << where << ": mean " << want.mean;
  const double allowed =
      (2 * merges + 4) * kU * s + 4 * e * std::sqrt(n * s) + n * e * e + 2 * sums * got.held;
  EXPECT_LE(std::abs(got.squares - s), allowed) << where << ": squares " << s;
}

TEST_F(ForwardMomentsOnCuda, AreThoseOfTheNumbersThatAreStored) {
  std::set<int> shapes;  // -1: divided sums
  const auto run = [&](const Conv2dProblem& z, const GatherPlan& plan) {
    for (const Data data : {Data::normal, Data::offset, Data::heavy_tails}) {
      const Call call(z, data);
      const auto plain = call.run(false), got = call.run(true), again = call.run(true);
      const Tensor y = got.y.to(Device{}), parts = got.moments.to(Device{});
      EXPECT_TRUE(testing::same_bits(y, plain.y.to(Device{}))) << z.text();
      EXPECT_TRUE(testing::same_bits(again.moments.to(Device{}), parts)) << z.text();
      for (std::int64_t k = 0; k < y.dim(4); ++k) {
        check(part_moments(parts, k), value_moments(y, k), 11 + plan.row_tiles, plan.splits > 1,
              cat(z.text(), " channel ", k));
      }
    }
  };
  // First the cheapest tiling of each problem, then a problem for each further kernel.
  for (int favoured = -1; favoured < kGatherShapeCount; ++favoured) {
    GatherPlan of_kernel;
    of_kernel.shape = std::max(favoured, 0);
    std::vector<std::string> schedules;
    if (favoured >= 0) schedules.emplace_back(schedule_of(of_kernel, false));
    const testing::FavouredKernel kernel({"conv2d", "implicit_gemm_tma", Direction::forward},
                                         schedules);
    for (const char* text : kProblems) {
      const Conv2dProblem z = problem_of(text);
      const GatherPlan plan = plan_of(z);
      if (kGatherShapes[plan.shape].columns < 32 && plan.splits == 1) {
        EXPECT_EQ(forward_moments_of(algorithm(), z), nullptr);
        continue;
      }
      const bool is_new = shapes.insert(plan.splits == 1 ? plan.shape : -1).second;
      if (is_new || favoured < 0) run(z, plan);
    }
  }
  if (!testing::is_emulated()) return;
  EXPECT_EQ(shapes, (std::set<int>{-1, 0, 1, 2, 3, 4, 6, 7, 8}));
}

struct Norm {
  Norm(const Tensor& x, const Tensor& moments, std::int64_t channels)
      : y(Tensor::full(x.shape(), kNaN, x.dtype(), cuda())),
        mean(Tensor::empty({channels}, DType::f64, cuda())),
        inverse(Tensor::empty({channels}, DType::f64, cuda())),
        running_mean(Tensor::full({channels}, 0.5, DType::f32, cuda())),
        running_variance(Tensor::full({channels}, 2, DType::f32, cuda())) {
    batch_norm_half_kernel.get(cuda())({.x = x,
                                        .weight = normal({channels}, DType::f32, 4).to(cuda()),
                                        .bias = normal({channels}, DType::f32, 5).to(cuda()),
                                        .eps = 1e-5,
                                        .momentum = 0.1,
                                        .residual = {},
                                        .relu = true,
                                        .y = y,
                                        .mean = mean,
                                        .inverse_deviation = inverse,
                                        .factors = Tensor::empty({3, x.dim(4)}, DType::f32, cuda()),
                                        .running_mean = running_mean,
                                        .running_variance = running_variance,
                                        .x_moments = moments});
  }
  Tensor y, mean, inverse, running_mean, running_variance;
};

// The batch norm receives a mean that may be off by e, and a deviation that may be off by e plus a
// small fraction of itself. So a normalised number may be off by about e / deviation. Few moments
// are merged here, so e is small.
TEST_F(ForwardMomentsOnCuda, ABatchNormThatIsGivenThemDoesWhatItDoesAlone) {
  for (const Data data : {Data::normal, Data::offset, Data::heavy_tails}) {
    const Conv2dProblem z = problem_of("n=4,c=16,h=13,w=11,k=40,r=3,s=3,pad=1");
    const auto made = Call(z, data).run(true);
    const Norm given(made.y, made.moments, z.k), alone(made.y, {}, z.k);
    const Tensor x = made.y.to(Device{});
    const Tensor a = given.y.to(Device{}), b = alone.y.to(Device{});
    for (std::int64_t k = 0; k < z.k; ++k) {
      const Moments want = value_moments(x, k);
      const double variance = want.squares / want.count, deviation = std::sqrt(variance);
      const double e = 40 * kU * (want.largest + deviation);
      EXPECT_NEAR(given.mean.to(Device{}).at(k), want.mean, e) << z.text();
      const double inverse = 1 / std::sqrt(variance + 1e-5);
      EXPECT_NEAR(given.inverse.to(Device{}).at(k), inverse, 4 * e / deviation * inverse);
      const double unbiased = variance * want.count / (want.count - 1);
      EXPECT_NEAR(given.running_mean.to(Device{}).at(k), 0.45 + 0.1 * want.mean, e + 1e-6);
      EXPECT_NEAR(given.running_variance.to(Device{}).at(k), 1.8 + 0.1 * unbiased,
                  4 * e * (1 + deviation) + 1e-6);
      for (std::int64_t i = k; i < a.numel(); i += x.dim(4)) {
        const double got = static_cast<double>(a.data<float>()[i]);
        const double other = static_cast<double>(b.data<float>()[i]);
        EXPECT_NEAR(got, other, 2 * kU * std::abs(other) + 40 * e / deviation)
            << z.text() << " element " << i;
      }
    }
  }
}

TEST_F(ForwardMomentsOnCuda, IsCountedAsTheForwardOfTheAlgorithm) {
  const Conv2dProblem z = problem_of("n=2,c=16,h=8,w=8,k=32,r=3,s=3,pad=1");
  const Call call(z, Data::normal);
  KernelCounter counter;
  call.run(true);
  ASSERT_EQ(counter.runs().size(), 1u);
  EXPECT_EQ(counter.runs().begin()->first.kernel, "implicit_gemm_tma");
  EXPECT_EQ(counter.runs().begin()->second, 1);
}

TEST_F(ForwardMomentsOnCuda, OtherProblemsHaveNone) {
  Conv2dProblem half = problem_of("n=2,c=16,h=8,w=8,k=32,r=3,s=3,pad=1");
  EXPECT_EQ(forward_moments_of(conv2d_algorithms(DeviceType::cuda).get("implicit_gemm"), half),
            nullptr);
  EXPECT_NE(forward_moments_of(algorithm(), half), nullptr);
  half.dtype = DType::bf16;
  half.types =
      OperandTypes{.x = DType::bf16, .w = DType::f32, .accumulator = DType::f32, .y = DType::bf16};
  EXPECT_EQ(forward_moments_of(algorithm(), half), nullptr);
  // More pixels than f32 can count exactly.
  EXPECT_EQ(forward_moments_of(algorithm(), problem_of("n=64,c=8,h=513,w=512,k=64")), nullptr);
}

}  // namespace
}  // namespace convscope
