// SPDX-License-Identifier: Apache-2.0
// int8_chain_test.cpp: tests that a chain of convolutions on integers computes the same codes as
// the single layers, bit by bit: with each instruction set, with and without VNNI, with one and two
// threads.
#include "layers/conv2d/int8_chain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "layers/dispatch/run.h"
#include "tests/layers/conv2d/int8/int8_cases.h"
#include "tests/support/cases.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::MachineScope;
using testing::with_types;

struct Layer {
  Conv2dProblem problem;
  Tensor w;                       // i8
  std::vector<double> scales, b;  // of w
  double x_step = 1, y_step = 1;
  std::int32_t x_low = 0, x_high = 255, y_high = 255;
  Conv2dEpilogue epilogue;

  OperandViews views() const {
    OperandViews out;
    out.x = {.scales = &x_step, .low = x_low, .high = x_high};
    out.w = {.scales = scales.data(), .per_channel = true};
    out.y = {.scales = &y_step, .low = 0, .high = y_high};
    return out;
  }
};

class RandomChain {
 public:
  explicit RandomChain(std::uint64_t seed) : random_(seed) {
    const std::int64_t stages = number(1, 3);
    Conv2dProblem z;
    z.n = number(1, 5);
    z.c = number(1, 4);
    z.h = number(4, 40);
    z.w = number(4, 40);
    std::int32_t high = 255, low = number(0, 3) == 0 ? -128 : 0;
    double x_step = 0.02;
    for (std::int64_t i = 0; i < stages; ++i) {
      const bool last = i + 1 == stages;
      z.k = last ? number(1, 64) : number(1, 15);
      z.pad_top = number(0, 2);
      z.pad_bottom = number(0, 2);
      z.pad_left = number(0, 2);
      z.pad_right = number(0, 2);
      z.r = std::min(number(1, 7), z.h + z.pad_top + z.pad_bottom - 1);
      z.s = std::min(number(1, 7), z.w + z.pad_left + z.pad_right - 1);
      if (z.r < 1 || z.s < 1 || z.p() < 2 || z.q() < 2) break;
      layers_.push_back(layer(z, i == 0, low, high, x_step));
      high = layers_.back().y_high;
      x_step = layers_.back().y_step;
      low = 0;
      z.c = z.k;
      z.h = z.p() / 2;
      z.w = z.q() / 2;
    }
    const Conv2dProblem& first = layers_.front().problem;
    images_ = Tensor::zeros({first.n, first.c, first.h, first.w}, DType::f32);
    std::student_t_distribution<float> tails(2);
    for (std::int64_t i = 0; i < images_.numel(); ++i) {
      images_.data<float>()[i] = 0.5f + tails(random_);
    }
  }

  std::vector<Conv2dProblem> problems() const {
    std::vector<Conv2dProblem> out;
    for (const Layer& layer : layers_) out.push_back(layer.problem);
    return out;
  }
  Layer& front() { return layers_.front(); }
  bool falls_somewhere() const {
    return std::ranges::any_of(layers_.front().scales, [](double s) { return s < 0; });
  }

  // Runs each convolution as a single layer, then takes the largest code of each pooling window.
  Tensor one_by_one() const {
    const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("int8_direct");
    Tensor x = images_;
    for (const Layer& layer : layers_) {
      const Conv2dProblem& z = layer.problem;
      const Tensor y = Tensor::zeros(
          stored_shape({z.n, z.k, z.p(), z.q()}, ActivationLayout::nchw16c), DType::u8);
      const Scratch<Conv2dProblem> scratch(algorithm, z, Direction::forward, Device{});
      const OperandViews views = layer.views();
      algorithm.forward({z, x.raw_data(), layer.w.raw_data(), layer.b.data(), y.raw_data(),
                         scratch.workspace(), layer.epilogue,
                         scratch.prepare(layer.w.raw_data(), views), views});
      x = pooled(y, z);
    }
    return x;
  }

