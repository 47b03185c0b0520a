// SPDX-License-Identifier: Apache-2.0
// few_channel_conv_cuda_test.cpp: tests the kernel that fuses convolution, activation and pooling.
// Compares it with the single operations in double, forward and backward, for all sizes that it
// accepts.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "layers/conv2d/conv2d.h"
#include "layers/conv2d/shared/few_channel_conv.h"
#include "layers/pool2d/pool2d.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::leaf;
using FewChannelConvOnCuda = testing::CudaTest;

constexpr auto kRelu = FewChannelActivation::relu;
constexpr Pool2dWindow kWindow{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};

struct StageSpec {
  int c, h, w, k, r;
  Padding2d padding = {};
  FewChannelActivation activation = kRelu;
  bool max_pool = true;
};

FewChannelStage stage_of(const StageSpec& z) {
  return {.c = z.c,
          .h = z.h,
          .w = z.w,
          .k = z.k,
          .r = z.r,
          .pad_top = static_cast<int>(z.padding.top),
          .pad_left = static_cast<int>(z.padding.left),
          .p = static_cast<int>(z.h + z.padding.top + z.padding.bottom) - z.r + 1,
          .q = static_cast<int>(z.w + z.padding.left + z.padding.right) - z.r + 1,
          .activation = z.activation,
          .max_pool = z.max_pool};
}

// Returns both stages of a LeNet.
std::vector<StageSpec> lenet(int c, int size, int r, FewChannelActivation activation = kRelu,
                             bool max_pool = true) {
  const int half = (size - r + 1) / 2;
  return {{c, size, size, 6, r, {}, activation, max_pool},
          {6, half, half, 16, r, {}, activation, max_pool}};
}

Tensor integers(const Shape& shape, std::uint64_t seed) {
  Tensor out = testing::uniform(shape, -3.49f, 3.49f, DType::f32, seed);
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = std::round(out.data<float>()[i]);
  }
  return out;
}

// All inputs and outputs of the chain, on the device.
struct Chain {
  Chain(const std::vector<StageSpec>& stages, std::int64_t batch, bool whole_numbers,
        bool input_too, DType half = DType::f32)
      : sizes(stages), wants_dx(input_too), operand_type(half) {
    const auto fill = [&](const Shape& shape, double scale) {
      ++seed;
      if (whole_numbers) return integers(shape, seed);
      Tensor out = testing::normal(shape, DType::f32, seed);
      for (std::int64_t i = 0; i < out.numel(); ++i) {
        out.data<float>()[i] *= static_cast<float>(scale);
      }
      return out;
    };
    const auto& first = sizes.front();
    x = fill({batch, first.c, first.h, first.w}, 1);
    for (const StageSpec& z : sizes) {
      w.push_back(fill({z.k, z.c, z.r, z.r}, 1 / std::sqrt(z.c * z.r * z.r)));
      b.push_back(fill({z.k}, 0.1));
      const FewChannelStage stage = stage_of(z);
      y.push_back(Shape{batch, z.k, stage.out_h(), stage.out_w()});
    }
    dy = fill(y.back(), 1);
  }

  // Returns y, dw and db of each stage, and dx. All outputs contain NaN before the kernels run.
  std::vector<Tensor> on_device() const {
    const auto poisoned = [](const Shape& shape) { return Tensor::full(shape, NAN).to(cuda()); };
    FewChannelForward forward;
    FewChannelBackward backward;
    const int stages = static_cast<int>(sizes.size());
    forward.stages = backward.stages = stages;
    forward.batch = backward.batch = x.dim(0);
    forward.operand_type = backward.operand_type = operand_type;
    std::vector<Tensor> held{x.to(cuda()), dy.to(cuda())}, ys, gradients;
    forward.x = backward.x = held[0].data<float>();
    backward.dy = held[1].data<float>();
    for (int i = 0; i < stages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      forward.stage[i] = backward.stage[i] = stage_of(sizes[at]);
      held.push_back(w[at].to(cuda()));
      forward.w[i] = backward.w[i] = held.back().data<float>();
      held.push_back(b[at].to(cuda()));
      forward.b[i] = held.back().data<float>();
      ys.push_back(poisoned(y[at]));
      forward.y[i] = ys.back().data<float>();
      backward.y[i] = ys.back().data<float>();
      held.push_back(Tensor::full(y[at], 255, DType::u8).to(cuda()));
      forward.passes[i] = held.back().data<std::uint8_t>();
      backward.passes[i] = forward.passes[i];
      gradients.push_back(poisoned(w[at].shape()));
      backward.dw[i] = gradients.back().data<float>();
      gradients.push_back(poisoned(b[at].shape()));
      backward.db[i] = gradients.back().data<float>();
    }
    if (wants_dx) {
      gradients.push_back(poisoned(x.shape()));
      backward.dx = gradients.back().data<float>();
    }
    held.push_back(poisoned({few_channel_chunks(backward.batch) *
                             few_channel_piece_floats(backward.stage, backward.stages)}));
    backward.sums = held.back().data<float>();
    EXPECT_STREQ(few_channel_refusal(forward.stage, stages, wants_dx), "");
    few_channel_forward_kernel.get(cuda())(forward);
    few_channel_backward_kernel.get(cuda())(backward);
    std::vector<Tensor> out;
    for (const Tensor& t : ys) out.push_back(t.to(Device{}));
    for (const Tensor& t : gradients) out.push_back(t.to(Device{}));
    return out;
  }

