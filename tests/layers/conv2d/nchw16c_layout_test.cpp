// SPDX-License-Identifier: Apache-2.0
// nchw16c_layout_test.cpp: tests images in NCHW16c: the memory order, the algorithms that accept
// the layout, and the epilogue of a forward pass. algorithms_test.cpp checks the sums of these
// algorithms.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/numerics.h"

namespace convscope {
namespace {

constexpr ActivationLayout kNchw16c = ActivationLayout::nchw16c;
const Device kCpu{};

constexpr const char* kWinograd[] = {"winograd_f2x3", "winograd_f4x3", "winograd_f6x3"};

const Conv2dAlgorithm& algorithm(const char* name) {
  return conv2d_algorithms(DeviceType::cpu).get(name);
}

TEST(Nchw16cLayout, HoldsEachNumberAtItsPlaceAndZerosBehindTheLastChannel) {
  for (const std::int64_t channels : {1, 15, 16, 17, 40}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i8}) {
      const Shape shape{2, channels, 3, 5};
      const Tensor plain = Tensor::empty(shape, DType::f32);
      for (std::int64_t i = 0; i < plain.numel(); ++i) {
        plain.data<float>()[i] = static_cast<float>(1 + i % 100);
      }
      const Tensor images = plain.to(type);
      const Tensor stored = stored_images(images, kNchw16c);
      ASSERT_EQ(stored.shape(), (Shape{2, (channels + 15) / 16, 3, 5, 16}));
      for (std::int64_t i = 0; i < stored.numel(); ++i) {
        const std::int64_t pixel = i / 16 % 15, block = i / 240 % stored.shape()[1];
        const std::int64_t c = block * 16 + i % 16, n = i / 240 / stored.shape()[1];
        const double right = c < channels ? images.at((n * channels + c) * 15 + pixel) : 0;
        ASSERT_EQ(stored.at(i), right) << channels << " " << name_of(type) << " " << i;
      }
      EXPECT_TRUE(testing::same_bits(plain_images(stored, shape, kNchw16c), images));
      EXPECT_TRUE(has_clean_lanes(stored, shape, kNchw16c));
    }
  }
}

TEST(NhwcLayout, HoldsAllChannelsOfAPixelSideBySideAndZerosBehindTheLastOne) {
  constexpr ActivationLayout kLast = ActivationLayout::nhwc;
  for (const std::int64_t channels : {1, 7, 8, 9, 40}) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i8}) {
      const Shape shape{2, channels, 3, 5};
      const Tensor images = testing::normal(shape, DType::f32, 3).to(type);
      const Tensor stored = stored_images(images, kLast);
      const std::int64_t lanes = (channels + 7) / 8 * 8;
      ASSERT_EQ(stored.shape(), (Shape{2, 1, 3, 5, lanes}));
      for (std::int64_t i = 0; i < stored.numel(); ++i) {
        const std::int64_t c = i % lanes, pixel = i / lanes % 15, n = i / lanes / 15;
        const double right = c < channels ? images.at((n * channels + c) * 15 + pixel) : 0;
        ASSERT_EQ(stored.at(i), right) << channels << " " << name_of(type) << " " << i;
      }
      EXPECT_TRUE(testing::same_bits(plain_images(stored, shape, kLast), images));
      EXPECT_TRUE(has_clean_lanes(stored, shape, kLast));
    }
  }
}

TEST(NhwcLayout, IsTakenByTheAlgorithmsThatSaySoAlone) {
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=20,h=8,w=8,k=24,r=3,s=3,pad=1,layout=nhwc");
  for (const auto& [name, one] : conv2d_algorithms(DeviceType::cpu).entries()) {
    const Support answer = support_of(one, problem, Direction::forward);
    if (one.takes_nhwc) continue;
    EXPECT_FALSE(answer.yes) << name;
    EXPECT_EQ(answer.reason, "expects images [N,C,H,W], got layout nhwc") << name;
  }
}

TEST(Nchw16cLayout, NoticesALaneThatIsNotZero) {
  const Shape shape{1, 17, 2, 2};
  const Tensor stored = stored_images(testing::normal(shape, DType::f32, 1), kNchw16c);
  stored.data<float>()[(1 * 4 + 3) * 16 + 1] = 1e-30f;  // channel 17 of the last pixel
  EXPECT_FALSE(has_clean_lanes(stored, shape, kNchw16c));
  EXPECT_TRUE(has_clean_lanes(stored, {1, 18, 2, 2}, kNchw16c));
}

