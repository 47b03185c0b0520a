// SPDX-License-Identifier: Apache-2.0
// epilogue_test.cpp: tests y = relu(conv + b + residual). Every algorithm that fuses this epilogue
// must have the same bits as a separate pass, with each instruction set, and with one and two
// threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "framework/ops/bounded_relu/bounded_relu.h"
#include "framework/ops/elementwise.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/execute.h"
#include "tests/support/cases.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using testing::MachineScope;

struct Data {
  explicit Data(const Conv2dProblem& problem)
      : x(random(problem.x_shape(), 1)),
        w(random(problem.w_shape(), 2)),
        b(random({problem.k}, 3)),
        residual(random(problem.y_shape(), 4)) {
    if (residual.numel() > 4) {
      residual.data<float>()[1] = std::nanf("");
      residual.data<float>()[3] = -INFINITY;
    }
    if (x.numel() > 2) x.data<float>()[x.numel() - 1] = std::nanf("");
  }
  static Tensor random(const Shape& shape, std::uint64_t stream) {
    const Tensor out = Tensor::empty(shape);
    Generator generator(5, stream);
    for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = generator.normal();
    return out;
  }
  Tensor x, w, b, residual;
};

// Expects the same bits, or both NaN (whose payload is unspecified).
void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const float p = a.data<float>()[i];
    const float q = b.data<float>()[i];
    if (std::isnan(p) && std::isnan(q)) continue;
    ASSERT_EQ(std::memcmp(&p, &q, sizeof p), 0) << what << " at " << i << ": " << p << ", " << q;
  }
}

Tensor run(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem, const Data& data,
           const Conv2dEpilogue& epilogue) {
  const Tensor y = Tensor::full(problem.y_shape(), std::nan(""));
  execute({&algorithm, nullptr}, problem, Direction::forward,
          {.in = {data.x, data.w, data.b}, .out = {y}, .epilogue = epilogue});
  return y;
}

