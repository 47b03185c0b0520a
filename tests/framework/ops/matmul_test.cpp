// SPDX-License-Identifier: Apache-2.0
// matmul_test.cpp: tests both implementations of matrix products and linear layers, and their
// gradients.
#include "framework/ops/gemm/matmul.h"

#include <gtest/gtest.h>

#include "framework/autograd/gradcheck.h"
#include "framework/ops/elementwise.h"
#include "layers/linear/linear.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::error_of;
using testing::leaf;
using testing::near;
using testing::normal;
using testing::on_every_machine;
using testing::uniform;

constexpr double kEps = 0x1p-24;
constexpr Transpose kBoth[] = {Transpose::no, Transpose::yes};

Shape stored(std::int64_t rows, std::int64_t columns, Transpose t) {
  return t == Transpose::no ? Shape{rows, columns} : Shape{columns, rows};
}

TEST(Matmul, GradientsMatchDifferencesForEveryTranspose) {
  for (Transpose ta : kBoth) {
    for (Transpose tb : kBoth) {
      const auto f = [&](const std::vector<Variable>& v) { return matmul(v[0], v[1], ta, tb); };
      const GradcheckResult result =
          gradcheck(f, {leaf(normal(stored(3, 4, ta))), leaf(normal(stored(4, 2, tb)))});
      EXPECT_TRUE(result.ok) << result.str();
    }
  }
}

TEST(Matmul, FloatResultsAndGradientsMatchDoubleWithBothEngines) {
  for (Transpose ta : kBoth) {
    for (Transpose tb : kBoth) {
      for (MatmulEngine engine : {MatmulEngine::tiled, MatmulEngine::eigen}) {
        const Tensor a = normal(stored(37, 53, ta), DType::f32, 1);
        const Tensor b = normal(stored(53, 29, tb), DType::f32, 2);
        const Tensor dc = normal({37, 29}, DType::f32, 3);
        const auto run = [&](DType dtype, int which) {
          const Variable va = leaf(a.to(dtype));
          const Variable vb = leaf(b.to(dtype));
          const Variable c = matmul(va, vb, ta, tb, engine);
          if (which == 0) return c.value();
          c.backward(dc.to(dtype));
          return which == 1 ? va.grad() : vb.grad();
        };
        for (int which = 0; which < 3; ++which) {
          const Tensor want = run(DType::f64, which);
          // A sum has at most 53 products of normal numbers, so |error| <= 53 eps sum|a||b| < 53
          // eps 53.
          on_every_machine(
              [&] { return run(DType::f32, which); },
              [&](const Tensor& got) { EXPECT_TRUE(near(got, want, 53 * 53 * kEps, 0)) << which; });
        }
      }
    }
  }
}

TEST(Matmul, ProductOfKnownNumbers) {
  const Tensor a = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor b = Tensor::from({1, 0, 2, 1, 0, 3}, {3, 2});
  EXPECT_TRUE(near(matmul(a, b), Tensor::from({5, 11, 14, 23}, {2, 2}), 0, 0));
}

TEST(Matmul, EmptyMatricesWork) {
  EXPECT_EQ(matmul(Tensor::zeros({0, 3}), Tensor::zeros({3, 2})).shape(), (Shape{0, 2}));
  EXPECT_TRUE(
      near(matmul(Tensor::zeros({2, 0}), Tensor::zeros({0, 2})), Tensor::zeros({2, 2}), 0, 0));
}

TEST(Matmul, ErrorsNameTheShapes) {
  EXPECT_EQ(error_of([] {
              matmul(Tensor::zeros({2, 3}), Tensor::zeros({4, 2}));
            }),
            "[matmul] expected as many columns of a as rows of b, got [2,3] and [4,2]");
  EXPECT_EQ(error_of([] {
              matmul(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), Transpose::yes, Transpose::yes);
            }),
            "[matmul] expected as many columns of a^T as rows of b^T, got [2,3] and [4,3]");
  EXPECT_EQ(error_of([] {
              matmul(Tensor::zeros({3}), Tensor::zeros({3, 2}));
            }),
            "[matmul] expected two matrices (rank 2), got [3] and [3,2]");
}

TEST(Linear, GradientsMatchDifferencesWithAndWithoutBias) {
  const std::vector<Variable> inputs{leaf(normal({4, 3}, DType::f64, 1)),
                                     leaf(normal({2, 3}, DType::f64, 2)),
                                     leaf(normal({2}, DType::f64, 3))};
  const GradcheckResult with =
      gradcheck([](const std::vector<Variable>& v) { return linear(v[0], v[1], v[2]); }, inputs);
  EXPECT_TRUE(with.ok) << with.str();
  const GradcheckResult without =
      gradcheck([](const std::vector<Variable>& v) { return linear(v[0], v[1], Variable()); },
                {inputs[0], inputs[1]});
  EXPECT_TRUE(without.ok) << without.str();
}

TEST(Linear, OneWeightUsedTwiceCollectsBothGradients) {
  const auto f = [](const std::vector<Variable>& v) {
    return linear(tanh(linear(v[0], v[1], v[2])), v[1], v[2]);
  };
  const GradcheckResult result =
      gradcheck(f, {leaf(normal({4, 3}, DType::f64, 1)), leaf(normal({3, 3}, DType::f64, 2)),
                    leaf(normal({3}, DType::f64, 3))});
  EXPECT_TRUE(result.ok) << result.str();
}

// Parameter 0 draws numbers near 0. Parameter 1 draws numbers near 1, whose sums do not cancel.
class LinearInFloat : public ::testing::TestWithParam<int> {};

TEST_P(LinearInFloat, ResultsAndGradientsMatchDouble) {
  const auto drawn = [](const Shape& shape, std::uint64_t seed) {
    return GetParam() == 0 ? normal(shape, DType::f32, seed)
                           : uniform(shape, 0.8f, 1.2f, DType::f32, seed);
  };
  const Tensor x = drawn({64, 256}, 1);
  const Tensor w = drawn({120, 256}, 2);
  const Tensor b = drawn({120}, 3);
  const Tensor dy = drawn({64, 120}, 4);
  const auto run = [&](DType dtype, int which) {
    const Variable vx = leaf(x.to(dtype)), vw = leaf(w.to(dtype)), vb = leaf(b.to(dtype));
    const Variable y = linear(vx, vw, vb);
    if (which == 0) return y.value();
    y.backward(dy.to(dtype));
    return which == 1 ? vx.grad() : which == 2 ? vw.grad() : vb.grad();
  };
  for (int which = 0; which < 4; ++which) {
    const Tensor want = run(DType::f64, which);
    // A sum has K <= 256 products of numbers near 1. The error is at most 8 eps times the
    // sum, with eps = 2^-23 (framework/simd/sum_chain.h).
    on_every_machine(
        [&] { return run(DType::f32, which); },
        [&](const Tensor& got) { EXPECT_TRUE(near(got, want, 8 * 256 * 2 * kEps, 0)) << which; });
  }
}
INSTANTIATE_TEST_SUITE_P(Linear, LinearInFloat, ::testing::Values(0, 1));

TEST(Linear, ErrorsNameTheShapes) {
  const Variable x(Tensor::zeros({2, 3}));
  EXPECT_EQ(error_of([&] {
              linear(x, Variable(Tensor::zeros({5, 4})), Variable());
            }),
            "[linear] expected x with 4 features because w is [5,4], got x [2,3]");
  EXPECT_NE(error_of([&] {
              linear(x, Variable(Tensor::zeros({5, 3})), Variable(Tensor::zeros({4})));
            }).find("expected b [5]"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
