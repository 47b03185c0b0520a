// SPDX-License-Identifier: Apache-2.0
// depthwise_cuda_test.cpp: tests depthwise convolution on CUDA with integers, bit by bit. The cases
// are those that its kernels distinguish: alignment, odd and even padding, bands of rows, several
// planes in a tile, epilogue, accumulation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/random.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/cost/choose.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::cuda;
using DepthwiseOnCuda = testing::CudaTest;

using Values = std::vector<float>;

Values integers(std::int64_t count, std::uint64_t stream) {
  Generator random(7, stream);
  Values out(static_cast<std::size_t>(count));
  for (float& value : out) value = static_cast<float>(random.below(7)) - 3.0f;
  return out;
}

// An array of type T in device memory, `offset` elements after an aligned address.
template <class T>
struct Placed {
  Tensor block;
  std::int64_t offset, count;
  Placed(const Values& values, std::int64_t at)
      : offset(at), count(static_cast<std::int64_t>(values.size())) {
    Tensor host = Tensor::zeros({count + 2 * kGuard}, dtype_of<T>);
    std::fill_n(host.data<T>(), host.numel(), T(kUntouched));
    for (std::int64_t i = 0; i < count; ++i) {
      host.data<T>()[kGuard + offset + i] = T(values[static_cast<std::size_t>(i)]);
    }
    block = host.to(cuda());
  }
  T* data() const { return block.data<T>() + kGuard + offset; }
  // Returns the values, and checks that the guards before and after them are untouched.
  Values read() const {
    const Tensor host = block.to(Device{});
    Values out;
    for (std::int64_t i = 0; i < host.numel(); ++i) {
      const float value = static_cast<float>(host.data<T>()[i]);
      const bool inside = i >= kGuard + offset && i < kGuard + offset + count;
      if (inside) {
        out.push_back(value);
      } else {
        EXPECT_EQ(value, kUntouched) << "guard " << i << " of " << host.numel();
      }
    }
    return out;
  }
  static constexpr std::int64_t kGuard = 16;
  static constexpr float kUntouched = -992.0f;  // the same in every type
};

struct Results {
  Values y, dx, dw;
};

const Conv2dAlgorithm& algorithm(DeviceType type, const char* name) {
  const Conv2dAlgorithm* const found = conv2d_algorithms(type).find(name);
  EXPECT_NE(found, nullptr) << name;
  return *found;
}

struct Inputs {
  Values x, w, b, residual, dy, dw_before;
  explicit Inputs(const Conv2dProblem& z)
      : x(integers(z.x_shape().numel(), 1)),
        w(integers(z.w_shape().numel(), 2)),
        b(integers(z.k, 3)),
        residual(integers(z.y_shape().numel(), 4)),
        dy(integers(z.y_shape().numel(), 5)),
        dw_before(integers(z.w_shape().numel(), 6)) {}
};

// Returns the expected results. Sums are exact, and each result is rounded to T once. y is also
// rounded before the residual is added.
template <class T>
Results expected(Conv2dProblem z, const Inputs& in) {
  z.dtype = DType::f32;
  const Conv2dAlgorithm& reference = algorithm(DeviceType::cpu, "reference");
  const auto nothing = std::numeric_limits<float>::quiet_NaN();
  Results out{Values(in.dy.size(), nothing), Values(in.x.size(), nothing), in.dw_before};
  reference.forward({z, in.x.data(), in.w.data(), in.b.data(), out.y.data(), nullptr});
  for (std::size_t i = 0; i < out.y.size(); ++i) {
    out.y[i] = std::max(static_cast<float>(T(out.y[i])) + in.residual[i], 0.0f);
  }
  reference.backward_data({z, in.dy.data(), in.w.data(), out.dx.data(), nullptr});
  reference.backward_weight({z, in.x.data(), in.dy.data(), out.dw.data(), true, nullptr});
  for (Values* const values : {&out.y, &out.dx, &out.dw}) {
    for (float& value : *values) value = static_cast<float>(T(value));
  }
  return out;
}

