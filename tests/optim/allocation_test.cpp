// SPDX-License-Identifier: Apache-2.0
// allocation_test.cpp: tests that a repeated optimiser step allocates no system memory. The program
// counts calls of operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "optim/slow_weights.h"
#include "tests/optim/optim_cases.h"

namespace {
std::atomic<std::int64_t> news{0};
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++news;
  if (void* pointer = std::malloc(bytes == 0 ? 1 : bytes)) return pointer;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept { std::free(pointer); }
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }

namespace convscope {
namespace {

using namespace optim_test;

TEST(Optimizer, AllocatesNothingInARepeatedStep) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "parallel loops of a ThreadSanitizer build start threads anew (parallel.cpp)";
#endif
  const std::vector<ParameterGroup> groups = noisy_groups(DType::f32);
  set_noisy_gradients(groups, 0);
  std::vector<OptimParameter> all = groups[0].parameters;
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (const std::string& name : optimizer_types().names()) {
    optimizers.push_back(make_optimizer(name, groups));
  }
  // Muon orthogonalises matrices, and their averages follow.
  ParameterGroup matrix;
  const Tensor w = Tensor::full({40, 24}, 0.5, DType::f32);
  matrix.parameters = {{"matrix", Variable(w, true)}};
  matrix.parameters[0].variable.state()->grad = Tensor::full({40, 24}, 0.25, DType::f32);
  matrix.parameters[0].variable.state()->grad_is_zero = false;
  optimizers.push_back(
      with_slow_weights(make_optimizer("muon", {matrix}), {}, {.decay = 0.9, .k = 2}));
  const auto step = [&] {
    clip_gradient_norm(all, 0.5);
    for (const auto& optimizer : optimizers) optimizer->step(0.1);
  };
  step();
  const std::int64_t before = news;
  step();
  step();
  EXPECT_EQ(news - before, 0);
  ::operator delete(::operator new(1));  // checks that the counter counts
  EXPECT_GT(news - before, 0);
}

}  // namespace
}  // namespace convscope