  Tensor in_a_chain() const {
    Int8Chain chain(problems());
    const Tensor prepared =
        Tensor::zeros({static_cast<std::int64_t>(chain.prepared_bytes())}, DType::u8);
    const Tensor workspace =
        Tensor::zeros({static_cast<std::int64_t>(chain.workspace_bytes())}, DType::u8);
    std::fill_n(workspace.data<std::uint8_t>(), workspace.numel(), std::uint8_t{0xa5});
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      chain.prepare(i,
                    {.problem = layer.problem,
                     .x = nullptr,
                     .w = layer.w.raw_data(),
                     .b = layer.b.data(),
                     .y = nullptr,
                     .workspace = nullptr,
                     .epilogue = layer.epilogue,
                     .views = layer.views()},
                    prepared.raw_data());
    }
    const Conv2dProblem& z = layers_.back().problem;
    const Tensor y = Tensor::zeros(
        stored_shape({z.n, z.k, z.p() / 2, z.q() / 2}, ActivationLayout::nchw16c), DType::u8);
    chain.run(images_.data<float>(), y.data<std::uint8_t>(), workspace.raw_data());
    return y;
  }

  // Compares two outputs without the lanes after the last channel, which are unspecified.
  std::string difference(const Tensor& a, const Tensor& b) const {
    const Conv2dProblem& z = layers_.back().problem;
    const std::int64_t pixels = (z.p() / 2) * (z.q() / 2), blocks = ceil_div(z.k, kChannelBlock);
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const std::int64_t block = i / (pixels * kChannelBlock) % blocks;
      if (block * kChannelBlock + i % kChannelBlock >= z.k) continue;
      const int left = a.data<std::uint8_t>()[i], right = b.data<std::uint8_t>()[i];
      if (left != right) return cat("byte ", i, ": ", left, " and ", right);
    }
    return "";
  }

 private:
  std::int64_t number(std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
  }

  Layer layer(const Conv2dProblem& z, bool first, std::int32_t low, std::int32_t high,
              double x_step) {
    Layer out;
    out.problem = with_types(z, first ? "f32:i8:i32:u8" : "u8:i8:i32:u8");
    out.w = Tensor::zeros({z.k, z.c, z.r, z.s}, DType::i8);
    for (std::int64_t i = 0; i < out.w.numel(); ++i) {
      out.w.data<std::int8_t>()[i] = static_cast<std::int8_t>(number(-128, 127));
    }
    const bool signs = number(0, 1) == 1;
    std::normal_distribution<double> normal;
    for (std::int64_t k = 0; k < z.k; ++k) {
      out.scales.push_back(0.01 * (0.2 + std::abs(normal(random_))) *
                           (signs && number(0, 1) == 1 ? -1 : 1));
      out.b.push_back(3 * normal(random_));
    }
    out.x_low = low;
    out.x_high = low < 0 ? 127 : high;
    out.x_step = x_step;
    out.y_high = number(0, 2) == 0 ? 15 : 255;
    out.y_step = 0.02 * std::sqrt(static_cast<double>(z.c * z.r * z.s));
    out.epilogue.relu = number(0, 1) == 1;
    if (number(0, 2) == 0) out.epilogue.most = static_cast<float>(100 * out.y_step);
    return out;
  }

  static Tensor pooled(const Tensor& y, const Conv2dProblem& z) {
    const std::int64_t p = z.p() / 2, q = z.q() / 2, blocks = ceil_div(z.k, kChannelBlock);
    const Tensor out =
        Tensor::zeros(stored_shape({z.n, z.k, p, q}, ActivationLayout::nchw16c), DType::u8);
    const auto* const from = y.data<std::uint8_t>();
    for (std::int64_t i = 0; i < z.n * blocks * p * q * kChannelBlock; ++i) {
      const std::int64_t lane = i % kChannelBlock, column = i / kChannelBlock % q;
      const std::int64_t row = i / kChannelBlock / q % p, plane = i / kChannelBlock / q / p;
      std::uint8_t most = 0;
      for (std::int64_t at = 0; at < 4; ++at) {
        const std::int64_t line = (plane * z.p() + 2 * row + at / 2) * z.q() + 2 * column + at % 2;
        most = std::max(most, from[line * kChannelBlock + lane]);
      }
      out.data<std::uint8_t>()[i] = most;
    }
    return out;
  }

  std::mt19937_64 random_;
  std::vector<Layer> layers_;
  Tensor images_;
};