TEST(Nchw16cLayout, AnOperandIsTheSameNumbersInBothLayouts) {
  Conv2dProblem problem = Conv2dProblem::parse("n=2,c=19,h=5,w=4,k=33");
  const OperandSpec plain = problem.operands(Direction::forward).inputs[0];
  problem.layout = kNchw16c;
  const OperandSpec nchw16c = problem.operands(Direction::forward).inputs[0];
  const Operand x = random_operand(nchw16c, kCpu, 7);
  EXPECT_EQ(x.values.shape(), (Shape{2, 2, 5, 4, 16}));
  EXPECT_TRUE(testing::same_bits(real_numbers(x, nchw16c),
                                 real_numbers(random_operand(plain, kCpu, 7), plain)));
  EXPECT_EQ(problem.operands(Direction::forward).inputs[1].desc.layout,
            ActivationLayout::nchw);  // w
}

TEST(Nchw16cLayout, IsAPartOfTheProblemsText) {
  const Conv2dProblem problem = Conv2dProblem::parse("c=8,h=5,w=5,k=8,layout=nchw16c");
  EXPECT_EQ(problem.layout, kNchw16c);
  EXPECT_NE(problem.text().find(",layout=nchw16c"), std::string::npos);
  EXPECT_EQ(Conv2dProblem::parse(problem.text()), problem);
  EXPECT_EQ(Conv2dProblem::parse("h=5,w=5,layout=nchw").text().find("layout"), std::string::npos);
  EXPECT_ERROR(ErrorKind::kInvalid, "'layout' is nchw, nchw16c, nchw:nchw16c or nhwc, not 'chwn'",
               Conv2dProblem::parse("h=5,w=5,layout=chwn"));
}

TEST(Nchw16cLayout, IsTakenByTheAlgorithmsThatSaySoAndRefusedByTheOthers) {
  const Conv2dProblem problem =
      Conv2dProblem::parse("n=2,c=20,h=8,w=8,k=24,r=3,s=3,pad=1,layout=nchw16c");
  int takers = 0;
  for (const auto& [name, one] : conv2d_algorithms(DeviceType::cpu).entries()) {
    const Support answer = support_of(one, problem, Direction::forward);
    if (one.takes_nchw16c_layout) {
      ++takers;
      continue;
    }
    EXPECT_EQ(answer.reason, "expects images [N,C,H,W], got layout nchw16c") << name;
  }
  EXPECT_GE(takers, 5);
  EXPECT_TRUE(support_of(algorithm("direct_nchw16c"), problem, Direction::forward).yes);
  for (const char* const name : kWinograd) {
    for (const Direction direction : kDirections) {
      EXPECT_TRUE(support_of(algorithm(name), problem, direction).yes) << name;
    }
  }
  const Conv2dProblem groups =
      Conv2dProblem::parse("n=2,c=48,h=8,w=8,k=48,r=3,s=3,pad=1,groups=4,layout=nchw16c");
  const Conv2dProblem whole =
      Conv2dProblem::parse("n=2,c=64,h=8,w=8,k=32,r=3,s=3,pad=1,groups=2,layout=nchw16c");
  for (const char* const name :
       {"direct_nchw16c", "winograd_f2x3", "winograd_f4x3", "winograd_f6x3"}) {
    EXPECT_NE(support_of(algorithm(name), groups, Direction::forward)
                  .reason.find("groups of a multiple of 16 channels"),
              std::string::npos)
        << name;
    EXPECT_TRUE(support_of(algorithm(name), whole, Direction::forward).yes) << name;
  }
}

// Checks that a fused epilogue has the same bits as a separate pass: NaN stays NaN, -0 becomes 0,
// and lanes after the last channel stay 0.
void check_epilogue(const Conv2dAlgorithm& one, const Conv2dProblem& plain) {
  Conv2dProblem problem = plain;
  problem.layout = kNchw16c;
  const Tensor x = stored_images(testing::normal(plain.x_shape(), DType::f32, 1), kNchw16c);
  const Tensor w = testing::normal(plain.w_shape(), DType::f32, 2);
  const Tensor b = testing::normal({plain.k}, DType::f32, 3);
  const Tensor beside = testing::normal(plain.y_shape(), DType::f32, 4);
  beside.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const Tensor residual = stored_images(beside, kNchw16c);
  const auto run = [&](const Epilogue& behind) {
    const Tensor y = Tensor::empty(stored_shape(plain.y_shape(), kNchw16c));
    run_algorithm(one, problem, Direction::forward,
                  {.in = {x, w, b}, .out = {y}, .epilogue = behind});
    EXPECT_TRUE(behind.residual != nullptr || has_clean_lanes(y, plain.y_shape(), kNchw16c));
    return plain_images(y, plain.y_shape(), kNchw16c);
  };
  const Tensor sums = run({});
  for (const bool adds : {false, true}) {
    for (const float most : {0.0f, 0.5f, INFINITY}) {  // 0: no relu
      const bool relu = most > 0;
      const Tensor got =
          run({.residual = adds ? residual.raw_data() : nullptr, .relu = relu, .most = most});
      const Tensor right = sums.clone();
      for (std::int64_t i = 0; i < right.numel(); ++i) {
        float& value = right.data<float>()[i];
        if (adds) value += beside.data<float>()[i];
        if (relu) value = value <= 0.0f ? 0.0f : value > most ? most : value;
      }
      EXPECT_EQ(std::memcmp(got.raw_data(), right.raw_data(),
                            static_cast<std::size_t>(right.size_bytes())),
                0)
          << one.name << " " << plain.text() << " " << adds << " " << most << " "
          << name_of(current_isa());
    }
  }
}