  // Computes the expected results stage by stage, by operations on the CPU in double. The operands
  // of products are rounded to their type; bias and accumulators are not.
  std::vector<Tensor> expected() const {
    struct Stage {
      Variable x, w, conv, before, y;
    };
    std::vector<Stage> stages;
    Tensor at = x;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Stage z;
      z.x = leaf(rounded(at));
      z.w = leaf(rounded(w[i]));
      z.conv = conv2d(z.x, z.w, Variable(b[i].to(DType::f64)), {.padding = sizes[i].padding});
      z.before = leaf(z.conv.value());
      z.y = z.before;
      if (sizes[i].activation == FewChannelActivation::relu) z.y = relu(z.y);
      if (sizes[i].activation == FewChannelActivation::tanh) z.y = tanh(z.y);
      if (sizes[i].max_pool) z.y = max_pool2d(z.y, kWindow);
      at = z.y.value();
      stages.push_back(std::move(z));
    }
    std::vector<Tensor> out, gradients;
    for (const Stage& z : stages) out.push_back(z.y.value());
    Tensor gradient = dy.to(DType::f64);
    for (std::size_t i = stages.size(); i-- > 0;) {
      const Stage& z = stages[i];
      z.y.backward(gradient);
      const Tensor g = z.before.grad();
      z.conv.backward(rounded(g));
      gradient = z.x.grad();
      gradients.insert(gradients.begin(), {z.w.grad(), sum(g, {0, 2, 3})});
    }
    out.insert(out.end(), gradients.begin(), gradients.end());
    if (wants_dx) out.push_back(gradient);
    return out;
  }
  Tensor rounded(const Tensor& from) const {
    return operand_type == DType::f32 ? from.to(DType::f64)
                                      : from.to(DType::f32).to(operand_type).to(DType::f64);
  }

  std::vector<StageSpec> sizes;
  bool wants_dx;
  DType operand_type;
  std::uint64_t seed = 0;
  Tensor x, dy;
  std::vector<Tensor> w, b;
  std::vector<Shape> y;
};

// y sums up to 784 products, scaled to a variance of about 1, and dw sums 64 x 576 products. The
// bound is the random-walk growth of rounding errors, sqrt(36864) eps / 2, relative to the largest
// element. If a rounding error made a pooling window select another pixel, the difference would be
// about 0.01.
constexpr double kBound = 4e-6;

void expect_equal(const Chain& chain, double bound) {
  const std::vector<Tensor> got = chain.on_device();
  const std::vector<Tensor> want = chain.expected();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    double largest = 0;
    for (std::int64_t j = 0; j < want[i].numel(); ++j) {
      largest = std::max(largest, std::abs(want[i].at(j)));
    }
    EXPECT_TRUE(testing::near(got[i], want[i], bound * largest, 0))
        << "tensor " << i << " of y, dw, db, dx; batch " << chain.x.dim(0);
  }
}

void expect_both(const std::vector<StageSpec>& sizes, std::int64_t batch, bool wants_dx = false) {
  expect_equal(Chain(sizes, batch, true, wants_dx), 0);
  expect_equal(Chain(sizes, batch, false, wants_dx), kBound);
}

TEST_F(FewChannelConvOnCuda, both_stages_of_a_lenet_match_for_every_kernel_size_and_batch) {
  for (const std::int64_t batch : {1, 3, 40}) expect_both(lenet(1, 28, 5), batch);
  for (const int r : {3, 5, 7}) expect_both(lenet(3, 32, r), 2);
}

TEST_F(FewChannelConvOnCuda, more_samples_than_blocks_are_summed_in_one_block_after_another) {
  expect_both(lenet(1, 12, 3), few_channel::kMaxBlocks + 7);
  expect_both(lenet(1, 12, 3), 3 * few_channel::kMaxBlocks + 1);
}

TEST_F(FewChannelConvOnCuda, a_stage_alone_gives_the_gradient_of_its_input) {
  expect_both({{5, 13, 10, 9, 5, {2, 0, 1, 2}}}, 5, true);
  expect_both({{4, 17, 12, 3, 7, {3, 3, 3, 3}, FewChannelActivation::none}}, 3, true);
  expect_both({{5, 9, 11, 7, 3, {1, 2, 0, 1}, kRelu, false}}, 3, true);
}

