// SPDX-License-Identifier: Apache-2.0
// lsq_test.cpp: compares the LSQ operation with the formulas of the paper, with the public PyTorch
// variant and with finite differences.
#include "quant/lsq.h"

#include "framework/autograd/gradcheck.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace testing;

struct Result {
  Tensor y, dv, dstep;
};

Result run(const Tensor& v, const Tensor& step, const Tensor& dy, const LsqRule& rule) {
  const Variable input = leaf(v), s = leaf(step);
  const Variable y = lsq_quantize(input, s, rule);
  y.backward(dy);
  return {y.value(), input.grad(), s.grad()};
}

// The paper's equations 1 to 3, literally.
Result paper(const Tensor& v, const Tensor& step, const Tensor& dy, const LsqRule& rule) {
  Result out{Tensor::empty(v.shape(), DType::f64), Tensor::empty(v.shape(), DType::f64),
             Tensor::zeros(step.shape(), DType::f64)};
  const std::int64_t inner = v.numel() / step.numel();
  const double qn = rule.grid.qn, qp = rule.grid.qp;
  for (std::int64_t i = 0; i < v.numel(); ++i) {
    const double s = step.at(i / inner), u = v.at(i) / s;
    const double clipped = std::min(std::max(u, -qn), qp);
    out.y.data<double>()[i] = std::nearbyint(clipped) * s;
    out.dv.data<double>()[i] = u > -qn && u < qp ? dy.at(i) : 0;
    const double slope = u <= -qn ? -qn : u >= qp ? qp : -u + std::nearbyint(u);
    out.dstep.data<double>()[i / inner] += dy.at(i) * slope * rule.g;
  }
  return out;
}

const IntegerGrid kGrids[] = {{2, 1}, {8, 7}, {128, 127}, {0, 3}, {0, 15}, {0, 255}};

TEST(Lsq, FollowsThePaperInDoubleForEveryGrid) {
  for (const IntegerGrid& grid : kGrids) {
    SCOPED_TRACE(cat(grid.qn, " ", grid.qp));
    const Tensor v = normal({6, 50}), dy = normal({6, 50}, DType::f64, 2);
    for (const Tensor& step : {uniform({1}, 0.02f, 0.3f), uniform({6}, 0.02f, 0.3f)}) {
      const LsqRule rule{.grid = grid, .g = lsq_grad_scale(300, grid.qp)};
      const Result got = run(v, step, dy, rule), want = paper(v, step, dy, rule);
      EXPECT_TRUE(near(got.y, want.y, 0, 1e-15));
      EXPECT_TRUE(near(got.dv, want.dv, 0, 0));
      EXPECT_TRUE(near(got.dstep, want.dstep, 1e-13, 1e-13));
    }
  }
}

TEST(Lsq, InFloatFollowsThePaperOnEveryMachine) {
  // If the step size is a power of two, v / s is exact, so float and double choose the same codes.
  // Results differ only where the sum is rounded to float.
  const Tensor v = normal({7, 3001}, DType::f32), dy = normal({7, 3001}, DType::f32, 2);
  for (const IntegerGrid& grid : kGrids) {
    for (const Tensor& step :
         {Tensor::from({0.125f}, {1}),
          Tensor::from({0.5f, 0.25f, 0.125f, 0.0625f, 1.0f, 2.0f, 0.03125f}, {7})}) {
      const LsqRule rule{.grid = grid, .g = lsq_grad_scale(3001, grid.qp)};
      const Result want = paper(v, step, dy, rule);
      const auto check = [&](auto member, double relative) {
        on_every_machine([&] { return run(v, step, dy, rule).*member; },
                         [&](const Tensor& got) {
                           EXPECT_TRUE(near(got.to(DType::f64), want.*member, 1e-7, relative));
                         });
      };
      check(&Result::y, 0);
      check(&Result::dv, 0);
      check(&Result::dstep, 6e-8);
    }
  }
}

