// SPDX-License-Identifier: Apache-2.0
// linear_tail_cuda_test.cpp: tests the kernel that computes the last linear layers together with
// the loss, and the kernel that computes the gradients of their weights. Compares both with the
// separate operations in double.
#include "framework/ops/gemm/matmul.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/layer_types.h"
#include "layers/linear/linear.h"
#include "layers/linear/linear_tail.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
#include "optim/update.h"
#include "tests/support/cuda_like_cpu.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::leaf;
using testing::near;
using testing::normal;
using LinearTailOnCuda = testing::CudaTest;

Tensor scaled(Tensor t, double factor) {
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] *= static_cast<float>(factor);
  return t;
}

// A case: the sizes of the layers and their operands. Weights are normal numbers divided by the
// root of the number of inputs, so values stay near 1.
struct Tail {
  std::int64_t n;
  std::vector<std::int64_t> sizes;
  DType operand_type = DType::f32;
  bool bias = true, relu = true, dx = true;
  double scale = 4;       // of the loss
  bool integers = false;  // x, w and b
  double offset = 0;      // of x and w
  bool heavy = false;     // every thirteenth x and w a hundred times as large
  bool copies = false;    // fp16/bf16 copies of w exist, and g is needed rounded, too

  std::size_t layers() const { return sizes.size() - 1; }
  Tensor x() const { return changed(normal({n, sizes[0]}, DType::f32, 1)); }
  Tensor w(std::size_t k) const {
    return changed(scaled(normal({sizes[k + 1], sizes[k]}, DType::f32, 10 + k),
                          1 / std::sqrt(static_cast<double>(sizes[k]))));
  }
  Tensor b(std::size_t k) const {
    const Tensor b = scaled(normal({sizes[k + 1]}, DType::f32, 20 + k), 0.3);
    return integers ? changed(b) : b;
  }
  Tensor changed(Tensor t) const {
    auto* const v = t.data<float>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
      if (integers) v[i] = static_cast<float>(i * 7 % 5 - 2);
      v[i] += static_cast<float>(offset);
      if (heavy && i % 13 == 5) v[i] *= 100;
    }
    return t;
  }
  // Returns |b| + sum |x| |w| for each output of the first layer.
  Tensor magnitudes() const {
    const auto absolute = [](Tensor t) {
      for (std::int64_t i = 0; i < t.numel(); ++i) {
        t.data<double>()[i] = std::abs(t.data<double>()[i]);
      }
      return t;
    };
    return linear(Variable(absolute(rounded(x()))), Variable(absolute(rounded(w(0)))),
                  Variable(absolute(b(0).to(DType::f64))))
        .value();
  }
  Tensor labels() const {  // every seventh is invalid
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < n; ++i) {
      out.push_back(i % 7 == 3 ? -1 : static_cast<std::int32_t>(i * 5 % sizes.back()));
    }
    return Tensor::from<std::int32_t>(out, {n});
  }
  Tensor rounded(const Tensor& from) const {
    return operand_type == DType::f32 ? from.to(DType::f64)
                                      : from.to(DType::f32).to(operand_type).to(DType::f64);
  }
};