class Int8ChainTest : public ::testing::Test {
 protected:
  ~Int8ChainTest() override { set_vnni(true); }

  // Runs f everywhere; returns how often it was called.
  template <class F>
  int everywhere(F&& f) {
    int calls = 0;
    for (int i = 0; i < kIsaCount; ++i) {
      const Isa isa = static_cast<Isa>(i);
      if (!supports_isa(isa)) continue;
      set_isa(isa);
      for (const bool vnni : {false, true}) {
        if (vnni && !supports_vnni(isa)) continue;
        set_vnni(vnni);
        for (const int threads : {1, 2}) {
          set_num_threads(threads);
          SCOPED_TRACE(cat(name_of(isa), vnni ? " with VNNI, " : ", ", threads, " threads"));
          f();
          ++calls;
          if (HasFailure()) return calls;
        }
      }
    }
    return calls;
  }

  MachineScope scope_;
};

TEST_F(Int8ChainTest, CodesAreThoseOfItsLayersOneByOne) {
  int chains = 0, falling = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomChain chain(seed);
    bool taken = true;
    for (std::size_t i = 0; i < chain.problems().size(); ++i) {
      taken = taken && Int8Chain::refusal(chain.problems()[i], i == 0).empty();
    }
    ASSERT_TRUE(taken);
    ++chains;
    falling += chain.falls_somewhere() ? 1 : 0;
    SCOPED_TRACE(cat("seed ", seed, ": ", chain.problems().front().text()));
    const Tensor right = chain.one_by_one();
    everywhere([&] { EXPECT_EQ(chain.difference(chain.in_a_chain(), right), ""); });
    if (HasFailure()) return;
  }
  EXPECT_EQ(chains, 60);
  EXPECT_GT(falling, 10);
}

TEST_F(Int8ChainTest, ABiasThatIsNoNumberGivesTheLowestCode) {
  RandomChain chain(4);
  chain.front().b[0] = std::numeric_limits<double>::quiet_NaN();
  const Tensor right = chain.one_by_one();
  everywhere([&] { EXPECT_EQ(chain.difference(chain.in_a_chain(), right), ""); });
}

TEST_F(Int8ChainTest, OtherConvolutionsAreRefused) {
  const auto why = [](const char* text, const char* types, bool first) {
    return Int8Chain::refusal(with_types(Conv2dProblem::parse(text), types), first);
  };
  const char* const lenet = "n=2,c=6,h=14,w=14,k=16,r=5,s=5";
  EXPECT_EQ(why(lenet, "u8:i8:i32:u8", false), "");
  EXPECT_EQ(why(lenet, "f32:i8:i32:u8", true), "");
  EXPECT_EQ(why(lenet, "u8:i8:i32:f32", false), "expects x of u8 and y of u8");
  EXPECT_EQ(why(lenet, "i8:i8:i32:u8", false), "expects x of u8 and y of u8");
  EXPECT_EQ(why(lenet, "u8:i8:i32:u8", true), "expects x of f32 and y of u8");
  EXPECT_EQ(why("n=2,c=6,h=14,w=14,k=16,r=5,s=5,stride=2", "u8:i8:i32:u8", false),
            "expects one group, stride 1 and dilation 1");
  EXPECT_EQ(why("n=2,c=16,h=14,w=14,k=16,r=5,s=5", "u8:i8:i32:u8", false),
            "expects fewer than 16 channels of x and at most 64 of y, got 16 and 16");
  EXPECT_EQ(why("n=2,c=6,h=5,w=9,k=16,r=5,s=5", "u8:i8:i32:u8", false),
            "expects a window of 2x2 pixels");
  EXPECT_EQ(why("n=8,c=3,h=224,w=224,k=6,r=3,s=3,pad=1", "f32:i8:i32:u8", true),
            "expects images of at most 16384 bytes, got 153228");
  set_num_threads(2);
  const char* const wide = "n=1,c=3,h=64,w=64,k=14,r=5,s=5";
  EXPECT_EQ(why(wide, "f32:i8:i32:u8", true), "expects an image for each of 2 threads, got 1");
  set_num_threads(1);
  EXPECT_EQ(why(wide, "f32:i8:i32:u8", true), "");
}

}  // namespace
}  // namespace convscope