template <class T>
Results on_cuda(const Conv2dProblem& z, const Inputs& in, std::int64_t offset) {
  const Conv2dAlgorithm& depthwise = algorithm(DeviceType::cuda, "depthwise");
  const auto nothing = std::numeric_limits<float>::quiet_NaN();
  const Placed<T> x(in.x, offset), w(in.w, offset), b(in.b, offset), residual(in.residual, offset),
      dy(in.dy, offset), y(Values(in.dy.size(), nothing), offset),
      dx(Values(in.x.size(), nothing), offset), dw(in.dw_before, offset);
  const auto floats = depthwise.workspace_bytes(z, Direction::backward_weight) / sizeof(float);
  const Placed<float> workspace(Values(floats, nothing), 0);
  depthwise.forward({z,
                     x.data(),
                     w.data(),
                     b.data(),
                     y.data(),
                     nullptr,
                     {.residual = residual.data(), .relu = true}});
  depthwise.backward_data({z, dy.data(), w.data(), dx.data(), nullptr});
  depthwise.backward_weight({z, x.data(), dy.data(), dw.data(), true, workspace.data()});
  workspace.read();
  return {y.read(), dx.read(), dw.read()};
}

void expect_equal(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << what << ", element " << i << " of " << got.size();
  }
}

template <class T = float>
void check(const std::string& text) {
  Conv2dProblem z = Conv2dProblem::parse(text);
  z.dtype = dtype_of<T>;
  z.check();
  const Inputs in(z);
  const Results want = expected<T>(z, in);
  for (const std::int64_t offset : {0, 1, 2}) {
    SCOPED_TRACE(cat(z.text(), ", ", offset, " elements off"));
    const Results got = on_cuda<T>(z, in, offset);
    expect_equal(got.y, want.y, "y");
    expect_equal(got.dx, want.dx, "dx");
    expect_equal(got.dw, want.dw, "dw");
  }
}

TEST_F(DepthwiseOnCuda, AlignedRowsOfEveryKernelAndStride) {
  for (const char* kernel : {"r=3,s=3,pad=1", "r=5,s=5,pad=2", "r=7,s=7,pad=3"}) {
    for (const char* stride : {"stride=1", "stride=2"}) {
      check(cat("n=2,c=3,h=14,w=16,k=3,groups=3,", kernel, ",", stride));
      check(cat("n=1,c=2,h=28,w=24,k=2,groups=2,", kernel, ",", stride));
    }
  }
}

TEST_F(DepthwiseOnCuda, RowsThatAreNoWholeUnits) {
  for (const char* kernel : {"r=3,s=3,pad=1", "r=5,s=5,pad=2", "r=7,s=7,pad=3"}) {
    for (const char* stride : {"stride=1", "stride=2"}) {
      check(cat("n=2,c=5,h=7,w=7,k=5,groups=5,", kernel, ",", stride));
      check(cat("n=1,c=3,h=14,w=14,k=3,groups=3,", kernel, ",", stride));
      check(cat("n=1,c=2,h=13,w=9,k=2,groups=2,", kernel, ",", stride));
    }
  }
}

TEST_F(DepthwiseOnCuda, BandsOfATallAndOfAWidePlane) {
  check("n=1,c=1,h=61,w=112,k=1,groups=1,r=3,s=3,pad=1");
  check("n=1,c=2,h=61,w=113,k=2,groups=2,r=3,s=3,pad=1,stride=2");
  check("n=1,c=1,h=9,w=1100,k=1,groups=1,r=5,s=5,pad=2");
  check("n=1,c=1,h=9,w=1101,k=1,groups=1,r=3,s=3,pad=1");
}

TEST_F(DepthwiseOnCuda, PaddingOfAnyKind) {
  for (const char* stride : {"stride=1", "stride=2"}) {
    for (const char* pad : {"pad=0", "pad=1", "pad=2", "pad=3", "pad=4", "pad=0x1x0x1",
                            "pad=1x0x2x0", "pad=2x3x5x1", "pad=0x0x3x4"}) {
      check(cat("n=1,c=2,h=11,w=12,k=2,groups=2,r=3,s=3,", stride, ",", pad));
      check(cat("n=1,c=2,h=11,w=10,k=2,groups=2,r=5,s=5,", stride, ",", pad));
      check(cat("n=1,c=2,h=11,w=12,k=2,groups=2,r=7,s=7,", stride, ",", pad));
    }
  }
}