TEST(Lsq, GivesTheSameBitsOnEveryInstructionSet) {
  const MachineScope scope;
  // The tensor is so long that the kernel sums it in several parts, and that its length is not
  // a multiple of a vector. The step size is not a power of two.
  const Tensor v = normal({3, 20011}, DType::f32), dy = normal({3, 20011}, DType::f32, 2);
  for (const Tensor& step :
       {Tensor::from({0.07f}, {1}), Tensor::from({0.3f, 0.07f, 0.011f}, {3})}) {
    for (StepForm form : {StepForm::plain, StepForm::log}) {
      const LsqRule rule{.grid = {8, 7}, .form = form, .g = 0.01};
      set_isa(Isa::scalar);
      const Result want = run(v, step, dy, rule);
      on_every_machine([&] { return run(v, step, dy, rule).y; },
                       [&](const Tensor& got) { EXPECT_TRUE(same_bits(got, want.y)); });
      on_every_machine([&] { return run(v, step, dy, rule).dv; },
                       [&](const Tensor& got) { EXPECT_TRUE(same_bits(got, want.dv)); });
      on_every_machine([&] { return run(v, step, dy, rule).dstep; },
                       [&](const Tensor& got) { EXPECT_TRUE(same_bits(got, want.dstep)); });
    }
  }
}

// The expected numbers are from PyTorch 1.13 in double, with torch.manual_seed(0). x and dy are
// randn(2, 6) with three decimals:
//   def grad_scale(x, k): return (x - x * k).detach() + x * k
//   def round_pass(x): return (x.round() - x).detach() + x
//   s = grad_scale(s, 1 / (n * qp) ** 0.5)          # n = 12 / number of steps
//   y = round_pass(torch.clamp(x / s, -qn, qp)) * s
//   y.backward(dy)
TEST(Lsq, AgreesWithThePublicPyTorchForm) {
  const auto values = [](std::initializer_list<double> list, const Shape& shape) {
    return Tensor::from(std::span<const double>(list.begin(), list.size()), shape);
  };
  const Tensor x = values(
      {1.541, -0.293, -2.179, 0.568, -1.085, -1.399, 0.403, 0.838, -0.719, -0.403, -0.597, 0.182},
      {2, 6});
  const Tensor dy = values(
      {-0.857, 1.101, -1.071, 0.123, -0.566, 0.373, -0.892, -1.509, 0.37, 1.457, 0.94, 0.775},
      {2, 6});
  const Result tensor = run(x, values({0.3}, {1}), dy, {.grid = {4, 3}, .g = 1 / 6.0});
  EXPECT_TRUE(near(
      tensor.y, values({0.9, -0.3, -1.2, 0.6, -1.2, -1.2, 0.3, 0.9, -0.6, -0.3, -0.6, 0.3}, {2, 6}),
      1e-15, 1e-15));
  EXPECT_TRUE(near(
      tensor.dv,
      values({0, 1.101, 0, 0.123, -0.566, 0, -0.892, -1.509, 0.37, 1.457, 0.94, 0.775}, {2, 6}), 0,
      1e-14));
  EXPECT_TRUE(near(tensor.dstep, values({0.22703777777777817}, {1}), 0, 1e-14));

  const Result channel =
      run(x, values({0.6, 0.45}, {2}), dy, {.grid = {2, 1}, .g = lsq_grad_scale(6, 1)});
  EXPECT_TRUE(near(
      channel.y, values({0.6, 0, -1.2, 0.6, -1.2, -1.2, 0.45, 0.45, -0.9, -0.45, -0.45, 0}, {2, 6}),
      0, 1e-15));
  EXPECT_TRUE(
      near(channel.dstep, values({0.4865088073319681, -0.7795664405723647}, {2}), 0, 1e-14));

  const Result positive =
      run(x, values({0.11}, {1}), dy, {.grid = {0, 15}, .g = lsq_grad_scale(12, 15)});
  EXPECT_TRUE(near(positive.dv,
                   values({-0.857, 0, 0, 0.123, 0, 0, -0.892, -1.509, 0, 0, 0, 0.775}, {2, 6}), 0,
                   1e-15));
  EXPECT_TRUE(near(positive.dstep, values({-0.0462723776107525}, {1}), 0, 1e-13));
}

