// SPDX-License-Identifier: Apache-2.0
// half_operands_cuda_test.cpp: tests tf32 convolutions of f32 NHWC images by scaled fp16 operands.
// The caller passes the operands to implicit_gemm_tma, or the algorithm makes them.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "framework/random.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/layout/half_operands.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class HalfOperandsOnCuda : public testing::CudaTest {};

const Conv2dAlgorithm& algorithm() {
  return conv2d_algorithms(DeviceType::cuda).get("implicit_gemm_tma");
}

Tensor tensor_of(const std::vector<float>& values) {
  Tensor out = Tensor::empty({static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.data<float>());
  return out.to(testing::cuda());
}

// Returns a block of memory filled with 0xab. All bytes are defined, because all are copied to the
// CPU later.
Tensor block_for(std::int64_t elements) {
  return Tensor::full({static_cast<std::int64_t>(half_operands_bytes(elements))}, 0xab, DType::u8,
                      testing::cuda());
}

struct Unpacked {
  float scale = 0;
  std::vector<float> fp16;
};
Unpacked unpacked(const Tensor& block, std::int64_t elements) {
  const Tensor host = block.to(Device{});
  const HalfOperands at = half_operands_in(host.raw_data());
  const auto* const fp16 = static_cast<const Float16*>(at.fp16);
  return {*at.scale, {fp16, fp16 + elements}};
}

Unpacked packed(const std::vector<float>& values) {
  const Tensor block = block_for(static_cast<std::int64_t>(values.size()));
  pack_half_operands_kernel.get(testing::cuda())(tensor_of(values), block.raw_data());
  return unpacked(block, static_cast<std::int64_t>(values.size()));
}

TEST_F(HalfOperandsOnCuda, AreScaledByTheLargestFiniteMagnitudeAndRoundedOnce) {
  Generator random(7, 1);
  // Lengths around whole warps, blocks and rounds of the kernel.
  for (const int count : {8, 248, 256, 264, 8 * 1024, 8 * 4 * 256 * 64 * 3 + 24}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = random.normal() * 0.02f;
    values[values.size() / 3] = -5.5f;  // the largest; 5.5 2^11 is in [2^13, 2^14)
    const Unpacked out = packed(values);
    ASSERT_EQ(out.scale, 2048.0f) << count;
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(out.fp16[i], static_cast<float>(Float16(values[i] * 2048))) << i << " of " << count;
    }
  }
}

TEST_F(HalfOperandsOnCuda, KeepZerosInfinitiesAndNaN) {
  const Unpacked zeros = packed(std::vector<float>(16));
  EXPECT_EQ(zeros.scale, 1);
  EXPECT_EQ(zeros.fp16, std::vector<float>(16));
  const Unpacked out = packed({1, kInfinity, -kInfinity, kNaN, -3, 0, 0x1p-30f, 0.5f});
  EXPECT_EQ(out.scale, 0x1p12f);  // of 3
  EXPECT_EQ(out.fp16[1], kInfinity);
  EXPECT_EQ(out.fp16[2], -kInfinity);
  EXPECT_TRUE(std::isnan(out.fp16[3]));
  EXPECT_EQ(out.fp16[4], -3 * 0x1p12f);
  EXPECT_EQ(out.fp16[6], 0x1p-18f);
  // For subnormals only, the scale is the largest possible one.
  EXPECT_EQ(packed({0x1p-140f, 0, 0, 0, 0, 0, 0, 0}).fp16[0], 0x1p-14f);
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(packed({most, 0, 0, 0, 0, 0, 0, 0}).scale, 0x1p-114f);
}

TEST(HalfOperands, AScaleOfABoundLeavesRoom) {
  const auto exponent = [](float bound) {
    return half_scale_exponent(std::bit_cast<unsigned>(bound));
  };
  EXPECT_EQ(exponent(0), 0);
  EXPECT_EQ(exponent(1), 13);
  EXPECT_EQ(exponent(1.99f), 13);
  EXPECT_EQ(exponent(0x1p-120f), 126);
  EXPECT_EQ(exponent(0x1.fffffep127f), -114);
  for (const float bound : {0.3f, 1.0f, 77.7f, 1e30f}) {
    const float scale = std::ldexp(1.0f, exponent(bound));
    EXPECT_TRUE(std::isfinite(static_cast<float>(Float16(2 * bound * scale)))) << bound;
  }
}

// The problems have odd sizes, strides, a kernel of one tap, divided sums, and several phases of
// dx.
const char* const kProblems[] = {
    "n=2,c=20,h=9,w=8,k=17,r=3,s=3,pad=1",
    "n=1,c=72,h=6,w=7,k=24,r=3,s=3,stride=2,pad=1",
    "n=3,c=40,h=15,w=22,k=24",
    "n=1,c=300,h=5,w=4,k=130,r=3,s=3,pad=1",
};

