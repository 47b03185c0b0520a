// SPDX-License-Identifier: Apache-2.0
// linear_fused_cuda_test.cpp: compares the linear kernels of a compiled step on `device cuda` with
// the separate operations in double.
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/layer_types.h"
#include "layers/linear/linear.h"
#include "layers/linear/linear_fused.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::near;
using testing::normal;
using LinearFusedOnCuda = testing::CudaTest;

struct LinearShape {
  std::int64_t n, i, o;
};
// The sizes are those of LeNet's layers, sizes near tiles of 16 and vectors of 4, and two layers
// with large tiles. For two more layers the kernel divides the images among blocks. The last layer
// has no inputs, so its sums are empty.
const LinearShape kSizes[] = {{4, 400, 120}, {20, 120, 84}, {3, 84, 10},  {1, 1, 1},
                              {2, 5, 3},     {17, 33, 18},  {16, 16, 16}, {33, 420, 20},
                              {544, 8, 512}, {544, 512, 8}, {700, 17, 3}, {300, 40, 12},
                              {2, 0, 3}};

// Only a GPU runs these sizes, because the emulation would need a minute.
const LinearShape kSizesOfBatches[] = {
    {64, 400, 120}, {256, 120, 84}, {1024, 400, 120}, {1000, 84, 10}};

std::vector<LinearShape> sizes() {
  std::vector<LinearShape> out(std::begin(kSizes), std::end(kSizes));
  if (!testing::is_emulated()) {
    out.insert(out.end(), std::begin(kSizesOfBatches), std::end(kSizesOfBatches));
  }
  return out;
}

// Returns a tensor rounded to the operands' type, in double.
Tensor rounded(const Tensor& from, DType operand_type) {
  return from.to(operand_type).to(DType::f64);
}

// A sum of k products of normal numbers has size sqrt(k) and passes k / 2 + 12 additions, each of
// which rounds by up to 2^-24. The bound is six standard deviations of this random walk.
double bound_of(std::int64_t k) {
  const auto count = static_cast<double>(k);
  return 6 * 0x1p-24 * std::sqrt(count / 2 + 12) * std::sqrt(count) + 1e-7;
}

const DType kOperandTypes[] = {DType::f32, DType::bf16, DType::f16};
Tensor bytes(std::size_t count) {
  return Tensor::empty({static_cast<std::int64_t>(count)}, DType::u8, cuda());
}

struct Layer {
  Tensor x, w, b, dy;
  explicit Layer(const LinearShape& s)
      : x(normal({s.n, s.i}, DType::f32, 1)),
        w(normal({s.o, s.i}, DType::f32, 2)),
        b(normal({s.o}, DType::f32, 3)),
        dy(normal({s.n, s.o}, DType::f32, 4)) {}
};

TEST_F(LinearFusedOnCuda, ComputesTheLayerAndItsRelu) {
  const LinearForward& forward = linear_fused(cuda()).forward;
  for (const LinearShape& s : sizes()) {
    const Layer l(s);
    for (int flags = 0; flags < 4 * 3; ++flags) {
      const bool bias = (flags & 1) != 0;
      const bool relu = (flags & 2) != 0;
      const DType operand_type = kOperandTypes[flags / 4];
      SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o, " flags ", flags, " ", name_of(operand_type)));
      Variable y =
          linear(Variable(rounded(l.x, operand_type)), Variable(rounded(l.w, operand_type)),
                 bias ? Variable(l.b.to(DType::f64)) : Variable());
      if (relu) y = convscope::relu(y);
      testing::expect_like_cpu(
          [&](const std::vector<Tensor>& t) {
            if (t[0].device().type == DeviceType::cpu) {
              return std::vector<Tensor>{y.value().to(DType::f32)};
            }
            const Tensor out = Tensor::full({s.n, s.o}, -77.0, DType::f32, cuda());
            const Tensor workspace =
                bytes(forward.workspace_bytes(l.x.shape(), l.w.shape(), operand_type));
            forward.run({.x = t[0],
                         .w = t[1],
                         .b = bias ? t[2] : Tensor(),
                         .relu = relu,
                         .y = out,
                         .workspace = workspace.raw_data(),
                         .operand_type = operand_type});
            return std::vector<Tensor>{out};
          },
          {l.x, l.w, l.b}, {bound_of(s.i), 1e-7});
    }
  }
}

// Returns dw, db and dx in double. The gradient g is dy where y > 0, else 0. db sums unrounded
// numbers.
std::vector<Tensor> gradients(const Layer& l, const Tensor& y, DType operand_type = DType::f32) {
  Tensor g = l.dy.to(DType::f64);
  if (y.defined()) g = elementwise(GradientOp::relu, y.to(DType::f64), g);
  const Tensor factor = rounded(g.to(DType::f32), operand_type);
  return {matmul(factor, rounded(l.x, operand_type), Transpose::yes), sum(g, {0}),
          matmul(factor, rounded(l.w, operand_type))};
}

