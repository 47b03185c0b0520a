// SPDX-License-Identifier: Apache-2.0
// deform_definition_test.cpp: tests the definition of deformable convolution. The gradients of the
// reference must be the derivatives of its result. For every algorithm, sampling positions outside,
// at the border, infinite or NaN must behave as problem.h says.
#include "layers/dispatch/execute.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using Problem = DeformConv2dProblem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Registry<DeformConv2dAlgorithm>& algorithms() {
  return deform_conv2d_algorithms(DeviceType::cpu);
}

Operands run_on(const DeformConv2dAlgorithm& algorithm, const Problem& z, Direction direction,
                const DeformConv2dTensors& tensors) {
  Operands operands = deform_conv2d_operands(direction, tensors);
  const OperandSpecs specs = z.operands(direction);
  for (std::size_t i = 0; i < specs.outputs.size(); ++i) {
    operands.out[i].values = Tensor::full(specs.outputs[i].desc.shape, NAN, z.dtype);
  }
  run_algorithm(algorithm, z, direction, operands);
  return operands;
}

// ---- derivatives -------------------------------------------------------------------------------

// Returns the sum of y dy: its derivatives are the gradients.
double loss(const Problem& z, const DeformConv2dTensors& t) {
  const Tensor y = run_on(algorithms().get("reference"), z, Direction::forward, t).out[0].values;
  double sum = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) sum += y.at(i) * t.dy.at(i);
  return sum;
}

// Between two pixels the result is linear in x, in w, in the offset and in the mask. So a central
// difference has only rounding errors: a few eps of the sum over magnitudes, divided by the step.
void expect_derivative(const char* name, const Problem& z, DeformConv2dTensors t,
                       Tensor DeformConv2dTensors::*of, const Tensor& gradient, double size) {
  constexpr double kStep = 0x1p-6;
  Tensor moved = (t.*of).clone();
  t.*of = moved;
  const double bound = 16 * eps_of(DType::f64, MathMode::f32) * size / kStep;
  ASSERT_EQ(gradient.shape(), moved.shape()) << name;
  for (std::int64_t i = 0; i < moved.numel(); ++i) {
    double& at = moved.data<double>()[i];
    const double before = at;
    at = before + kStep;
    const double up = loss(z, t);
    at = before - kStep;
    const double down = loss(z, t);
    at = before;
    ASSERT_NEAR(gradient.at(i), (up - down) / (2 * kStep), bound)
        << name << ", element " << i << ", " << z.text();
  }
}

class DeformDerivatives : public ::testing::TestWithParam<const char*> {};

TEST_P(DeformDerivatives, AreTheGradientsOfTheReference) {
  Problem z = Problem::parse(GetParam());
  z.dtype = DType::f64;
  DeformConv2dTensors t{.x = normal(z.x_shape(), DType::f64, 1),
                        .w = normal(z.w_shape(), DType::f64, 2),
                        .offset = uniform(z.offset_shape(), 0.2f, 0.8f, DType::f64, 3),
                        .mask = {},
                        .b = normal({z.k}, DType::f64, 4),
                        .dy = normal(z.y_shape(), DType::f64, 5)};
  if (z.mask) t.mask = normal(z.mask_shape(), DType::f64, 6);
  // Moves each sampling position by a whole number of pixels, so that its fractions stay in (0.2,
  // 0.8). Some taps then leave the image.
  Generator random(9, 1);
  for (std::int64_t i = 0; i < t.offset.numel(); ++i) {
    t.offset.data<double>()[i] += static_cast<double>(random.below(5)) - 2;
  }
  double size = 0;  // of the loss
  const Operands forward = run_on(algorithms().get("reference"), z, Direction::forward, t);
  const Tensor sizes = Operator<Problem>::magnitudes(z, Direction::forward, forward).out[0].values;
  for (std::int64_t i = 0; i < sizes.numel(); ++i) size += sizes.at(i) * std::abs(t.dy.at(i));

  const Operands data = run_on(algorithms().get("reference"), z, Direction::backward_data, t);
  const Operands weight = run_on(algorithms().get("reference"), z, Direction::backward_weight, t);
  using Tensors = DeformConv2dTensors;
  expect_derivative("dx", z, t, &Tensors::x, data.out[0].values, size);
  expect_derivative("doffset", z, t, &Tensors::offset, data.out[1].values, size);
  if (z.mask) expect_derivative("dmask", z, t, &Tensors::mask, data.out[2].values, size);
  expect_derivative("dw", z, t, &Tensors::w, weight.out[0].values, size);
  Tensor db = Tensor::zeros({z.k}, DType::f64);
  const std::int64_t pixels = z.p() * z.q();
  for (std::int64_t i = 0; i < t.dy.numel(); ++i) {
    db.data<double>()[i / pixels % z.k] += t.dy.at(i);
  }
  expect_derivative("db", z, t, &Tensors::b, db, size);
}

