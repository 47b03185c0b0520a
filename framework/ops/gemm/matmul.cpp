// SPDX-License-Identifier: Apache-2.0
// matmul.cpp: products of matrices. f32 uses the project's register-tiled product
// (framework/ops/gemm/gemm.h) or, if the caller names it, Eigen's product; f64 is for gradient
// checks.
#include "framework/ops/gemm/matmul.h"

namespace convscope {

constinit KernelSlot<void(const MatmulArguments&)> matmul_kernel{"matmul"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> fill_rows_kernel{"linear"};

namespace {

constexpr Transpose flip(Transpose t) {
  return t == Transpose::no ? Transpose::yes : Transpose::no;
}

void check_operands(const Tensor& a, const Tensor& b, const char* operation) {
  CONVSCOPE_CHECK(a.defined() && (a.dtype() == DType::f32 || a.dtype() == DType::f64), operation,
                  "expected operands of type f32 or f64, got ", a.str());
  CONVSCOPE_CHECK(b.defined() && b.dtype() == a.dtype() && b.device() == a.device(), operation,
                  "expected two operands of one type on one device, got ", a.str(), " and ",
                  b.str());
  CONVSCOPE_CHECK(a.rank() == 2 && b.rank() == 2, operation, "expected two matrices (rank 2), got ",
                  a.shape(), " and ", b.shape());
}

// Adds op(a) op(b) to the gradient of `input`.
void product_into(GradientSink& out, int input, const Tensor& a, Transpose ta, const Tensor& b,
                  Transpose tb, MatmulEngine engine) {
  const GradientSink::Target to = out.target(input);
  matmul_kernel.get(a.device())({.a = a,
                                 .b = b,
                                 .c = to.tensor,
                                 .transpose_a = ta,
                                 .transpose_b = tb,
                                 .accumulate = to.accumulate,
                                 .engine = engine});
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b, Transpose transpose_a, Transpose transpose_b,
              MatmulEngine engine) {
  check_operands(a, b, "matmul");
  const bool ta = transpose_a == Transpose::yes;
  const bool tb = transpose_b == Transpose::yes;
  const std::int64_t k_a = a.dim(ta ? 0 : 1);
  const std::int64_t k_b = b.dim(tb ? 1 : 0);
  CONVSCOPE_CHECK(k_a == k_b, "matmul", "expected as many columns of ", ta ? "a^T" : "a",
                  " as rows of ", tb ? "b^T" : "b", ", got ", a.shape(), " and ", b.shape());
  Tensor c = Tensor::empty({a.dim(ta ? 1 : 0), b.dim(tb ? 0 : 1)}, a.dtype(), a.device());
  matmul_kernel.get(a.device())({.a = a,
                                 .b = b,
                                 .c = c,
                                 .transpose_a = transpose_a,
                                 .transpose_b = transpose_b,
                                 .engine = engine});
  return c;
}

Variable matmul(const Variable& a, const Variable& b, Transpose transpose_a, Transpose transpose_b,
                MatmulEngine engine) {
  Tensor c = matmul(a.value(), b.value(), transpose_a, transpose_b, engine);
  return record(
      "matmul", c, {a, b},
      // Saves each operand if the other one needs a gradient.
      [a = b.requires_grad() ? a.value() : Tensor(), b = a.requires_grad() ? b.value() : Tensor(),
       ta = transpose_a, tb = transpose_b, engine](const Tensor& dc, GradientSink& out) {
        if (out.wants(0)) {  // d op(a) = dc op(b)^T; transposed if a was transposed
          if (ta == Transpose::no) {
            product_into(out, 0, dc, Transpose::no, b, flip(tb), engine);
          } else {
            product_into(out, 0, b, tb, dc, Transpose::yes, engine);
          }
        }
        if (out.wants(1)) {  // d op(b) = op(a)^T dc
          if (tb == Transpose::no) {
            product_into(out, 1, a, flip(ta), dc, Transpose::no, engine);
          } else {
            product_into(out, 1, dc, Transpose::yes, a, ta, engine);
          }
        }
      });
}

}  // namespace convscope