Conv2dProblem tf32(const char* text) {
  Conv2dProblem z = Conv2dProblem::parse(text);
  z.math = MathMode::tf32;
  z.layout = ActivationLayout::nhwc;
  return z;
}

Operands operands_of(const Conv2dProblem& z, Direction direction) {
  return random_operands(z.operands(direction), testing::cuda());
}

std::vector<float> floats_of(const Tensor& tensor) {
  return testing::values_of<float>(tensor.to(Device{}));
}

TEST_F(HalfOperandsOnCuda, GivenOperandsHaveTheNumbersOfOwnOnes) {
  for (const char* text : kProblems) {
    const Conv2dProblem z = tf32(text);
    for (const Direction direction : kDirections) {
      Operands operands = operands_of(z, direction);
      run_algorithm(algorithm(), z, direction, operands);
      const std::vector<float> own = floats_of(operands.out[0].values);
      const int images = direction == Direction::backward_weight ? 2 : 1;
      // Passes fp16 operands for all images that the direction reads. For dw, also passes only the
      // operand of x or only that of dy, so that the algorithm has to make the other one.
      for (int given = 1; given < 1 << images; ++given) {
        Operands with = operands;
        std::vector<Tensor> blocks;
        for (std::size_t i = 0; i < 2; ++i) {
          if ((given >> i & 1) == 0) continue;
          const Tensor& image = operands.in[i].values;
          blocks.push_back(block_for(image.numel()));
          pack_half_operands_kernel.get(testing::cuda())(image, blocks.back().raw_data());
          with.fp16[i] = half_operands_in(blocks.back().raw_data());
          with.in[i].values = {};  // the image is not read
        }
        with.out[0].values.fill(kNaN);
        run_algorithm(algorithm(), z, direction, with);
        const std::vector<float> from_half = floats_of(with.out[0].values);
        const std::string what = cat(z.text(), ", ", name_of(direction), ", given ", given);
        // If the caller passes no fp16 operands, the algorithm may read f32, where that is faster.
        // It then rounds numbers to as many bits as fp16 has, but does not scale them, and sums in
        // another order. With fp16 or with f32, an operand is off by at most 2^-12 of itself, and a
        // product by 2^-11.
        if (direction == Direction::backward_weight && z.r > 1) {
          EXPECT_TRUE(from_half == own) << what;
        } else {
          double difference = 0, size = 0;
          for (std::size_t j = 0; j < own.size(); ++j) {
            difference += (own[j] - from_half[j]) * (own[j] - from_half[j]);
            size += own[j] * own[j];
          }
          EXPECT_LT(std::sqrt(difference / size), 0x1p-10) << what;
        }
      }
    }
  }
}

// The images are so large that each thread finds the maximum of many elements; the largest element
// is the last. If the scale of x were used for dy, dy would become infinite.
TEST_F(HalfOperandsOnCuda, TwoLargeImagesHaveTheScalesOfEachAlone) {
  const Conv2dProblem z = tf32("n=1,c=8,h=450,w=450,k=8,r=1,s=2");
  Operands operands = operands_of(z, Direction::backward_weight);
  std::array<Tensor, 2> blocks;
  for (std::size_t i = 0; i < 2; ++i) {
    Tensor host = operands.in[i].values.to(Device{});
    host.data<float>()[host.numel() - 1] = i == 0 ? 1e4f : -1e9f;
    operands.in[i].values = host.to(testing::cuda());
    blocks[i] = block_for(host.numel());
    pack_half_operands_kernel.get(testing::cuda())(operands.in[i].values, blocks[i].raw_data());
  }
  EXPECT_EQ(unpacked(blocks[0], 1).scale, 1.0f);
  EXPECT_EQ(unpacked(blocks[1], 1).scale, 0x1p-16f);
  run_algorithm(algorithm(), z, Direction::backward_weight, operands);
  const std::vector<float> own = floats_of(operands.out[0].values);
  for (std::size_t i = 0; i < 2; ++i) operands.fp16[i] = half_operands_in(blocks[i].raw_data());
  run_algorithm(algorithm(), z, Direction::backward_weight, operands);
  EXPECT_TRUE(floats_of(operands.out[0].values) == own);
}