TEST(Nchw16cLayout, BiasResidualAndReluGiveTheBitsOfTheSeparatePass) {
  const testing::MachineScope scope;
  int algorithms = 0;
  for (const char* text : {"n=2,c=20,h=7,w=9,k=21,r=3,s=3,pad=1", "n=1,c=16,h=6,w=15,k=40"}) {
    const Conv2dProblem plain = Conv2dProblem::parse(text);
    Conv2dProblem problem = plain;
    problem.layout = kNchw16c;
    for (const auto& [name, one] : conv2d_algorithms(DeviceType::cpu).entries()) {
      if (!support_of(one, problem, Direction::forward).yes) continue;
      ++algorithms;
      for (int i = 0; i < kIsaCount; ++i) {
        if (!supports_isa(static_cast<Isa>(i))) continue;
        set_isa(static_cast<Isa>(i));
        check_epilogue(one, plain);
      }
    }
  }
  EXPECT_GE(algorithms, 5);
}

// Only the places of pixels differ, not the computation.
TEST(Nchw16cLayout, WinogradGivesTheSameBitsInBothLayouts) {
  const char* const kTexts[] = {
      "n=2,c=20,h=7,w=9,k=21,r=3,s=3,pad=1",            // lanes, blocks and tiles that are cut
      "n=1,c=33,h=5,w=150,k=16,r=3,s=3,pad=2x0x1x3",    // strips of a part of a row
      "n=2,c=32,h=9,w=10,k=64,r=3,s=3,pad=1,groups=2",  // groups of whole blocks
      "n=1,c=16,h=1,w=1,k=16,r=3,s=3,pad=1",            // one pixel
      "n=1,c=17,h=2,w=3,k=5,r=3,s=3,pad=9x0x0x8",       // tiles that read nothing of x
      "n=2,c=20,h=7,w=9,k=130,r=3,s=3,pad=1",           // panels of output channels
      "n=5,c=8,h=24,w=24,k=8,r=3,s=3",                  // several blocks of strips
  };
  const testing::MachineScope scope;
  for (const char* text : kTexts) {
    const Conv2dProblem problem = Conv2dProblem::parse(text);
    testing::ConvolutionCase one(problem, testing::Tier::bounded);
    for (const char* const name : kWinograd) {
      for (const Direction direction : kDirections) {
        for (int i = 0; i < kIsaCount; ++i) {
          if (!supports_isa(static_cast<Isa>(i))) continue;
          set_isa(static_cast<Isa>(i));
          for (const int threads : {1, 2}) {
            set_num_threads(threads);
            std::vector<float> both;  // of NCHW images, then of NCHW16c ones
            ASSERT_EQ(one.check(algorithm(name), direction, &both), "");
            const std::size_t half = both.size() / 2;
            EXPECT_EQ(std::memcmp(both.data(), both.data() + half, half * sizeof(float)), 0)
                << name << " " << text << " " << name_of(direction) << " "
                << name_of(current_isa());
            EXPECT_GE(both.size(),
                      2 * static_cast<std::size_t>(testing::output_numel(problem, direction)));
          }
        }
      }
    }
  }
}

// In the transformed weights U the lanes after the last channel are 0. A NaN in x times such a 0
// would be NaN, yet these lanes of y must be 0.
TEST(Nchw16cLayout, WinogradKeepsLanesCleanBesideNaN) {
  const Conv2dProblem plain = Conv2dProblem::parse("n=1,c=20,h=6,w=6,k=21,r=3,s=3,pad=1");
  Conv2dProblem problem = plain;
  problem.layout = kNchw16c;
  const Tensor images = testing::normal(plain.x_shape(), DType::f32, 1);
  images.data<float>()[36] = std::numeric_limits<float>::quiet_NaN();
  images.data<float>()[72] = std::numeric_limits<float>::infinity();
  const Tensor x = stored_images(images, kNchw16c);
  const Tensor w = testing::normal(plain.w_shape(), DType::f32, 2);
  for (const char* const name : kWinograd) {
    const Tensor y = Tensor::empty(stored_shape(plain.y_shape(), kNchw16c));
    run_algorithm(algorithm(name), problem, Direction::forward, {.in = {x, w}, .out = {y}});
    EXPECT_TRUE(has_clean_lanes(y, plain.y_shape(), kNchw16c)) << name;
    EXPECT_TRUE(std::isnan(y.data<float>()[0])) << name;
  }
}

}  // namespace
}  // namespace convscope