// Returns the outputs h of all layers except the last, then g, dw and db of all layers, then dx,
// the loss, and the number of correct images.
std::vector<Tensor> expected(const Tail& t) {
  std::vector<Tensor> h, g(t.layers()), values{t.x()};
  for (std::size_t k = 0; k < t.layers(); ++k) {
    Tensor y = linear(Variable(t.rounded(values.back())), Variable(t.rounded(t.w(k))),
                      t.bias ? Variable(t.b(k).to(DType::f64)) : Variable())
                   .value();
    const bool last = k + 1 == t.layers();
    if (t.relu && !last) y = relu(Variable(y)).value();
    values.push_back(y);
    if (!last) h.push_back(t.rounded(y));
  }
  const Tensor logits = values.back(), p = softmax(logits), labels = t.labels();
  double loss = 0;
  std::int32_t correct = 0;
  Tensor slope = Tensor::zeros(p.shape(), DType::f64);
  const Tensor best = argmax(logits);
  for (std::int64_t i = 0; i < t.n; ++i) {
    const std::int32_t label = labels.data<std::int32_t>()[i];
    if (label < 0) continue;
    loss -= std::log(p.at(i * t.sizes.back() + label)) / static_cast<double>(t.n);
    correct += best.data<std::int32_t>()[i] == label ? 1 : 0;
    for (std::int64_t o = 0; o < t.sizes.back(); ++o) {
      const std::int64_t at = i * t.sizes.back() + o;
      slope.data<double>()[at] =
          t.scale * (p.at(at) - (o == label ? 1 : 0)) / static_cast<double>(t.n);
    }
  }
  std::vector<Tensor> dw(t.layers()), db(t.layers());
  Tensor dx;
  for (std::size_t k = t.layers(); k-- > 0;) {
    g[k] = slope;
    dw[k] = matmul(t.rounded(slope), t.rounded(values[k]), Transpose::yes);
    db[k] = sum(slope, {0});
    slope = matmul(t.rounded(slope), t.rounded(t.w(k)));
    if (k > 0 && t.relu) slope = elementwise(GradientOp::relu, values[k], slope);
    if (k == 0) dx = slope;
  }
  std::vector<Tensor> out = h;
  out.insert(out.end(), g.begin(), g.end());
  out.insert(out.end(), dw.begin(), dw.end());
  if (t.bias) out.insert(out.end(), db.begin(), db.end());
  if (t.dx) out.push_back(dx);
  out.push_back(Tensor::full({1}, loss, DType::f64));
  out.push_back(Tensor::full({1}, correct, DType::f64));
  return out;
}

std::vector<Tensor> on_device(const Tail& t, bool accumulate = false) {
  LinearTailArgs a;
  a.layers = static_cast<int>(t.layers());
  const auto fresh = [](const Shape& shape, double value = NAN) {
    return Tensor::full(shape, value, DType::f32, cuda());
  };
  std::vector<Tensor> h, g, dw, db, copies, g_half;
  a.x = t.x().to(cuda());
  if (t.dx) a.dx = fresh(a.x.shape());
  a.labels = t.labels().to(cuda());
  a.loss = fresh({1});
  a.correct = Tensor::full({1}, -77.0, DType::i32, cuda());
  a.operand_type = t.operand_type;
  const Tensor scale = Tensor::full({1}, t.scale, DType::f64, cuda());
  a.loss_scale = scale.data<double>();
  for (std::size_t k = 0; k < t.layers(); ++k) {
    LinearTailLayer& z = a.layer[k];
    const bool last = k + 1 == t.layers();
    z.w = t.w(k).to(cuda());
    if (t.bias) z.b = t.b(k).to(cuda());
    if (!last) h.push_back(z.h = fresh({t.n, t.sizes[k + 1]}));
    g.push_back(z.g = fresh({t.n, t.sizes[k + 1]}));
    if (t.copies) {
      copies.push_back(t.w(k).to(t.operand_type).to(cuda()));
      z.w_half = copies.back().raw_data();
      g_half.push_back(z.g_half = fresh(z.g.shape()));
    }
    z.relu = t.relu && !last;
    dw.push_back(z.dw = fresh(z.w.shape(), accumulate ? 0.5 : NAN));
    if (t.bias) db.push_back(z.db = fresh({t.sizes[k + 1]}, accumulate ? 0.5 : NAN));
    z.accumulate_dw = z.accumulate_db = accumulate;
  }
  linear_tail_rows_kernel.get(cuda())(a);
  linear_tail_weights_kernel.get(cuda())(a);
  std::vector<Tensor> out = h;
  for (const auto* list : {&g, &dw, &db}) out.insert(out.end(), list->begin(), list->end());
  if (t.dx) out.push_back(a.dx);
  out.push_back(a.loss);
  out.push_back(a.correct);
  out.insert(out.end(), g_half.begin(), g_half.end());
  for (Tensor& each : out) each = each.to(Device{}).to(DType::f64);
  return out;
}

// In f32, sums of up to 600 terms near 1 have an error of about 1e-6. In half precision, another
// summation order may round an operand to the next fp16/bf16 number, which changes the operand by
// one unit of the type.
double bound_of(DType operand_type) {
  return operand_type == DType::f32 ? 4e-6 : operand_type == DType::bf16 ? 2.5e-3 : 4e-4;
}