TEST_F(HalfOperandsOnCuda, AScaleOfALooseBoundGivesTheSameNumbers) {
  // Small integers: fp16 holds them with any scale.
  const Conv2dProblem z = tf32(kProblems[0]);
  Operands operands = operands_of(z, Direction::forward);
  for (std::size_t i = 0; i < 2; ++i) {
    Tensor host = operands.in[i].values.to(Device{});
    for (std::int64_t j = 0; j < host.numel(); ++j) {
      float& value = host.data<float>()[j];
      value = value == 0 ? 0.0f : std::round(2 * value);
    }
    operands.in[i].values = host.to(testing::cuda());
  }
  run_algorithm(algorithm(), z, Direction::forward, operands);
  const std::vector<float> own = floats_of(operands.out[0].values);
  const Tensor image = operands.in[0].values.to(Device{});
  for (const float scale : {0x1p-3f, 1.0f, 0x1p9f}) {
    Tensor block =
        Tensor::empty({static_cast<std::int64_t>(half_operands_bytes(image.numel()))}, DType::u8);
    const HalfOperands at = half_operands_in(block.raw_data());
    *const_cast<float*>(at.scale) = scale;
    for (std::int64_t i = 0; i < image.numel(); ++i) {
      static_cast<Float16*>(const_cast<void*>(at.fp16))[i] =
          Float16(image.data<float>()[i] * scale);
    }
    block = block.to(testing::cuda());
    operands.fp16[0] = half_operands_in(block.raw_data());
    run_algorithm(algorithm(), z, Direction::forward, operands);
    EXPECT_TRUE(floats_of(operands.out[0].values) == own) << scale;
  }
}

TEST_F(HalfOperandsOnCuda, ScalesBeyondTheRangeOfOneFactorComeBack) {
  // If the operands have the magnitudes 2^-100 and 2^90, each scale is finite, and so is the
  // product of the scales, 2^(13+100) 2^(13-90). For 2^-100 and 2^-20 this product overflows.
  for (const float size : {0x1p90f, 0x1p-20f}) {
    const Conv2dProblem z = tf32("n=1,c=8,h=4,w=4,k=8");
    Operands operands = operands_of(z, Direction::forward);
    operands.in[0].values.fill(0x1p-100f);
    operands.in[1].values.fill(size);
    run_algorithm(algorithm(), z, Direction::forward, operands);
    for (const float y : floats_of(operands.out[0].values)) EXPECT_EQ(y, 8 * 0x1p-100f * size);
  }
}

void check_epilogue(const Conv2dAlgorithm& one, const Conv2dProblem& z) {
  Operands operands = operands_of(z, Direction::forward);
  const auto run = [&](const Tensor& b, const Conv2dEpilogue& epilogue) {
    operands.in[2] = b.defined() ? Operand(b) : Operand();
    operands.epilogue = epilogue;
    operands.out[0].values.fill(kNaN);
    run_algorithm(one, z, Direction::forward, operands);
    return floats_of(operands.out[0].values);
  };
  std::vector<float> numbers(static_cast<std::size_t>(z.k));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 2.5f;
  const Tensor b = tensor_of(numbers);
  const Tensor residual = operands_of(z, Direction::backward_data).in[0].values;  // laid out as y
  ASSERT_EQ(residual.numel(), operands.out[0].values.numel());
  const std::vector<float> sums = run({}, {}), added = floats_of(residual), bias = floats_of(b);
  const auto lanes = static_cast<std::size_t>(stored_shape(z.y_shape(), z.layout)[4]);
  for (int parts = 0; parts < 8; ++parts) {
    const bool with_b = (parts & 1) != 0, add = (parts & 2) != 0, relu = (parts & 4) != 0;
    std::vector<float> expected = sums;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (with_b && i % lanes < bias.size()) expected[i] += bias[i % lanes];
      if (add) expected[i] += added[i];
      if (relu && expected[i] < 0) expected[i] = 0;
    }
    EXPECT_TRUE(run(with_b ? b : Tensor(),
                    {.residual = add ? residual.raw_data() : nullptr, .relu = relu}) == expected)
        << one.name << ", " << z.text() << (with_b ? ", bias" : "") << (add ? ", residual" : "")
        << (relu ? ", relu" : "");
  }
}

// For all algorithms that take such images.
TEST_F(HalfOperandsOnCuda, AFusedEpilogueHasTheNumbersOfSeparateSteps) {
  std::vector<std::string> texts(std::begin(kProblems), std::end(kProblems));
  texts.push_back("n=2,c=32,h=7,w=6,k=48,r=3,s=3,pad=1,groups=2");
  int runs = 0;
  for (const char* name : {"implicit_gemm", "implicit_gemm_tma"}) {
    for (const std::string& text : texts) {
      for (const MathMode math : {MathMode::tf32, MathMode::f32}) {
        Conv2dProblem z = tf32(text.c_str());
        z.math = math;
        const Conv2dAlgorithm& one = conv2d_algorithms(DeviceType::cuda).get(name);
        if (!support_of(one, z, Direction::forward).yes) continue;
        ++runs;
        check_epilogue(one, z);
      }
    }
  }
  EXPECT_EQ(runs, 14);  // 5 problems in both modes; 4 in tf32
}

}  // namespace
}  // namespace convscope
