// SPDX-License-Identifier: Apache-2.0
// blas.cpp: computes each element of C as one sum in double, rounded once, so no library is more
// accurate. With tf32, it rounds the operands as tensor cores do, so results show the larger error
// of tf32.
#include "framework/cuda/emulation/blas.h"

#include <bit>
#include <complex>
#include <cstdint>
#include <vector>

#include "framework/check.h"
#include "framework/cuda/emulation/overlap.h"
#include "framework/cuda/emulation/threads.h"

namespace convscope {
namespace {

float to_tf32(float value) {  // 10 bits of mantissa, ties away from zero
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

double element(const void* data, DType dtype, std::int64_t i, bool tf32) {
  switch (dtype) {
    case DType::f32: {
      const float value = static_cast<const float*>(data)[i];
      return tf32 ? to_tf32(value) : value;
    }
    case DType::f64:
      return static_cast<const double*>(data)[i];
    case DType::f16:
      return static_cast<float>(static_cast<const Float16*>(data)[i]);
    case DType::bf16:
      return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    default:
      fail("cuda", cat("expected matrices of f32, f64, f16 or bf16, got ", name_of(dtype)));
  }
}

void store(void* data, DType dtype, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::f64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::f16:
      static_cast<Float16*>(data)[i] = Float16(static_cast<float>(value));
      return;
    case DType::bf16:
      static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
      return;
    default:
      fail("cuda", cat("expected a matrix of f32, f64, f16 or bf16, got ", name_of(dtype)));
  }
}

// Copies op(X) to a dense row-major matrix of doubles.
std::vector<double> unpack(const void* data, DType dtype, std::int64_t first, std::int64_t rows,
                           std::int64_t columns, std::int64_t ld, bool transpose, bool tf32) {
  std::vector<double> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t at = first + (transpose ? c * ld + r : r * ld + c);
      out[static_cast<std::size_t>(r * columns + c)] = element(data, dtype, at, tf32);
    }
  }
  return out;
}

void multiply(const BlasGemm& g) {
  const bool tf32 = g.dtype == DType::f32 && g.math == MathMode::tf32;
  std::vector<double> row(static_cast<std::size_t>(g.n));
  for (std::int64_t i = 0; i < g.batch; ++i) {
    const auto a = unpack(g.a, g.dtype, i * g.stride_a, g.m, g.k, g.lda, g.transpose_a, tf32);
    const auto b = unpack(g.b, g.dtype, i * g.stride_b, g.k, g.n, g.ldb, g.transpose_b, tf32);
    for (std::int64_t m = 0; m < g.m; ++m) {
      row.assign(row.size(), 0.0);
      for (std::int64_t k = 0; k < g.k; ++k) {
        const double factor = a[static_cast<std::size_t>(m * g.k + k)];
        const double* from = b.data() + k * g.n;
        for (std::int64_t n = 0; n < g.n; ++n) row[static_cast<std::size_t>(n)] += factor * from[n];
      }
      for (std::int64_t n = 0; n < g.n; ++n) {
        const std::int64_t at = i * g.stride_c + m * g.ldc + n;
        const double old = g.beta == 0 ? 0.0 : g.beta * element(g.c, g.dtype_c, at, false);
        store(g.c, g.dtype_c, at, g.alpha * row[static_cast<std::size_t>(n)] + old);
      }
    }
  }
}

void multiply(const BlasComplexGemm& g) {
  using Complex = std::complex<double>;
  const auto at = [](const float* data, std::int64_t first, std::int64_t row, std::int64_t column,
                     std::int64_t ld, bool transpose, bool conjugate) {
    const float* p = data + 2 * (first + (transpose ? column * ld + row : row * ld + column));
    return Complex(p[0], conjugate ? -p[1] : p[1]);
  };
  std::vector<Complex> row(static_cast<std::size_t>(g.n));
  for (std::int64_t i = 0; i < g.batch; ++i) {
    for (std::int64_t m = 0; m < g.m; ++m) {
      row.assign(row.size(), Complex{});
      for (std::int64_t k = 0; k < g.k; ++k) {
        const Complex factor = at(g.a, i * g.stride_a, m, k, g.lda, g.transpose_a, g.conjugate_a);
        for (std::int64_t n = 0; n < g.n; ++n) {
          row[static_cast<std::size_t>(n)] +=
              factor * at(g.b, i * g.stride_b, k, n, g.ldb, g.transpose_b, g.conjugate_b);
        }
      }
      for (std::int64_t n = 0; n < g.n; ++n) {
        float* c = g.c + 2 * (i * g.stride_c + m * g.ldc + n);
        Complex sum = g.alpha * row[static_cast<std::size_t>(n)];
        if (g.beta != 0) sum += g.beta * Complex(c[0], c[1]);
        c[0] = static_cast<float>(sum.real());
        c[1] = static_cast<float>(sum.imag());
      }
    }
  }
}

template <class Gemm>
void queue(const Gemm& gemm) {
  if (gemm.m == 0 || gemm.n == 0 || gemm.batch == 0) return;
  const auto work = [gemm] { emulation::overlap::run_library([&] { multiply(gemm); }); };
  if (emulation::is_capturing()) {
    emulation::capture(work);
  } else {
    work();
  }
}

}  // namespace

void blas_gemm(const BlasGemm& gemm) { queue(gemm); }

void blas_gemm(const BlasComplexGemm& gemm) {
  // As in cuBLAS, an operand can only be conjugated if it is also transposed.
  CONVSCOPE_CHECK(
      (!gemm.conjugate_a || gemm.transpose_a) && (!gemm.conjugate_b || gemm.transpose_b), "cuda",
      "expected a conjugate only together with a transpose");
  queue(gemm);
}

}  // namespace convscope