// Returns the relative error of values that are stored in `operand_type`: if the kernel sums in
// another order, the value may round to the next number of that type.
double unit_of(DType operand_type) {
  return operand_type == DType::f32 ? 0 : operand_type == DType::bf16 ? 0x1p-7 : 0x1p-10;
}

void expect_like_expected(const Tail& t) {
  SCOPED_TRACE(
      cat(t.n, " images of ", t.sizes[0], ", ", t.layers(), " layers, ", name_of(t.operand_type)));
  ASSERT_EQ(linear_tail_refusal(t.n, t.sizes), "");
  const std::vector<Tensor> want = expected(t), got = on_device(t), again = on_device(t);
  ASSERT_EQ(want.size(), got.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double unit = i + 1 < t.layers() ? unit_of(t.operand_type) : 0;  // h
    EXPECT_TRUE(near(got[i], want[i], bound_of(t.operand_type), unit)) << "tensor " << i;
    EXPECT_TRUE(testing::same_bits(got[i], again[i])) << "tensor " << i;
  }
}

// Cases: thread blocks of 1, 2, 4 and 8 images, each with a last block that is not full. In some
// cases several blocks share the sum of dw, because there are many images. In the last case an
// input has more elements than a block has threads.
TEST_F(LinearTailOnCuda, ComputesAllLayersAndTheirGradients) {
  expect_like_expected({5, {400, 120, 84, 10}});
  expect_like_expected({1, {144, 120, 84, 10}});
  expect_like_expected({133, {16, 12, 8, 3}});
  expect_like_expected({267, {20, 8, 4}});
  expect_like_expected({531, {12, 16, 8, 4, 32}});
  expect_like_expected({3, {1200, 24, 5}});
}

TEST_F(LinearTailOnCuda, LeavesOutWhatNobodyAsksFor) {
  expect_like_expected({9, {20, 12, 7}, DType::f32, /*bias=*/false});
  expect_like_expected({9, {20, 12, 7}, DType::f32, true, /*relu=*/false});
  expect_like_expected({9, {20, 12, 7}, DType::f32, true, true, /*dx=*/false});
}

TEST_F(LinearTailOnCuda, RoundsOperands) {
  for (const DType half : {DType::bf16, DType::f16}) {
    expect_like_expected({5, {400, 120, 84, 10}, half});
    expect_like_expected({133, {16, 12, 8, 3}, half});
    expect_like_expected({267, {20, 8, 4}, half});
    expect_like_expected({531, {12, 16, 4}, half});
  }
}

// With copies, the caller passes weights that already are fp16/bf16. The kernel need not round
// them, and the results must have the same bits as when it rounds f32 weights itself.
TEST_F(LinearTailOnCuda, MultipliesHalfPrecisionCopies) {
  const std::vector<Tail> cases{
      {5, {400, 120, 84, 10}}, {3, {1200, 24, 5}}, {133, {20, 52, 3}}, {530, {36, 268, 12}}};
  for (const DType half : {DType::bf16, DType::f16}) {
    for (Tail t : cases) {
      SCOPED_TRACE(cat(t.n, " images, ", name_of(half)));
      t.operand_type = half;
      const std::vector<Tensor> rounded_here = on_device(t);
      t.copies = true;
      const std::vector<Tensor> got = on_device(t);
      ASSERT_EQ(got.size(), rounded_here.size() + t.layers());
      for (std::size_t i = 0; i < rounded_here.size(); ++i) {
        EXPECT_TRUE(testing::same_bits(got[i], rounded_here[i])) << "tensor " << i;
      }
      for (std::size_t k = 0; k < t.layers(); ++k) {  // g comes after h
        EXPECT_TRUE(
            testing::same_bits(got[rounded_here.size() + k], t.rounded(got[t.layers() - 1 + k])))
            << "g of layer " << k;
      }
    }
  }
}