TEST_F(DepthwiseOnCuda, AnyShapeByElements) {
  check("n=2,c=3,h=9,w=10,k=6,groups=3,r=3,s=3,pad=1");
  check("n=2,c=2,h=9,w=10,k=4,groups=2,r=3,s=3,pad=1,stride=2");
  check("n=1,c=2,h=12,w=12,k=2,groups=2,r=3,s=3,pad=2,dilation=2");
  check("n=1,c=2,h=12,w=11,k=2,groups=2,r=2,s=4,pad=1,stride=3x2,dilation=2x1");
  check("n=3,c=2,h=5,w=4,k=2,groups=2,r=1,s=1");
}

TEST_F(DepthwiseOnCuda, SmallPlanesWithWholeRowsInAThread) {
  check("n=3,c=23,h=7,w=7,k=23,groups=23,r=3,s=3,pad=1");
  check("n=3,c=68,h=7,w=7,k=68,groups=68,r=3,s=3,pad=1");
  check("n=35,c=4,h=7,w=7,k=4,groups=4,r=5,s=5,pad=2");
  check("n=2,c=32,h=7,w=7,k=32,groups=32,r=7,s=7,pad=3");
  check("n=3,c=11,h=14,w=14,k=11,groups=11,r=3,s=3,pad=1");
}

TEST_F(DepthwiseOnCuda, ManySmallPlanesUnderLargerKernelsAndStrides) {
  std::size_t turn = 1;  // the emulation runs only the larger kernel of the two
  for (const char* kernel : {"r=5,s=5,pad=2", "r=7,s=7,pad=3"}) {
    if (!testing::takes_entry(++turn)) continue;
    check(cat("n=64,c=65,h=14,w=14,k=65,groups=65,", kernel));
    check(cat("n=64,c=64,h=14,w=14,k=64,groups=64,stride=2,", kernel));
    check<BFloat16>(cat("n=64,c=64,h=14,w=14,k=64,groups=64,", kernel));
    check<Float16>(cat("n=64,c=64,h=14,w=14,k=64,groups=64,stride=2,", kernel));
  }
  check("n=5,c=67,h=14,w=14,k=67,groups=67,r=3,s=3,pad=1,stride=2");
  check<BFloat16>("n=5,c=72,h=14,w=14,k=72,groups=72,r=3,s=3,pad=1,stride=2");
}

TEST_F(DepthwiseOnCuda, RowsOfWholePairs) {
  for (const char* kernel : {"r=3,s=3,pad=1", "r=5,s=5,pad=2", "r=7,s=7,pad=3"}) {
    check(cat("n=2,c=3,h=14,w=18,k=3,groups=3,", kernel));
    check(cat("n=2,c=3,h=28,w=28,k=3,groups=3,", kernel, ",stride=2"));
  }
}

TEST_F(DepthwiseOnCuda, WindowsOfFewPlanes) {
  for (const char* kernel : {"r=3,s=3,pad=2x1x1x1", "r=5,s=5,pad=1x3x2x2", "r=7,s=7,pad=3"}) {
    for (const char* stride : {"stride=1", "stride=2"}) {
      check(cat("n=2,c=3,h=13,w=24,k=3,groups=3,", kernel, ",", stride));
      check(cat("n=2,c=3,h=15,w=28,k=3,groups=3,", kernel, ",", stride));
      check<BFloat16>(cat("n=3,c=2,h=12,w=12,k=2,groups=2,", kernel, ",", stride));
      check<Float16>(cat("n=1,c=2,h=17,w=16,k=2,groups=2,", kernel, ",", stride));
    }
  }
}

TEST_F(DepthwiseOnCuda, WindowsOfManyPlanesWithStrideTwo) {
  check("n=8,c=40,h=25,w=32,k=40,groups=40,r=3,s=3,pad=1,stride=2");
  check("n=8,c=40,h=25,w=28,k=40,groups=40,r=3,s=3,pad=1,stride=2");
  check<BFloat16>("n=8,c=40,h=25,w=32,k=40,groups=40,r=3,s=3,pad=1,stride=2");
  check<Float16>("n=8,c=40,h=25,w=28,k=40,groups=40,r=3,s=3,pad=1,stride=2");
}