INSTANTIATE_TEST_SUITE_P(
    Small, DeformDerivatives,
    ::testing::Values("n=2,c=2,h=5,w=4,k=3,r=3,s=3,pad=1",
                      "n=1,c=4,h=6,w=7,k=4,r=3,s=2,stride=2x1,pad=1x0,dilation=1x2,groups=2,"
                      "offset_groups=2",
                      "n=1,c=4,h=4,w=4,k=2,r=2,s=2,offset_groups=4,mask=0",
                      "n=2,c=3,h=4,w=5,k=6,r=1,s=1,groups=3"));

// ---- places ------------------------------------------------------------------------------------

// x has the value 10 h + w + 1 in pixel (h,w). The problem has one channel and one tap, so y is x
// sampled at the given position.
const Problem kPoint = Problem::parse("n=1,c=1,h=4,w=5,k=1,r=1,s=1");

DeformConv2dTensors at_place(double v, double u) {  // of every pixel of y, from its own place
  DeformConv2dTensors t{.x = Tensor::empty(kPoint.x_shape()),
                        .w = Tensor::full(kPoint.w_shape(), 1.0),
                        .offset = Tensor::empty(kPoint.offset_shape()),
                        .mask = Tensor::full(kPoint.mask_shape(), 1.0),
                        .b = {},
                        .dy = Tensor::full(kPoint.y_shape(), 1.0)};
  for (std::int64_t i = 0; i < 20; ++i) {
    t.x.data<float>()[i] = static_cast<float>(10 * (i / 5) + i % 5 + 1);
    t.offset.data<float>()[i] = static_cast<float>(v - static_cast<double>(i / 5));
    t.offset.data<float>()[20 + i] = static_cast<float>(u - static_cast<double>(i % 5));
  }
  return t;
}

TEST(DeformPlaces, AreSampledBetweenFourPixelsAndFadeAtTheBorder) {
  struct Case {
    double v, u, y;
  };
  // All are sums of few bits: exact.
  const Case cases[] = {{1, 2, 13},          {1.5, 2, 18},       {1, 2.5, 13.5}, {1.5, 2.25, 18.25},
                        {-0.5, 0, 0.5},      {-0.5, -0.5, 0.25}, {3.5, 4, 17.5}, {3.5, 4.5, 8.75},
                        {-1, 0, 0},          {0, -1, 0},         {4, 0, 0},      {0, 5, 0},
                        {-0.75, 4.5, 0.625}, {3, 4, 35},         {-1, -1, 0},    {4, 5, 0}};
  for (const Case& one : cases) {
    const DeformConv2dTensors t = at_place(one.v, one.u);
    for (const auto& [name, algorithm] : algorithms().entries()) {
      const Tensor y = run_on(algorithm, kPoint, Direction::forward, t).out[0].values;
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        EXPECT_EQ(y.at(i), one.y) << name << " at (" << one.v << ", " << one.u << "), " << i;
      }
    }
  }
}

// Sizes with whole vectors and without, taps at the borders, groups.
const char* const kCases[] = {"n=2,c=3,h=7,w=5,k=4,r=3,s=3,pad=1",
                              "n=1,c=32,h=9,w=11,k=32,r=3,s=3,pad=1,offset_groups=2",
                              "n=2,c=8,h=6,w=8,k=8,r=3,s=3,pad=1,groups=8,offset_groups=8"};

class DeformOutside : public ::testing::TestWithParam<const char*> {};

void expect_all(const Tensor& tensor, double value, const std::string& what) {
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    if (std::isnan(value) ? std::isnan(tensor.at(i)) : tensor.at(i) == value) continue;
    ADD_FAILURE() << what << ": expected " << value << " at element " << i << ", got "
                  << tensor.at(i);
    return;
  }
}

void run_between_guards(const DeformConv2dAlgorithm& algorithm, const Problem& z,
                        Direction direction, const Operands& operands) {
  if (support_of(algorithm, z, direction).yes) run_guarded(algorithm, z, direction, operands);
}