// The kernel multiplies fp16/bf16 operands on tensor cores, with four or eight images per block, if
// the weights fit into shared memory. Cases: row counts and K dimensions that end within a tile, at
// its end, and after it; no bias, no ReLU, no dx; weights that do not fit.
TEST_F(LinearTailOnCuda, MultipliesHalfPrecisionInTiles) {
  std::size_t turn = 0;
  for (const DType half : {DType::bf16, DType::f16}) {
    for (const Tail& t :
         {Tail{265, {16, 16, 16}, half}, Tail{530, {4, 4, 1}, half}, Tail{267, {36, 268, 12}, half},
          Tail{265, {20, 36, 20, 17}, half}, Tail{530, {40, 12, 32}, half, /*bias=*/false},
          Tail{531, {20, 12, 7}, half, true, /*relu=*/false},
          Tail{266, {20, 12, 7}, half, true, true, /*dx=*/false}, Tail{265, {1200, 96, 5}, half}}) {
      if (testing::takes_entry(turn++)) expect_like_expected(t);
    }
  }
}

// Operands are small integers, so the outputs of the hidden layer are exact and must have the same
// bits as the expected ones.
TEST_F(LinearTailOnCuda, HasTheHiddenValuesOfIntegersExactly) {
  for (const DType half : {DType::bf16, DType::f16}) {
    for (const std::int64_t images : {7, 270, 532}) {
      Tail t{images, {52, 36, 9}, half};
      t.integers = true;
      const std::vector<Tensor> want = expected(t), got = on_device(t);
      EXPECT_TRUE(testing::same_bits(got[0], want[0])) << images << " images";
    }
  }
}

// Cases: all values far from zero, or a few values much larger than the others. The bound is
// proportional to the sum over magnitudes.
TEST_F(LinearTailOnCuda, KeepsItsBoundOnOffsetsAndHeavyTails) {
  for (const bool offset : {true, false}) {
    for (const DType operand_type : {DType::f32, DType::bf16, DType::f16}) {
      Tail t{266, {120, 84, 10}, operand_type};
      t.offset = offset ? 8 : 0;
      t.heavy = !offset;
      const std::vector<Tensor> want = expected(t), got = on_device(t);
      const Tensor magnitudes = t.magnitudes();
      for (std::int64_t i = 0; i < got[0].numel(); ++i) {
        // Each value is a sum of 120 exact products, added in any order. The bound also covers
        // tensor cores, which truncate sums instead of rounding them.
        const double bound =
            16 * 6e-8 * magnitudes.at(i) + unit_of(operand_type) * std::abs(want[0].at(i));
        ASSERT_NEAR(got[0].at(i), want[0].at(i), bound)
            << "value " << i << " " << name_of(operand_type);
      }
    }
  }
}

TEST_F(LinearTailOnCuda, AddsToGradientsThatAreThere) {
  const Tail t{5, {20, 12, 7}};
  const std::vector<Tensor> once = on_device(t), more = on_device(t, /*accumulate=*/true);
  for (std::size_t i = 3; i < 7; ++i) {  // dw and db of both layers
    for (std::int64_t j = 0; j < once[i].numel(); ++j) {
      EXPECT_NEAR(more[i].at(j), once[i].at(j) + 0.5, 1e-6);
    }
  }
}

// The kernel stores a half-precision copy of each updated weight. After the call the copy must
// equal the weight, whether the update gate was open or closed.
TEST_F(LinearTailOnCuda, LeavesCopiesOfTheWeights) {
  const Tail t{5, {20, 12, 7}};
  for (const bool open : {true, false}) {
    for (const DType half : {DType::bf16, DType::f16}) {
      LinearTailArgs a;
      a.layers = 2;
      a.x = t.x().to(cuda());
      const Variable any(t.w(0), true);
      any.state()->grad = t.w(0);
      any.state()->grad_is_zero = false;
      const auto sgd = make_optimizer("sgd", {{.parameters = {{"any", any}}}}, {{"momentum", 0.0}});
      UpdateTable table(sgd->groups());
      sgd->list_step(0.5, /*counts=*/false, table);
      UpdateScalars numbers = table.rows()[0].scalars;
      const Tensor scalars = Tensor::borrow(&numbers, {sizeof numbers}, DType::u8).to(cuda());
      const Tensor loss = Tensor::full({1}, open ? 1.0 : NAN, DType::f32, cuda());
      JoinedUpdate update;
      update.rule = table.rule();
      update.gate.loss = loss.data<float>();
      std::vector<Tensor> copies;
      for (std::size_t k = 0; k < 2; ++k) {
        LinearTailLayer& z = a.layer[k];
        z.w = t.w(k).to(cuda());
        z.g = normal({5, t.sizes[k + 1]}, DType::f32, 40 + k).to(cuda());
        if (k == 0) z.h = normal({5, 12}, DType::f32, 50).to(cuda());
        z.dw = Tensor::full(z.w.shape(), NAN, DType::f32, cuda());
        const bool as_floats = k == 1;
        copies.push_back(Tensor::zeros(z.w.shape(), as_floats ? DType::f32 : half, cuda()));
        JoinedRow row;
        row.dw = z.dw.raw_data();
        row.w = z.w.data<float>();
        row.scalars = static_cast<const UpdateScalars*>(scalars.raw_data());
        row.copy = {.to = copies[k].raw_data(), .operand_type = half, .as_floats = as_floats};
        update.rows.push_back(row);
      }
      a.update = &update;
      linear_tail_weights_kernel.get(cuda())(a);
      for (std::size_t k = 0; k < 2; ++k) {
        const Tensor w = a.layer[k].w.to(Device{});
        EXPECT_EQ(testing::same_bits(w, t.w(k)), !open);
        EXPECT_TRUE(
            testing::same_bits(copies[k].to(Device{}).to(DType::f64), w.to(half).to(DType::f64)))
            << "layer " << k << " " << name_of(half) << (open ? "" : ", closed");
      }
    }
  }
}

