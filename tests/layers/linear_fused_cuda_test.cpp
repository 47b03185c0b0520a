// SPDX-License-Identifier: Apache-2.0
// linear_fused_cuda_test.cpp: the linear kernels of a planned step on `device cuda`, against the
// operations one by one in double.
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/linear/linear_fused.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::near;
using testing::normal;
using LinearFusedOnCuda = testing::CudaTest;

struct Sizes {
  std::int64_t n, i, o;
};
// LeNet's layers, sizes around the tiles of 16 and the packs of 4, two that take the large tiles,
// two whose images are split, and an empty sum.
const Sizes kSizes[] = {{4, 400, 120}, {20, 120, 84}, {3, 84, 10},   {1, 1, 1},     {2, 5, 3},
                        {17, 33, 18},  {16, 16, 16},  {33, 420, 20}, {544, 8, 512}, {544, 512, 8},
                        {700, 17, 3},  {300, 40, 12}, {2, 0, 3}};

// The emulation would take a minute for these; a GPU takes them too.
const Sizes kSizesOfBatches[] = {{64, 400, 120}, {256, 120, 84}, {1024, 400, 120}, {1000, 84, 10}};

std::vector<Sizes> sizes() {
  std::vector<Sizes> out(std::begin(kSizes), std::end(kSizes));
  if (!testing::is_emulated()) {
    out.insert(out.end(), std::begin(kSizesOfBatches), std::end(kSizesOfBatches));
  }
  return out;
}

// A sum of k products of normal numbers is about sqrt(k); it passes k / 2 + 12 additions, each of
// which rounds by up to 2^-24. Six deviations of that random walk.
double bound_of(std::int64_t k) {
  const auto count = static_cast<double>(k);
  return 6 * 0x1p-24 * std::sqrt(count / 2 + 12) * std::sqrt(count) + 1e-7;
}

struct Layer {
  Tensor x, w, b, dy;
  explicit Layer(const Sizes& s)
      : x(normal({s.n, s.i}, DType::f32, 1)),
        w(normal({s.o, s.i}, DType::f32, 2)),
        b(normal({s.o}, DType::f32, 3)),
        dy(normal({s.n, s.o}, DType::f32, 4)) {}
};

TEST_F(LinearFusedOnCuda, ComputesTheLayerAndItsRelu) {
  const LinearForward& forward = linear_fused(cuda()).forward;
  for (const Sizes& s : sizes()) {
    const Layer l(s);
    for (int flags = 0; flags < 4; ++flags) {
      SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o, " flags ", flags));
      const bool bias = (flags & 1) != 0;
      const bool relu = (flags & 2) != 0;
      Variable y = linear(Variable(l.x.to(DType::f64)), Variable(l.w.to(DType::f64)),
                          bias ? Variable(l.b.to(DType::f64)) : Variable());
      if (relu) y = convscope::relu(y);
      testing::expect_like_cpu(
          [&](const std::vector<Tensor>& t) {
            if (t[0].device().type == DeviceType::cpu) {
              return std::vector<Tensor>{y.value().to(DType::f32)};
            }
            const Tensor out = Tensor::full({s.n, s.o}, -77.0, DType::f32, cuda());
            forward.run(
                {.x = t[0], .w = t[1], .b = bias ? t[2] : Tensor(), .relu = relu, .y = out});
            return std::vector<Tensor>{out};
          },
          {l.x, l.w, l.b}, {bound_of(s.i), 1e-7});
    }
  }
}

// dw, db, dx in double; g = dy where y > 0.
std::vector<Tensor> gradients(const Layer& l, const Tensor& y) {
  Tensor g = l.dy.to(DType::f64);
  if (y.defined()) g = elementwise(GradientOp::relu, y.to(DType::f64), g);
  return {matmul(g, l.x.to(DType::f64), Transpose::yes), sum(g, {0}),
          matmul(g, l.w.to(DType::f64))};
}

TEST_F(LinearFusedOnCuda, ComputesAllGradientsInOneCall) {
  const LinearBackward& backward = linear_fused(cuda()).backward;
  for (const Sizes& s : sizes()) {
    const Layer l(s);
    for (int flags = 0; flags < 16; ++flags) {
      const bool relu = (flags & 1) != 0;
      const bool accumulate = (flags & 2) != 0;
      const bool wants_dx = (flags & 4) != 0;
      const bool wants_db = (flags & 8) != 0;
      if (s.n * s.i * s.o > 100000 && flags != 13 && flags != 6) continue;  // a few of the large
      SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o, " flags ", flags));
      const Tensor y = relu ? normal({s.n, s.o}, DType::f32, 5) : Tensor();
      const std::vector<Tensor> exact = gradients(l, y);
      const Tensor start = Tensor::full({}, accumulate ? 0.5 : 0.0, DType::f64);
      std::vector<Tensor> first;
      for (int run = 0; run < 2; ++run) {
        const auto fresh = [&](const Tensor& like) {
          return Tensor::full(like.shape(), accumulate ? 0.5 : -77.0, DType::f32, cuda());
        };
        const LinearBackwardArgs args{.x = l.x.to(cuda()),
                                      .w = l.w.to(cuda()),
                                      .y = relu ? y.to(cuda()) : Tensor(),
                                      .dy = l.dy.to(cuda()),
                                      .dw = fresh(exact[0]),
                                      .db = wants_db ? fresh(exact[1]) : Tensor(),
                                      .dx = wants_dx ? fresh(exact[2]) : Tensor(),
                                      .accumulate_dw = accumulate,
                                      .accumulate_db = accumulate,
                                      .accumulate_dx = accumulate};
        backward.run(args);
        const std::vector<Tensor> got{args.dw, args.db, args.dx};
        const std::int64_t depth[] = {s.n, s.n, s.o};
        for (std::size_t k = 0; k < 3; ++k) {
          if (!got[k].defined()) continue;
          SCOPED_TRACE(cat("result ", k, " run ", run));
          const Tensor want = elementwise(BinaryOp::add, exact[k], start);
          EXPECT_TRUE(near(got[k].to(Device{}), want, bound_of(depth[k]), 1e-7));
          if (run == 1) {
            EXPECT_TRUE(testing::same_bits(got[k].to(Device{}), first[k].to(Device{})));
          }
        }
        first = got;
      }
    }
  }
}