void check(const Conv2dProblem& problem, int& algorithms) {
  const MachineScope scope;
  const Data data(problem);
  for (const auto& [name, algorithm] : conv2d_algorithms(DeviceType::cpu).entries()) {
    if (!algorithm.fuses_epilogue || !support_of(algorithm, problem, Direction::forward).yes)
      continue;
    ++algorithms;
    Conv2dAlgorithm plain = algorithm;
    plain.fuses_epilogue = false;
    for (int i = 0; i < kIsaCount; ++i) {
      const Isa isa = static_cast<Isa>(i);
      if (!supports_isa(isa)) continue;
      set_isa(isa);
      for (const int threads : {1, 2}) {
        set_num_threads(threads);
        for (const float most : {0.0f, 1.5f, INFINITY}) {  // 0: no relu
          for (const bool add : {false, true}) {
            const Conv2dEpilogue epilogue{add ? data.residual.raw_data() : nullptr, most > 0, most};
            expect_same(run(algorithm, problem, data, epilogue),
                        run(plain, problem, data, epilogue),
                        cat(name, " on ", problem.text(), ", ", name_of(isa), ", ", threads,
                            " threads, relu up to ", most, add ? ", residual" : ""));
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(Conv2dEpilogueOfEveryAlgorithm, HasTheBitsOfTheSeparatePass) {
  int algorithms = 0;
  for (const char* text :
       {"n=2,c=17,h=9,w=11,k=21,r=3,s=3,pad=1", "n=3,c=8,h=7,w=7,k=33,r=3,s=3,pad=1,stride=2",
        "n=2,c=20,h=30,w=31,k=19", "n=5,c=20,h=7,w=7,k=40", "n=2,c=6,h=9,w=9,k=12,stride=2",
        "n=2,c=12,h=14,w=14,k=24,r=3,s=3,pad=1,groups=12", "n=1,c=4,h=40,w=33,k=4,r=5,s=5,groups=4",
        "n=9,c=3,h=8,w=8,k=64,r=3,s=3,pad=1", "n=2,c=64,h=7,w=7,k=64,r=3,s=3,pad=1,groups=2"}) {
    check(Conv2dProblem::parse(text), algorithms);
    if (HasFailure()) return;
  }
  EXPECT_GE(algorithms, 30);
}

TEST(Conv2dEpilogueOfEveryAlgorithm, HasTheBitsOfTheSeparatePassOnRandomProblems) {
  int algorithms = 0;
  for (std::uint64_t i = 0; i < 40 && !HasFailure(); ++i) {
    check(testing::shrunk(testing::random_problem(3, i), 5e4), algorithms);
  }
  EXPECT_GE(algorithms, 40);
}

TEST(Conv2dEpilogueOfEveryAlgorithm, IsTheReluOpOfTheSum) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=5,h=9,w=9,k=8,r=3,s=3,pad=1");
  const Data data(problem);
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("direct");
  const Tensor conv = run(algorithm, problem, data, {});
  const Variable expected = relu(Variable(conv) + Variable(data.residual));
  const Tensor bounded = run(algorithm, problem, data, {data.residual.raw_data(), true, 1.5f});
  expect_same(bounded, bounded_relu(Variable(conv) + Variable(data.residual), 1.5).value(),
              "bounded_relu(conv + residual)");
  const Tensor fused = run(algorithm, problem, data, {data.residual.raw_data(), true});
  expect_same(fused, expected.value(), "relu(conv + residual)");
  EXPECT_TRUE(std::isnan(fused.at(1)));
  EXPECT_EQ(fused.at(3), 0);  // relu(-infinity)
}

TEST(Conv2dEpilogueOfEveryAlgorithm, WorksInF64ByTheSeparatePass) {
  Conv2dProblem problem = Conv2dProblem::parse("n=1,c=2,h=4,w=4,k=2,r=3,s=3,pad=1");
  problem.dtype = DType::f64;
  const Tensor x = Tensor::full(problem.x_shape(), 1, DType::f64);
  const Tensor w = Tensor::full(problem.w_shape(), -1, DType::f64);
  const Tensor residual = Tensor::full(problem.y_shape(), 10, DType::f64);
  const Tensor y = Tensor::empty(problem.y_shape(), DType::f64);
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get("reference");
  execute({&algorithm, nullptr}, problem, Direction::forward,
          {.in = {x, w}, .out = {y}, .epilogue = {residual.raw_data(), true}});
  EXPECT_EQ(y.at(0), 2);  // a corner sums 8 products of -1
  EXPECT_EQ(y.at(5), 0);  // the middle 18
  execute({&algorithm, nullptr}, problem, Direction::forward,
          {.in = {x, w}, .out = {y}, .epilogue = {residual.raw_data(), true, 1.5f}});
  EXPECT_EQ(y.at(0), 1.5);
}

TEST(Conv2dEpilogueOfEveryAlgorithm, IsPartOfACheckedRun) {
  const Conv2dProblem problem = Conv2dProblem::parse("n=2,c=5,h=9,w=9,k=8,r=3,s=3,pad=1");
  const Data data(problem);
  const Tensor x = Data::random(problem.x_shape(), 6);  // without NaN and infinity
  const Tensor residual = Data::random(problem.y_shape(), 7);
  const auto& algorithms = conv2d_algorithms(DeviceType::cpu);
  const Tensor y = Tensor::empty(problem.y_shape());
  Conv2dAlgorithm forgets = algorithms.get("direct");
  forgets.forward = [](const Conv2dForwardArgs& args) {
    Conv2dForwardArgs bare = args;
    bare.epilogue = {};
    conv2d_algorithms(DeviceType::cpu).get("direct").forward(bare);
  };
  const Conv2dEpilogue epilogue{residual.raw_data(), true};
  execute({&algorithms.get("direct"), &algorithms.get("reference")}, problem, Direction::forward,
          {.in = {x, data.w, data.b}, .out = {y}, .epilogue = epilogue});
  EXPECT_ERROR(ErrorKind::kRun, "expected 'direct' and 'reference' to agree",
               execute({&forgets, &algorithms.get("reference")}, problem, Direction::forward,
                       {.in = {x, data.w, data.b}, .out = {y}, .epilogue = epilogue}));
}

}  // namespace
}  // namespace convscope