TEST(Lsq, HasTheGradientOfTheSurrogateInWhichRoundingIsAConstantShift) {
  // v_hat = s (clip(u) + c) with the constant c = round(u) - u is smooth away from the bounds. So
  // its finite differences are the gradients of the straight-through estimator.
  const Tensor v = Tensor::from(
      std::span<const double>(std::vector<double>{-0.71, -0.3, -0.12, 0.04, 0.16, 0.33, 0.61, 0.9}),
      {8});
  const double s0 = 0.1;
  const LsqRule rule{.grid = {4, 3}, .g = 1};
  const auto surrogate = [&](double value, double at, double s) {
    const double u0 = std::min(std::max(at / s0, -4.0), 3.0);
    const double u = std::min(std::max(value / s, -4.0), 3.0);
    return s * (u + (std::nearbyint(u0) - u0));
  };
  const Tensor dy = normal({8});
  const Result got = run(v, Tensor::full({1}, s0, DType::f64), dy, rule);
  const double h = 1e-6;
  double slope = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    const double x = v.at(i);
    const double dx = (surrogate(x + h, x, s0) - surrogate(x - h, x, s0)) / (2 * h);
    EXPECT_NEAR(got.dv.at(i), dx * dy.at(i), 1e-8);
    slope += dy.at(i) * (surrogate(x, x, s0 + h) - surrogate(x, x, s0 - h)) / (2 * h);
  }
  EXPECT_NEAR(got.dstep.at(0), slope, 1e-8);
}

TEST(Lsq, WhereEverythingIsClippedPassesGradcheckInBothForms) {
  const Tensor v = Tensor::from(std::span<const double>(std::vector<double>{-3, -2, 2.5, 4}), {4});
  for (StepForm form : {StepForm::plain, StepForm::log}) {
    const double step = form == StepForm::log ? std::log(0.2) : 0.2;
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& in) {
          return lsq_quantize(in[0], in[1], {.grid = {4, 3}, .form = form, .g = 1});
        },
        {leaf(v), leaf(Tensor::full({1}, step, DType::f64))});
    EXPECT_TRUE(result.ok) << result.str();
  }
}

TEST(Lsq, TheLogFormIsThePlainFormAtTheExponentialWithTheChainRule) {
  const Tensor v = normal({4, 30}), dy = normal({4, 30}, DType::f64, 2);
  const Tensor t = uniform({4}, -3, -1);
  Tensor s = t.clone();
  for (std::int64_t i = 0; i < 4; ++i) s.data<double>()[i] = std::exp(t.at(i));
  const LsqRule plain{.grid = {8, 7}, .g = 0.3};
  const LsqRule log{.grid = {8, 7}, .form = StepForm::log, .g = 0.3};
  const Result a = run(v, s, dy, plain), b = run(v, t, dy, log);
  EXPECT_TRUE(same_bits(a.y, b.y));
  EXPECT_TRUE(same_bits(a.dv, b.dv));
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(b.dstep.at(i), s.at(i) * a.dstep.at(i), 1e-15);
  }
}