TEST_F(LinearFusedOnCuda, LeavesTheWeightAloneWhenOnlyTheInputIsAskedFor) {
  const Layer l({5, 12, 8});
  const Tensor dx = Tensor::empty({5, 12}, DType::f32, cuda());
  linear_fused(cuda()).backward.run(
      {.x = l.x.to(cuda()), .w = l.w.to(cuda()), .dy = l.dy.to(cuda()), .dx = dx});
  EXPECT_TRUE(near(dx.to(Device{}), gradients(l, Tensor())[2], bound_of(8), 1e-7));
  const Tensor db = Tensor::empty({8}, DType::f32, cuda());
  linear_fused(cuda()).backward.run(
      {.x = l.x.to(cuda()), .w = l.w.to(cuda()), .dy = l.dy.to(cuda()), .db = db});
  EXPECT_TRUE(near(db.to(Device{}), gradients(l, Tensor())[1], bound_of(5), 1e-7));
}

TEST_F(LinearFusedOnCuda, ComputesTheLossItsGradientAndTheRightAnswers) {
  const LinearLoss& loss = linear_fused(cuda()).loss;
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{8, 84, 10}, Sizes{9, 84, 10}, Sizes{301, 7, 3},
                         Sizes{20, 120, 32}, Sizes{5, 13, 17}}) {
    SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o));
    ASSERT_TRUE(loss.supports({s.n, s.i}, {s.o, s.i}));
    const Layer l(s);
    std::vector<std::int32_t> values;
    for (std::int64_t n = 0; n < s.n; ++n) values.push_back(static_cast<std::int32_t>(n * 5 % s.o));
    const Tensor labels = Tensor::from<std::int32_t>(values, {s.n});
    const Variable logits(linear(Variable(l.x.to(DType::f64)), Variable(l.w.to(DType::f64)),
                                 Variable(l.b.to(DType::f64)))
                              .value(),
                          true);
    const Variable want = softmax_cross_entropy(logits, labels);
    want.backward();
    for (int run = 0; run < 2; ++run) {  // the second run finds the counter of blocks at 0 again
      const LinearLossArgs args{.x = l.x.to(cuda()),
                                .w = l.w.to(cuda()),
                                .b = l.b.to(cuda()),
                                .labels = labels.to(cuda()),
                                .dlogits = Tensor::full({s.n, s.o}, -77.0, DType::f32, cuda()),
                                .loss = Tensor::full({1}, -77.0, DType::f32, cuda()),
                                .correct = Tensor::full({1}, -77.0, DType::i32, cuda())};
      loss.run(args);
      // The logits are off by bound_of(i); the slopes of loss and softmax are at most 1.
      const double bound = bound_of(s.i) + 1e-6;
      EXPECT_NEAR(args.loss.item(), want.value().item(), bound);
      EXPECT_TRUE(near(args.dlogits.to(Device{}), logits.grad(), bound, 1e-6));
      EXPECT_EQ(args.correct.item(), static_cast<double>(count_correct(logits.value(), labels)));
    }
  }
}

TEST_F(LinearFusedOnCuda, LeavesOutRowsWithoutAValidLabel) {
  const Layer l({3, 4, 2});
  const Tensor labels = Tensor::from<std::int32_t>(std::vector<std::int32_t>{-1, 2, 1}, {3});
  const LinearLossArgs args{.x = l.x.to(cuda()),
                            .w = l.w.to(cuda()),
                            .b = Tensor(),
                            .labels = labels.to(cuda()),
                            .dlogits = Tensor::full({3, 2}, -77.0, DType::f32, cuda()),
                            .loss = Tensor::empty({1}, DType::f32, cuda()),
                            .correct = Tensor::empty({1}, DType::i32, cuda())};
  linear_fused(cuda()).loss.run(args);
  const std::vector<float> dlogits = testing::values_of<float>(args.dlogits);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(dlogits[i], 0.0f) << i;
  EXPECT_NE(dlogits[4], 0.0f);
  EXPECT_LE(args.correct.item(), 1.0);
  EXPECT_FALSE(linear_fused(cuda()).loss.supports({3, 4}, {33, 4}));
}

}  // namespace
}  // namespace convscope