TEST_F(DepthwiseOnCuda, WeightsOfFewPixelsInOneLaunch) {
  for (const char* kernel : {"r=3,s=3,pad=1", "r=5,s=5,pad=2", "r=7,s=7,pad=3"}) {
    check(cat("n=3,c=3,h=20,w=12,k=3,groups=3,", kernel));  // 180 pieces: two for some threads
    check(cat("n=3,c=5,h=20,w=28,k=5,groups=5,stride=2,", kernel));
    check<BFloat16>(cat("n=1,c=5,h=20,w=12,k=5,groups=5,", kernel));
  }
}

TEST_F(DepthwiseOnCuda, ManyPlanesInATileAndFewInTheLast) {
  check("n=3,c=67,h=3,w=3,k=67,groups=67,r=3,s=3,pad=1");
  check("n=3,c=21,h=8,w=8,k=21,groups=21,r=3,s=3,pad=1");
}

TEST_F(DepthwiseOnCuda, LargeKernelsOfEveryStride) {
  for (const char* kernel : {"r=9,s=9,pad=4", "r=13,s=13,pad=6", "r=21,s=21,pad=10"}) {
    for (const char* stride : {"stride=1", "stride=2", "stride=3"}) {
      check(cat("n=3,c=2,h=14,w=14,k=2,groups=2,", kernel, ",", stride));
      check(cat("n=1,c=3,h=19,w=16,k=3,groups=3,", kernel, ",", stride));
    }
  }
  check("n=2,c=2,h=15,w=28,k=2,groups=2,r=31,s=31,pad=15");
  check("n=2,c=2,h=30,w=17,k=2,groups=2,r=31,s=31,pad=15,stride=2");
  check("n=1,c=1,h=9,w=20,k=1,groups=1,r=63,s=63,pad=31");
}

TEST_F(DepthwiseOnCuda, LargeKernelsSplitOverThreadsAndNot) {
  for (const char* stride : {"stride=1", "stride=2", "stride=2x1", "stride=1x2"}) {
    check(cat("n=1,c=2,h=20,w=23,k=2,groups=2,r=13,s=11,pad=5,", stride));
    check(cat("n=2,c=2,h=24,w=24,k=2,groups=2,r=9,s=9,pad=4,", stride));
    check<BFloat16>(cat("n=1,c=2,h=16,w=16,k=2,groups=2,r=9,s=9,pad=4,", stride));
  }
  check("n=12,c=32,h=20,w=20,k=32,groups=32,r=9,s=9,pad=4,stride=2");
  check("n=1,c=1,h=90,w=60,k=1,groups=1,r=21,s=21,pad=10,stride=2");
}

// Each seed explores another tiling, and threads that share the rows of a kernel or do not.
TEST_F(DepthwiseOnCuda, LargeKernelsInTilingsThatAreNotTheCheapest) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const ExploreSchedules explore(seed);
    SCOPED_TRACE(cat("seed ", seed));
    check("n=3,c=2,h=15,w=22,k=2,groups=2,r=9,s=9,pad=4");
    check("n=2,c=2,h=20,w=17,k=2,groups=2,r=11,s=8,pad=4,stride=2");
  }
}

TEST_F(DepthwiseOnCuda, LargeKernelsThatAreNoSquaresAndAnyPadding) {
  for (const char* pad : {"pad=0", "pad=3", "pad=12", "pad=0x7x3x0", "pad=1x0x0x12"}) {
    check(cat("n=2,c=2,h=17,w=20,k=2,groups=2,r=10,s=12,", pad));
    check(cat("n=2,c=2,h=17,w=20,k=2,groups=2,r=11,s=8,stride=2x1,", pad));
    check(cat("n=2,c=2,h=17,w=20,k=2,groups=2,r=7,s=15,stride=2x3,", pad));
  }
  check("n=2,c=2,h=29,w=5,k=2,groups=2,r=21,s=1,pad=10x0");
  check("n=2,c=2,h=5,w=29,k=2,groups=2,r=1,s=21,pad=0x10");
  check("n=2,c=2,h=9,w=9,k=2,groups=2,r=5,s=5,stride=3,pad=2");
}