TEST_P(DeformOutside, PlacesGiveTheBiasAndNoGradient) {
  const Problem z = Problem::parse(GetParam());
  const double far = static_cast<double>(z.h + z.w);
  for (const double offset :
       {far, -far, 1e9, -1e9, 3e9, 1e19, 1e30, -1e30, kInfinity, -kInfinity}) {
    for (const bool v_alone : {true, false}) {
      DeformConv2dTensors t = deform_tensors(z, matrix::Tier::bounded);
      const std::int64_t pixels = z.p() * z.q();
      t.offset = Tensor::zeros(z.offset_shape(), DType::f32);
      for (std::int64_t i = 0; i < t.offset.numel(); ++i) {
        const bool is_v = i / pixels % 2 == 0;
        if (is_v == v_alone) t.offset.data<float>()[i] = static_cast<float>(offset);
      }
      for (const auto& [name, algorithm] : algorithms().entries()) {
        const std::string what = cat(name, ", offset ", offset, v_alone ? " of v" : " of u");
        const Operands forward = deform_operands(z, Direction::forward, t);
        run_between_guards(algorithm, z, Direction::forward, forward);
        for (std::int64_t i = 0; i < forward.out[0].values.numel(); ++i) {
          ASSERT_EQ(forward.out[0].values.at(i), t.b.at(i / pixels % z.k)) << what;
        }
        for (const Direction direction : {Direction::backward_data, Direction::backward_weight}) {
          const Operands operands = deform_operands(z, direction, t);
          run_between_guards(algorithm, z, direction, operands);
          for (const Operand& out : operands.out) {
            if (out.defined()) expect_all(out.values, 0, what);
          }
        }
      }
    }
  }
}

// A NaN affects exactly the outputs that depend on it; all other outputs are unchanged.
TEST_P(DeformOutside, ANanReachesWhatItTouchesAlone) {
  const Problem z = Problem::parse(GetParam());
  const std::int64_t pixels = z.p() * z.q();
  const std::int64_t pixel = pixels / 2 + 1, image = z.n - 1;
  for (const bool in_v : {true, false}) {
    DeformConv2dTensors t = deform_tensors(z, matrix::Tier::bounded);
    DeformConv2dTensors nan = t;
    nan.offset = t.offset.clone();
    // The last tap of the last offset group.
    const std::int64_t places = z.offset_groups * z.taps();
    const std::int64_t at = 2 * (image * places + places - 1) + (in_v ? 0 : 1);
    // Its other coordinate is inside, or the NaN would not matter.
    nan.offset.data<float>()[at * pixels + pixel] = std::numeric_limits<float>::quiet_NaN();
    nan.offset.data<float>()[(at ^ 1) * pixels + pixel] = 0.25f;
    t.offset = nan.offset.clone();
    t.offset.data<float>()[at * pixels + pixel] = 0.25f;
    for (const auto& [name, algorithm] : algorithms().entries()) {
      const Operands got = deform_operands(z, Direction::forward, nan);
      const Operands right = deform_operands(z, Direction::forward, t);
      run_between_guards(algorithm, z, Direction::forward, got);
      run_between_guards(algorithm, z, Direction::forward, right);
      for (std::int64_t i = 0; i < got.out[0].values.numel(); ++i) {
        const std::int64_t k = i / pixels % z.k,
                           c_end = (k / z.k_per_group() + 1) * z.c_per_group();
        const bool touched = i / pixels / z.k == image && i % pixels == pixel &&
                             c_end > (z.offset_groups - 1) * z.c_per_offset_group();
        const double value = got.out[0].values.at(i);
        if (touched) {
          ASSERT_TRUE(std::isnan(value)) << name << ", element " << i;
        } else {
          ASSERT_EQ(value, right.out[0].values.at(i)) << name << ", element " << i;
        }
      }
      for (const Direction direction : {Direction::backward_data, Direction::backward_weight}) {
        run_between_guards(algorithm, z, direction, deform_operands(z, direction, nan));
      }
    }
  }
}

