// SPDX-License-Identifier: Apache-2.0
// blas_cuda.cu: computes row-major products with cuBLAS, which is column-major. It computes C^T =
// B^T A^T: A and B exchange their places, and nothing is copied.
#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"

#if defined(CONVSCOPE_CUDA_EMULATED)
#include "framework/cuda/emulation/blas.h"
#else
#include <cublas_v2.h>
#endif

namespace convscope {
#if !defined(CONVSCOPE_CUDA_EMULATED)
namespace {

void check_cublas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorKind::kRun, "cuda", cat(what, " failed: ", cublasGetStatusString(status)));
}

// Returns the cuBLAS handle of this host thread, which is never destroyed. It has a custom
// workspace, so that calls in a captured graph allocate nothing. NVIDIA recommends 32 MiB for
// Hopper.
cublasHandle_t handle() {
  constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
  static cublasHandle_t made = [] {
    cublasHandle_t h = nullptr;
    check_cublas(cublasCreate(&h), "cublasCreate");
    void* workspace = nullptr;
    check_cuda(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc of the cuBLAS workspace");
    check_cublas(cublasSetStream(h, cuda_stream()), "cublasSetStream");
    check_cublas(cublasSetWorkspace(h, workspace, kWorkspaceBytes), "cublasSetWorkspace");
    return h;
  }();
  return made;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      fail("cuda", cat("expected matrices of f32, f64, f16 or bf16, got ", name_of(dtype)));
  }
}

cublasComputeType_t compute_of(DType dtype, MathMode math) {
  if (dtype == DType::f64) return CUBLAS_COMPUTE_64F;
  if (dtype == DType::f32 && math == MathMode::tf32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return CUBLAS_COMPUTE_32F;
}

int narrow(std::int64_t size) {
  CONVSCOPE_CHECK(size <= 0x7fffffff, "cuda", "expected matrix sizes below 2^31, got ", size);
  return static_cast<int>(size);
}

}  // namespace

void blas_gemm(const BlasGemm& g) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  const float alpha32 = static_cast<float>(g.alpha);
  const float beta32 = static_cast<float>(g.beta);
  const bool wide = g.dtype == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&g.alpha) : &alpha32;
  const void* beta = wide ? static_cast<const void*>(&g.beta) : &beta32;
  const auto op = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
  const auto type = type_of(g.dtype);
  const auto type_c = type_of(g.dtype_c);
  // cuBLAS requires leading dimensions of at least 1, also when K is 0.
  const auto leading = [](std::int64_t ld) { return narrow(ld > 0 ? ld : 1); };
  if (g.batch == 1) {
    check_cublas(
        cublasGemmEx(handle(), op(g.transpose_b), op(g.transpose_a), narrow(g.n), narrow(g.m),
                     narrow(g.k), alpha, g.b, type, leading(g.ldb), g.a, type, leading(g.lda), beta,
                     g.c, type_c, leading(g.ldc), compute_of(g.dtype, g.math), CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
    return;
  }
  check_cublas(cublasGemmStridedBatchedEx(
                   handle(), op(g.transpose_b), op(g.transpose_a), narrow(g.n), narrow(g.m),
                   narrow(g.k), alpha, g.b, type, leading(g.ldb), g.stride_b, g.a, type,
                   leading(g.lda), g.stride_a, beta, g.c, type_c, leading(g.ldc), g.stride_c,
                   narrow(g.batch), compute_of(g.dtype, g.math), CUBLAS_GEMM_DEFAULT),
               "cublasGemmStridedBatchedEx");
}

void blas_gemm(const BlasComplexGemm& g) {
  if (g.m == 0 || g.n == 0 || g.batch == 0) return;
  const cuComplex alpha = make_cuComplex(static_cast<float>(g.alpha), 0.0f);
  const cuComplex beta = make_cuComplex(static_cast<float>(g.beta), 0.0f);
  const auto op = [](bool transpose, bool conjugate) {
    return conjugate ? CUBLAS_OP_C : transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  const auto leading = [](std::int64_t ld) { return narrow(ld > 0 ? ld : 1); };
  check_cublas(
      cublasCgemmStridedBatched(
          handle(), op(g.transpose_b, g.conjugate_b), op(g.transpose_a, g.conjugate_a), narrow(g.n),
          narrow(g.m), narrow(g.k), &alpha, reinterpret_cast<const cuComplex*>(g.b), leading(g.ldb),
          g.stride_b, reinterpret_cast<const cuComplex*>(g.a), leading(g.lda), g.stride_a, &beta,
          reinterpret_cast<cuComplex*>(g.c), leading(g.ldc), g.stride_c, narrow(g.batch)),
      "cublasCgemmStridedBatched");
}
#endif

}  // namespace convscope