TEST_F(LinearFusedOnCuda, ComputesAllGradientsInOneCall) {
  const LinearBackward& backward = linear_fused(cuda()).backward;
  for (const LinearShape& s : sizes()) {
    const Layer l(s);
    for (int flags = 0; flags < 16 * 3; ++flags) {
      const DType operand_type = kOperandTypes[flags / 16];
      const bool relu = (flags & 1) != 0;
      const bool accumulate = (flags & 2) != 0;
      const bool wants_dx = (flags & 4) != 0;
      const bool wants_db = (flags & 8) != 0;
      const int kind = flags % 16;
      if (s.n * s.i * s.o > 100000 && kind != 13 && kind != 6) continue;  // few large sizes
      SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o, " flags ", flags, " ", name_of(operand_type)));
      const Tensor y = relu ? normal({s.n, s.o}, DType::f32, 5) : Tensor();
      const std::vector<Tensor> exact = gradients(l, y, operand_type);
      const Tensor start = Tensor::full({}, accumulate ? 0.5 : 0.0, DType::f64);
      std::vector<Tensor> first;
      for (int run = 0; run < 2; ++run) {
        const auto fresh = [&](const Tensor& like) {
          return Tensor::full(like.shape(), accumulate ? 0.5 : -77.0, DType::f32, cuda());
        };
        const Tensor workspace =
            bytes(backward.workspace_bytes(l.x.shape(), l.w.shape(), operand_type));
        const LinearBackwardArgs args{.x = l.x.to(cuda()),
                                      .w = l.w.to(cuda()),
                                      .y = relu ? y.to(cuda()) : Tensor(),
                                      .dy = l.dy.to(cuda()),
                                      .dw = fresh(exact[0]),
                                      .db = wants_db ? fresh(exact[1]) : Tensor(),
                                      .dx = wants_dx ? fresh(exact[2]) : Tensor(),
                                      .accumulate_dw = accumulate,
                                      .accumulate_db = accumulate,
                                      .accumulate_dx = accumulate,
                                      .workspace = workspace.raw_data(),
                                      .operand_type = operand_type};
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
  for (const LinearShape& s :
       {LinearShape{1, 1, 1}, LinearShape{8, 84, 10}, LinearShape{9, 84, 10},
        LinearShape{301, 7, 3}, LinearShape{20, 120, 32}, LinearShape{5, 13, 17}}) {
    ASSERT_TRUE(loss.supports({s.n, s.i}, {s.o, s.i}));
    const Layer l(s);
    for (const DType operand_type : kOperandTypes) {
      SCOPED_TRACE(cat(s.n, "x", s.i, "x", s.o, " ", name_of(operand_type)));
      std::vector<std::int32_t> values;
      for (std::int64_t n = 0; n < s.n; ++n)
        values.push_back(static_cast<std::int32_t>(n * 5 % s.o));
      const Tensor labels = Tensor::from<std::int32_t>(values, {s.n});
      const Variable logits(
          linear(Variable(rounded(l.x, operand_type)), Variable(rounded(l.w, operand_type)),
                 Variable(l.b.to(DType::f64)))
              .value(),
          true);
      const Variable want = softmax_cross_entropy(logits, labels);
      want.backward();
      for (int run = 0; run < 2; ++run) {  // the second run finds the block counter reset to 0
        const LinearLossArgs args{.x = l.x.to(cuda()),
                                  .w = l.w.to(cuda()),
                                  .b = l.b.to(cuda()),
                                  .labels = labels.to(cuda()),
                                  .dlogits = Tensor::full({s.n, s.o}, -77.0, DType::f32, cuda()),
                                  .loss = Tensor::full({1}, -77.0, DType::f32, cuda()),
                                  .correct = Tensor::full({1}, -77.0, DType::i32, cuda()),
                                  .operand_type = operand_type};
        loss.run(args);
        // The error of a logit is at most bound_of(i). The slopes of loss and softmax are at most
        // 1, so they do not amplify it.
        const double bound = bound_of(s.i) + 1e-6;
        EXPECT_NEAR(args.loss.item(), want.value().item(), bound);
        EXPECT_TRUE(near(args.dlogits.to(Device{}), logits.grad(), bound, 1e-6));
        EXPECT_EQ(args.correct.item(), static_cast<double>(count_correct(logits.value(), labels)));
      }
    }
  }
}

// The layer has more products than the limit of the tiled kernels. So the operation converts the
// operands to fp16 or bf16 and calls cuBLAS. The operands are integers, so all bits must agree.
TEST_F(LinearFusedOnCuda, MakesHalfCopiesOfLargeLayers) {
  const LinearShape s{8, 4096,
                      3200};  // forward: more than 3 * 2^25; backward: more than 45 million
  if (testing::is_sanitized()) GTEST_SKIP() << "the emulation takes minutes under the sanitizers";
  const auto whole = [](Tensor t) {
    for (std::int64_t i = 0; i < t.numel(); ++i)
      t.data<float>()[i] = std::round(2 * t.data<float>()[i]);
    return t;
  };
  const Tensor x = whole(normal({s.n, s.i}, DType::f32, 1)),
               w = whole(normal({s.o, s.i}, DType::f32, 2));
  const Tensor dy = whole(normal({s.n, s.o}, DType::f32, 3));
  const LinearFused& fused = linear_fused(cuda());
  for (const DType operand_type : {DType::bf16, DType::f16}) {
    const std::size_t forward = fused.forward.workspace_bytes(x.shape(), w.shape(), operand_type);
    const std::size_t backward = fused.backward.workspace_bytes(x.shape(), w.shape(), operand_type);
    ASSERT_GT(forward, 0u);
    ASSERT_GT(backward, forward);
    const Tensor y = Tensor::full({s.n, s.o}, -77.0, DType::f32, cuda());
    fused.forward.run({.x = x.to(cuda()),
                       .w = w.to(cuda()),
                       .b = Tensor(),
                       .y = y,
                       .workspace = bytes(forward).raw_data(),
                       .operand_type = operand_type});
    EXPECT_TRUE(near(y.to(Device{}), matmul(x, w, Transpose::no, Transpose::yes), 0, 0));
    const LinearBackwardArgs args{.x = x.to(cuda()),
                                  .w = w.to(cuda()),
                                  .dy = dy.to(cuda()),
                                  .dw = Tensor::full({s.o, s.i}, -77.0, DType::f32, cuda()),
                                  .dx = Tensor::full({s.n, s.i}, -77.0, DType::f32, cuda()),
                                  .workspace = bytes(backward).raw_data(),
                                  .operand_type = operand_type};
    fused.backward.run(args);
    EXPECT_TRUE(near(args.dw.to(Device{}), matmul(dy, x, Transpose::yes), 0, 0));
    EXPECT_TRUE(near(args.dx.to(Device{}), matmul(dy, w), 0, 0));
  }
}

// Compares a compiled step with the dynamic graph, in which the operands are fp16/bf16 tensors.
TEST_F(LinearFusedOnCuda, PlansLayersOfHalfPrecision) {
  const Shape input{9, 3, 5, 4};
  for (const ComputePrecision precision : {ComputePrecision::bf16, ComputePrecision::f16}) {
    SCOPED_TRACE(name_of(precision));
    const auto network = [&] {
      LayerContext context;
      context.seed = 3;
      context.precision = precision;
      const auto linear = [](const char* name, std::int64_t out) {
        Options options;
        options.set("out_features", out);
        return LayerSpec{.type = "linear", .name = name, .options = options};
      };
      const auto plain = [](const char* type, const char* name) {
        return LayerSpec{.type = type, .name = name, .options = {}};
      };
      auto model = build_layers(
          {plain("flatten", "flat"), linear("f1", 33), plain("relu", "r1"), linear("f2", 10)},
          input, context);
      for (const NamedParameter& parameter : model->parameters()) {
        Variable variable = parameter.variable;
        variable.set_value(variable.value().to(cuda()));
      }
      return model;
    };
    const auto planned = network(), dynamic = network();
    std::string why;
    const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_EQ(plan->why_not_recordable(), "");
    EXPECT_NE(plan->text().find(cat("linear + relu; operands in ", name_of(precision))),
              std::string::npos)
        << plan->text();
    const Tensor x = normal(input, DType::f32, 4).to(cuda());
    std::vector<std::int32_t> values;
    for (std::int32_t n = 0; n < 9; ++n) values.push_back(n * 3 % 10);
    const Tensor labels = Tensor::from<std::int32_t>(values, {9}).to(cuda());
    const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels);
    loss.backward();
    // Compiled and dynamic steps sum in different orders, so the same value may round to two
    // different fp16/bf16 numbers. Then one operand of a later sum, whose terms are at most 1, is
    // off by one unit of the type.
    const double unit = precision == ComputePrecision::bf16 ? 0x1p-9 : 0x1p-12;
    EXPECT_NEAR(plan->forward(x, labels), loss.value().item(), 1e-5 + unit / 10);
    plan->backward();
    for (std::size_t i = 0; i < planned->parameters().size(); ++i) {
      const Variable got = planned->parameters()[i].variable;
      const Variable want = dynamic->parameters()[i].variable;
      EXPECT_TRUE(near(got.grad().to(Device{}), want.grad().to(Device{}), 1e-6 + unit / 10, 1e-6))
          << planned->parameters()[i].name;
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