TEST_F(DepthwiseOnCuda, LargeKernelsOverManyPlanesAndOverBands) {
  check("n=37,c=5,h=7,w=7,k=5,groups=5,r=9,s=9,pad=4");    // planes of two channels in a block
  check("n=1,c=70,h=4,w=3,k=70,groups=70,r=9,s=9,pad=4");  // a channel for each plane
  check("n=1,c=1,h=230,w=33,k=1,groups=1,r=9,s=9,pad=4");
  check("n=1,c=1,h=160,w=150,k=1,groups=1,r=9,s=9,pad=4,stride=2");
  check("n=1,c=1,h=12,w=700,k=1,groups=1,r=9,s=9,pad=4");
}

TEST_F(DepthwiseOnCuda, HalfPrecisionIsRoundedOnce) {
  for (const char* text : {
           "n=2,c=3,h=14,w=16,k=3,groups=3,r=3,s=3,pad=1",
           "n=2,c=3,h=14,w=18,k=3,groups=3,r=5,s=5,pad=2",
           "n=2,c=5,h=13,w=9,k=5,groups=5,r=7,s=7,pad=3",
           "n=2,c=3,h=28,w=28,k=3,groups=3,r=3,s=3,pad=1,stride=2",
           "n=2,c=2,h=28,w=24,k=2,groups=2,r=5,s=5,pad=2,stride=2",
           "n=1,c=2,h=15,w=13,k=2,groups=2,r=7,s=7,pad=3,stride=2",
           "n=3,c=24,h=7,w=7,k=24,groups=24,r=3,s=3,pad=1",
           "n=35,c=4,h=7,w=7,k=4,groups=4,r=5,s=5,pad=2",
           "n=2,c=32,h=7,w=7,k=32,groups=32,r=7,s=7,pad=3",
           "n=3,c=12,h=14,w=14,k=12,groups=12,r=3,s=3,pad=1",
           "n=3,c=11,h=14,w=14,k=11,groups=11,r=3,s=3,pad=1",
           "n=2,c=2,h=15,w=20,k=2,groups=2,r=13,s=13,pad=6",
           "n=2,c=2,h=15,w=20,k=2,groups=2,r=9,s=9,pad=4,stride=2",
           "n=1,c=2,h=12,w=12,k=2,groups=2,r=3,s=3,pad=2,dilation=2",
       }) {
    check<BFloat16>(text);
    check<Float16>(text);
  }
}

TEST_F(DepthwiseOnCuda, WhatIsNotANumberStaysWhereItBelongs) {
  // The first column of x is NaN. There is no padding, so only taps with s = 0 read that column,
  // and all other elements of dw must be finite.
  for (const char* text :
       {"n=1,c=1,h=9,w=9,k=1,groups=1,r=3,s=3", "n=1,c=1,h=9,w=14,k=1,groups=1,r=3,s=3,stride=2",
        "n=1,c=1,h=13,w=14,k=1,groups=1,r=9,s=9", "n=1,c=1,h=13,w=23,k=1,groups=1,r=9,s=10",
        "n=1,c=1,h=19,w=23,k=1,groups=1,r=9,s=9,stride=2"}) {
    const Conv2dProblem z = Conv2dProblem::parse(text);
    Inputs in(z);
    for (std::int64_t h = 0; h < z.h; ++h) {
      in.x[static_cast<std::size_t>(h * z.w)] = std::numeric_limits<float>::quiet_NaN();
    }
    const Results got = on_cuda<float>(z, in, 0);
    for (std::size_t i = 0; i < got.dw.size(); ++i) {
      EXPECT_EQ(std::isnan(got.dw[i]), i % static_cast<std::size_t>(z.s) == 0)
          << text << ", tap " << i;
    }
    for (std::int64_t i = 0; i < z.y_shape().numel(); ++i) {
      EXPECT_EQ(std::isnan(got.y[static_cast<std::size_t>(i)]), i % z.q() == 0) << text;
    }
  }
}

}  // namespace
}  // namespace convscope
