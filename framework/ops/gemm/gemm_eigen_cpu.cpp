// SPDX-License-Identifier: Apache-2.0
// gemm_eigen_cpu.cpp: computes the product of gemm.h with Eigen, on one thread. gemm.h states the
// purpose.
#define EIGEN_DONT_PARALLELIZE  // with OpenMP, Eigen would start more threads
#include <Eigen/Core>
#include <algorithm>

#include "framework/ops/gemm/gemm.h"

namespace convscope {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;
using ConstRows = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

}  // namespace

void gemm_eigen(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k,
                const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, bool accumulate) {
  if (m <= 0 || n <= 0) return;
  Rows to(c, m, n, Eigen::OuterStride<>(ldc));
  if (!accumulate) to.setZero();
  if (k <= 0) return;
  const ConstRows left(a, transpose_a ? k : m, transpose_a ? m : k, Eigen::OuterStride<>(lda));
  const ConstRows right(b, transpose_b ? n : k, transpose_b ? k : n, Eigen::OuterStride<>(ldb));
  if (transpose_a && transpose_b) {
    to.noalias() += left.transpose() * right.transpose();
  } else if (transpose_a) {
    to.noalias() += left.transpose() * right;
  } else if (transpose_b) {
    to.noalias() += left * right.transpose();
  } else {
    to.noalias() += left * right;
  }
}

}  // namespace convscope
