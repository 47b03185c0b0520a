// SPDX-License-Identifier: Apache-2.0
// wgmma_tf32.cuh: matrix products of a warp group with f32 operands in shared memory, which the
// tensor cores read as tf32 (sm_90a).
//
// One instruction multiplies [64 x 8] by [8 x N]. Both operands are K-major, in rows as in
// wgmma.cuh: the hardware cannot transpose tf32 operands. Accumulators are as in wgmma.cuh.
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions"
// Read next  matrix_step.cuh
#pragma once

#include <cstdint>

#define CONVSCOPE_D8(i)                                                               \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define CONVSCOPE_D32(i) \
  CONVSCOPE_D8(i), CONVSCOPE_D8((i) + 8), CONVSCOPE_D8((i) + 16), CONVSCOPE_D8((i) + 24)

namespace convscope {

#define CONVSCOPE_WGMMA_TF32_16                               \
  asm volatile(                                               \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"            \
      "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 {" \
      "%0, %1, %2, %3, %4, %5, %6, %7"                        \
      "}, %8, %9, p, 1, 1;\n}"                                \
      : CONVSCOPE_D8(0)                                       \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_TF32_64                                                        \
  asm volatile(                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {"                          \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
      "}, %32, %33, p, 1, 1;\n}"                                                       \
      : CONVSCOPE_D32(0)                                                               \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_TF32_128                                                         \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"                           \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"   \
      "}, %64, %65, p, 1, 1;\n}"                                                         \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32)                                              \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_TF32_256                                                                   \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {"                                     \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                     \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "           \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "           \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "           \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
      "%111, "                                                                                     \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
      "%127"                                                                                       \
      "}, %128, %129, p, 1, 1;\n}"                                                                 \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32), CONVSCOPE_D32(64), CONVSCOPE_D32(96)                  \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

// Computes d = a b, or d += a b when `add`. All lanes of the warp group must call it together.
template <int kColumns>
__device__ inline void wgmma_tf32(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                  bool add) {
  static_assert(kColumns == 16 || kColumns == 64 || kColumns == 128 || kColumns == 256);
  if constexpr (kColumns == 16) CONVSCOPE_WGMMA_TF32_16;
  if constexpr (kColumns == 64) CONVSCOPE_WGMMA_TF32_64;
  if constexpr (kColumns == 128) CONVSCOPE_WGMMA_TF32_128;
  if constexpr (kColumns == 256) CONVSCOPE_WGMMA_TF32_256;
}

}  // namespace convscope

#undef CONVSCOPE_WGMMA_TF32_16
#undef CONVSCOPE_WGMMA_TF32_64
#undef CONVSCOPE_WGMMA_TF32_128
#undef CONVSCOPE_WGMMA_TF32_256
#undef CONVSCOPE_D32
#undef CONVSCOPE_D8
