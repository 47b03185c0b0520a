// SPDX-License-Identifier: Apache-2.0
// cuda_like_cpu.h: compares a computation on `device cuda` with the same computation on the CPU.
#pragma once

#include <vector>

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"

namespace convscope::testing {

// |error| <= absolute + relative |value|.
struct Bound {
  double absolute = 0;
  double relative = 0;
};
// Returns a bound on the difference between two formulas that round about equally often, in another
// order or with FMAs.
inline Bound few_ulp(DType dtype, double ulps = 4) {
  const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
  return {ulps * eps, ulps * eps};
}

inline std::vector<Tensor> on(const std::vector<Tensor>& tensors, Device device) {
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(t.defined() ? t.to(device) : t);
  return out;
}

// Runs compute(inputs) -> results on the CPU and twice on the device. The device's results must
// agree with the CPU, and both device runs must have the same bits.
template <class Compute>
void expect_like_cpu(Compute&& compute, const std::vector<Tensor>& inputs, const Bound& bound) {
  const std::vector<Tensor> want = compute(on(inputs, Device{}));
  const std::vector<Tensor> got = on(compute(on(inputs, cuda())), Device{});
  const std::vector<Tensor> again = on(compute(on(inputs, cuda())), Device{});
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(cat("result ", i));
    ASSERT_EQ(got[i].dtype(), want[i].dtype());
    EXPECT_TRUE(near(got[i], want[i], bound.absolute, bound.relative));
    EXPECT_TRUE(same_bits(again[i], got[i])) << "two runs";
  }
}

// Compares y = f(variables) on the device with the CPU, and the gradients of sum(y r) for a
// random r.
template <class F>
void expect_gradients_like_cpu(F&& f, const std::vector<Tensor>& inputs, const Bound& bound) {
  expect_like_cpu(
      [&](const std::vector<Tensor>& tensors) {
        std::vector<Variable> leaves;
        for (const Tensor& t : tensors) {
          const bool real = t.defined() && is_floating(t.dtype());
          leaves.push_back(t.defined() ? Variable(t.clone(), real) : Variable());
        }
        const Variable y = f(leaves);
        const Tensor r = normal(y.shape(), y.dtype(), 99).to(y.device());
        sum(mul(y, Variable(r))).backward();
        std::vector<Tensor> out{y.value()};
        for (const Variable& leaf : leaves) {
          if (leaf.defined() && leaf.requires_grad()) out.push_back(leaf.grad());
        }
        return out;
      },
      inputs, bound);
}

}  // namespace convscope::testing