TEST(LinearTail, RefusesWhatDoesNotFit) {
  const auto refuses = [](std::int64_t n, const std::vector<std::int64_t>& sizes) {
    return !linear_tail_refusal(n, sizes).empty();
  };
  EXPECT_FALSE(refuses(64, {400, 120, 84, 10}));
  EXPECT_TRUE(refuses(0, {400, 120, 84, 10}));
  EXPECT_TRUE(refuses(64, {400, 10}));
  EXPECT_TRUE(refuses(64, {402, 120, 10}));
  EXPECT_TRUE(refuses(64, {400, 120, 33}));
  EXPECT_TRUE(refuses(64, {1024, 256, 10}));
  EXPECT_TRUE(refuses(64, {16, 1000, 10}));
}

// The kernel is the last part of a compiled step. The layers before it need its dx. The step is
// compared with the dynamic graph.
TEST_F(LinearTailOnCuda, StandsAtTheEndOfAPlan) {
  const Shape input{9, 3, 4, 4};
  const auto network = [&](ComputePrecision precision, Device device) {
    LayerContext context;
    context.seed = 3;
    context.precision = precision;
    context.device = device;
    const auto linear = [](const char* name, std::int64_t out) {
      Options options;
      options.set("out_features", out);
      return LayerSpec{.type = "linear", .name = name, .options = options};
    };
    const auto plain = [](const char* type, const char* name) {
      return LayerSpec{.type = type, .name = name, .options = {}};
    };
    auto model =
        build_layers({plain("batch_norm2d", "b1"), plain("flatten", "flat"), linear("f1", 32),
                      plain("relu", "r1"), linear("f2", 20), plain("relu", "r2"), linear("f3", 10)},
                     input, context);
    return model;
  };
  const auto planned = network(ComputePrecision::f32, cuda());
  const auto dynamic = network(ComputePrecision::f32, Device{});
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("in one launch: f1 linear + relu; f2 linear + relu; f3 linear + "
                              "softmax_cross_entropy; sums in another order"),
            std::string::npos)
      << plan->text();
  const Tensor x = normal(input, DType::f32, 4);
  std::vector<std::int32_t> values;
  for (std::int32_t n = 0; n < 9; ++n) values.push_back(n * 3 % 10);
  const Tensor labels = Tensor::from<std::int32_t>(values, {9});
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels);
  loss.backward();
  for (int run = 0; run < 2; ++run) {
    EXPECT_NEAR(plan->forward(x.to(cuda()), labels.to(cuda())), loss.value().item(), 1e-5);
    plan->backward();
    for (std::size_t i = 0; i < planned->parameters().size(); ++i) {
      const Variable got = planned->parameters()[i].variable;
      const Variable want = dynamic->parameters()[i].variable;
      EXPECT_TRUE(near(got.grad().to(Device{}), want.grad(), 4e-6, 0))
          << planned->parameters()[i].name;
    }
  }
}

}  // namespace
}  // namespace convscope