TEST_P(DeformOutside, OutputsThatNobodyAsksForChangeNoBit) {
  const Problem z = Problem::parse(GetParam());
  const DeformConv2dTensors t = deform_tensors(z, matrix::Tier::bounded);
  for (const auto& [name, algorithm] : algorithms().entries()) {
    const Operands all = deform_operands(z, Direction::backward_data, t);
    run_between_guards(algorithm, z, Direction::backward_data, all);
    for (int asked = 1; asked < 8; ++asked) {
      const Operands some = deform_operands(z, Direction::backward_data, t);
      const auto out = [&](int i) { return (asked >> i & 1) != 0 ? some.output(i) : nullptr; };
      const Workspace workspace(Device{}, algorithm.workspace_bytes(z, Direction::backward_data));
      const Workspace prepared(Device{}, algorithm.prepared_size(z, Direction::backward_data));
      const bool prepares = prepared.bytes() > 0;
      if (prepares) {
        algorithm.prepare_weights(
            {z, Direction::backward_data, some.input(1), prepared.data(), workspace.data(), {}});
      }
      algorithm.backward_data({z, some.input(0), some.input(1), some.input(2), some.input(3),
                               some.input(4), out(0), out(1), out(2), workspace.data(),
                               prepares ? prepared.data() : nullptr});
      for (std::size_t i = 0; i < 3; ++i) {
        if ((asked >> i & 1) == 0) continue;
        EXPECT_TRUE(same_bits(some.out[i].values, all.out[i].values))
            << name << ", output " << i << " of " << asked;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Small, DeformOutside, ::testing::ValuesIn(kCases));

// ---- what layers/dispatch gives ----------------------------------------------------------------

TEST(DeformDispatch, ABatchOfNoImagesReachesNoAlgorithm) {
  const Problem z = Problem::parse("n=0,c=2,h=4,w=5,k=3,r=3,s=3,pad=1");
  for (const auto& [name, algorithm] : algorithms().entries()) {
    DeformConv2dAlgorithm untouched = algorithm;
    untouched.forward = nullptr;
    untouched.backward_data = nullptr;
    untouched.backward_weight = nullptr;
    for (const Direction direction : kDirections) {
      const Operands operands =
          deform_operands(z, direction, deform_tensors(z, matrix::Tier::bounded));
      run_algorithm(untouched, z, direction, operands);
      for (const Operand& out : operands.out) {
        if (out.defined()) expect_all(out.values, 0, name);
      }
    }
  }
}

TEST(DeformDispatch, ACheckRunsBothAndFindsAFault) {
  const Problem z = Problem::parse("n=2,c=16,h=9,w=11,k=16,r=3,s=3,pad=1");
  for (const Direction direction : kDirections) {
    const Operands operands =
        deform_operands(z, direction, deform_tensors(z, matrix::Tier::offset));
    forget_check_results();
    const auto choice = select_algorithm("check:fused,im2col_gemm", z, direction, Device{});
    execute(choice, z, direction, operands);
    const std::vector<CheckResult> results = check_results();
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].first, "fused");
    EXPECT_EQ(results[0].second, "im2col_gemm");
    EXPECT_GT(results[0].worst.difference, 0);
    EXPECT_LE(results[0].worst.difference, results[0].worst.bound);
    // The bound is that of both algorithms on any numbers.
    const Operands sizes = Operator<Problem>::magnitudes(z, direction, operands);
    bool found = false;
    for (const Operand& out : sizes.out) {
      if (!out.defined()) continue;
      double largest = 0;
      for (std::int64_t i = 0; i < out.values.numel(); ++i) {
        largest = std::max(largest, out.values.at(i));
      }
      const auto terms = static_cast<double>(z.sum_length(direction));
      const double growth =
          choice.algorithm->worst_growth(terms) + choice.checked_by->worst_growth(terms);
      const double bound = growth * eps_of(z.dtype, z.math) * largest;
      found = found || std::abs(bound - results[0].worst.bound) <= 1e-6 * bound;
    }
    EXPECT_TRUE(found) << results[0].worst.bound;
  }
  DeformConv2dAlgorithm wrong = algorithms().get("fused");
  wrong.name = "wrong";
  wrong.backward_data = [](const DeformConv2dBackwardDataArgs& args) {
    algorithms().get("fused").backward_data(args);
    static_cast<float*>(args.doffset)[5] += 0.25f;
  };
  const Choice<Problem> choice{&wrong, &algorithms().get("im2col_gemm"), "check:wrong,im2col_gemm",
                               ""};
  EXPECT_ERROR(ErrorKind::kRun, "expected 'wrong' and 'im2col_gemm' to agree",
               execute(choice, z, Direction::backward_data,
                       deform_operands(z, Direction::backward_data,
                                       deform_tensors(z, matrix::Tier::bounded))));
  forget_check_results();
}

}  // namespace
}  // namespace convscope::testing