TEST_F(FewChannelConvOnCuda, sizes_that_divide_nothing_match) {
  expect_both({{2, 19, 15, 7, 3, {1, 1, 1, 1}}, {7, 9, 7, 5, 3, {1, 0, 2, 1}}}, 3);
  expect_both({{1, 7, 8, 1, 3}, {1, 2, 3, 1, 3, {2, 2, 2, 2}}}, 2);
}

TEST_F(FewChannelConvOnCuda, a_tanh_matches) {
  expect_equal(Chain(lenet(1, 28, 5, FewChannelActivation::tanh), 2, false, false), kBound);
}

// With another summation order, one operand of one product may round to the next fp16/bf16 number.
// In a sum of 25 to 2400 products this changes the result far less than an operand that is not
// rounded at all.
TEST_F(FewChannelConvOnCuda, operands_are_rounded_where_they_are_multiplied) {
  for (const DType half : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(name_of(half));
    const double bound = 2e-4;
    const auto expect = [&](const std::vector<StageSpec>& sizes, std::int64_t batch, bool dx) {
      expect_equal(Chain(sizes, batch, true, dx, half), 0);
      expect_equal(Chain(sizes, batch, false, dx, half), bound);
    };
    for (const std::int64_t batch : {1, 3, 40}) expect(lenet(1, 28, 5), batch, false);
    for (const int r : {3, 7}) expect(lenet(3, 32, r), 2, false);
    expect(lenet(1, 12, 3), few_channel::kMaxBlocks + 7, false);
    expect({{5, 13, 10, 9, 5, {2, 0, 1, 2}}}, 5, true);
    expect({{5, 9, 11, 7, 3, {1, 2, 0, 1}, kRelu, false}}, 3, true);
    expect_equal(Chain(lenet(1, 28, 5, FewChannelActivation::tanh), 2, false, false, half), bound);
  }
}

TEST_F(FewChannelConvOnCuda, two_runs_give_the_same_bits) {
  const Chain chain(lenet(1, 28, 5), 9, false, false);
  const auto one = chain.on_device();
  const auto two = chain.on_device();
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(testing::same_bits(one[i], two[i]));
}

// The following tests need no device.
TEST(FewChannelConv, refuses_with_a_sentence_what_does_not_fit) {
  const auto refusal = [](const StageSpec& z, bool wants_dx = false) {
    const FewChannelStage stage = stage_of(z);
    return std::string(few_channel_refusal(&stage, 1, wants_dx));
  };
  EXPECT_EQ(refusal({1, 28, 28, 6, 5}), "");
  EXPECT_NE(refusal({1, 28, 28, 6, 4}).find("3x3, 5x5 or 7x7"), std::string::npos);
  EXPECT_NE(refusal({3, 224, 224, 64, 7}).find("shared memory"), std::string::npos);
  EXPECT_NE(refusal({256, 8, 8, 256, 3}, true), "");
  EXPECT_NE(refusal({1, 28, 28, 6, 5, {5, 5, 5, 5}}).find("padding"), std::string::npos);
}

// Threads load only elements inside of the tile.
TEST(FewChannelConv, tiles_hold_all_that_threads_read) {
  for (const int r : {3, 5, 7}) {
    for (int size = r; size < 40; ++size) {
      for (int pad = 0; pad < r; ++pad) {
        const FewChannelStage z = stage_of({1, size, size, 1, r, {pad, pad, pad, pad}});
        if (z.out_h() < 1) continue;
        const auto x = few_channel::x_tile(z);
        const auto deal = few_channel::forward_deal(z, 1, few_channel::forward_tile_rows(z), 1);
        const int tiles_h = deal.tiles / deal.tiles_w;
        EXPECT_LE(tiles_h * few_channel::kTileRows + r - 1, x.rows);
        EXPECT_LE((deal.tiles_w - 1) * 4 + few_channel::row_floats(r), x.pitch);
        EXPECT_LE(z.w + pad, x.pitch);
        EXPECT_LE(z.h + pad, x.rows);
        EXPECT_EQ(x.pitch % 8, 4);
        const auto dy = few_channel::dy_tile(z, true);
        EXPECT_LE((dy.tiles_w - 1) * 4 + few_channel::row_floats(r), dy.pitch);
        EXPECT_LE(dy.left + round_up(z.used_q(), 4), dy.pitch);
        EXPECT_GE(dy.tiles_w * 4 - dy.shift, z.w);
        EXPECT_EQ(dy.left % 4, 0);
      }
    }
  }
}

}  // namespace
}  // namespace convscope