// The values are repeated 43 times, so that they occur both in full vectors and in the remainder of
// each instruction set.
TEST(Lsq, RoundsHalfToEvenAndTakesTheBoundsAsOutside) {
  const std::vector<float> values = {-2.5f, -1.5f, -0.5f, 0.5f, 1.5f, 2.5f, 3.0f, -4.0f};
  const std::vector<float> rounded = {-2, -2, 0, 0, 2, 2, 3, -4};
  // Code minus v / s inside, the code outside.
  const std::vector<float> slopes = {0.5f, -0.5f, 0.5f, -0.5f, 0.5f, -0.5f, 3, -4};
  // Different gradients: with equal ones, roundings of opposite sign would cancel.
  const std::vector<float> gradients = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> v, y, dy, dv;
  for (int i = 0; i < 43; ++i) {
    v.insert(v.end(), values.begin(), values.end());
    y.insert(y.end(), rounded.begin(), rounded.end());
    dy.insert(dy.end(), gradients.begin(), gradients.end());
    dv.insert(dv.end(), {1, 2, 3, 4, 5, 6, 0, 0});
  }
  const Shape shape{static_cast<std::int64_t>(v.size())};
  const auto of = [&](const std::vector<float>& from) {
    return Tensor::from(std::span<const float>(from), shape);
  };
  const auto got = [&] { return run(of(v), Tensor::from({1.0f}, {1}), of(dy), {.grid = {4, 3}}); };
  float sum = 0;
  for (std::size_t i = 0; i < slopes.size(); ++i) sum += gradients[i] * slopes[i];
  on_every_machine([&] { return got().y; },
                   [&](const Tensor& a) { EXPECT_TRUE(near(a, of(y), 0, 0)); });
  on_every_machine([&] { return got().dv; },
                   [&](const Tensor& a) { EXPECT_TRUE(near(a, of(dv), 0, 0)); });
  on_every_machine(
      [&] { return got().dstep; },
      [&](const Tensor& a) { EXPECT_FLOAT_EQ(static_cast<float>(a.at(0)), 43 * sum); });
}

TEST(Lsq, LetsNanThroughAndSaturatesAtInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  on_every_machine(
      [&] {
        const Tensor v = Tensor::from({nan, inf, -inf}, {3});
        return lsq_quantize(Variable(v), Variable(Tensor::from({0.5f}, {1})), {.grid = {4, 3}})
            .value();
      },
      [&](const Tensor& y) {
        EXPECT_TRUE(near(y, Tensor::from({nan, 1.5f, -2.0f}, {3}), 0, 0));
      });
}

TEST(Lsq, OfNothingIsNothing) {
  const Result got = run(Tensor::empty({0, 3, 4, 4}), Tensor::from({0.5f}, {1}),
                         Tensor::empty({0, 3, 4, 4}), {.grid = {0, 15}});
  EXPECT_EQ(got.y.numel(), 0);
  EXPECT_EQ(got.dstep.at(0), 0);
}

TEST(Lsq, ComputesOnlyTheGradientsThatAreWanted) {
  const Variable v(normal({40}, DType::f32)), step = leaf(Tensor::from({0.1f}, {1}));
  lsq_quantize(v, step, {.grid = {8, 7}}).backward(Tensor::full({40}, 1.0));
  EXPECT_NE(step.grad().at(0), 0);
  const Variable input = leaf(v.value()), fixed(step.value());
  lsq_quantize(input, fixed, {.grid = {8, 7}}).backward(Tensor::full({40}, 1.0));
  EXPECT_TRUE(input.grad().defined());
  EXPECT_FALSE(fixed.grad().defined());
}

TEST(Lsq, RefusesWhatDoesNotFitInOneSentence) {
  const Variable v(normal({2, 6}, DType::f32));
  const auto step = [](const Shape& shape, DType dtype = DType::f32) {
    return Variable(Tensor::full(shape, 0.1, dtype));
  };
  EXPECT_ERROR(ErrorKind::kInvalid,
               "[lsq] expected one step [1], or one for each row of v because v is [2,6], got [3]",
               lsq_quantize(v, step({3}), {.grid = {8, 7}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected steps of the type and on the device of v",
               lsq_quantize(v, step({1}, DType::f64), {.grid = {8, 7}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "1 <= Qp", lsq_quantize(v, step({1}), {.grid = {8, 0}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "gradient above 0",
               lsq_quantize(v, step({1}), {.grid = {8, 7}, .g = 0}));
  for (const float wrong : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const Variable steps(Tensor::from({0.5f, wrong}, {2}));
    EXPECT_ERROR(ErrorKind::kInvalid, "[lsq] expected finite steps above 0, got",
                 lsq_quantize(v, steps, {.grid = {8, 7}}));
  }
  EXPECT_ERROR(ErrorKind::kInvalid, "[quant] expected 2 to 8 bits", integer_grid(1, true));
  EXPECT_ERROR(ErrorKind::kInvalid, "got 9", integer_grid(9, false));
}

}  // namespace
}  // namespace convscope
