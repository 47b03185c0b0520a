// SPDX-License-Identifier: Apache-2.0
// wgmma.cuh: matrix products of a warp group (128 threads) on sm_90a. B is in shared memory; A is
// in shared memory or in registers.
//
// One instruction multiplies [64 x 16] by [16 x N] 16-bit elements. A descriptor specifies where an
// operand is in shared memory: rows of 128 bytes whose 16-byte pieces are swizzled
// (matrix_tile.cuh). Only matrix_tile.cuh includes this file.
#pragma once

#include <cstdint>

#include "framework/dtype.h"

#define CONVSCOPE_D8(i)                                                               \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define CONVSCOPE_D32(i) \
  CONVSCOPE_D8(i), CONVSCOPE_D8((i) + 8), CONVSCOPE_D8((i) + 16), CONVSCOPE_D8((i) + 24)

namespace convscope {

// Makes a descriptor of an operand. Rows of 128 (64, 32) bytes are swizzled in units of 1024 (512,
// 256) bytes, which is mode 1 (2, 3) in the top bits. In a K-major operand, groups of 8 rows are
// 1024 bytes apart. In an M/N-major operand, groups of 8 indices of K are 1024 bytes apart, and
// blocks of 64 columns are `block_bytes` apart.
__device__ inline std::uint64_t wgmma_descriptor(const void* shared, unsigned block_bytes,
                                                 unsigned row_bytes = 128) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  return static_cast<std::uint64_t>((address & 0x3ffffu) >> 4) |
         static_cast<std::uint64_t>(block_bytes >> 4) << 16 |
         static_cast<std::uint64_t>(row_bytes * 8 >> 4) << 32 |
         static_cast<std::uint64_t>(row_bytes == 128  ? 1
                                    : row_bytes == 64 ? 2
                                                      : 3)
             << 62;
}

#define CONVSCOPE_WGMMA_16(TYPE)                                  \
  asm volatile(                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE \
      " {"                                                        \
      "%0, %1, %2, %3, %4, %5, %6, %7"                            \
      "}, %8, %9, p, 1, 1, %11, %12;\n}"                          \
      : CONVSCOPE_D8(0)                                           \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

#define CONVSCOPE_WGMMA_32(TYPE)                                             \
  asm volatile(                                                              \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"                           \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE            \
      " {"                                                                   \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
      "}, %16, %17, p, 1, 1, %19, %20;\n}"                                   \
      : CONVSCOPE_D8(0), CONVSCOPE_D8(8)                                     \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

#define CONVSCOPE_WGMMA_64(TYPE)                                                       \
  asm volatile(                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                      \
      " {"                                                                             \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
      "}, %32, %33, p, 1, 1, %35, %36;\n}"                                             \
      : CONVSCOPE_D32(0)                                                               \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

#define CONVSCOPE_WGMMA_128(TYPE)                                                        \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                       \
      " {"                                                                               \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"   \
      "}, %64, %65, p, 1, 1, %67, %68;\n}"                                               \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32)                                              \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

#define CONVSCOPE_WGMMA_192(TYPE)                                                        \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"                                       \
      "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE                       \
      " {"                                                                               \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"   \
      "}, %96, %97, p, 1, 1, %99, %100;\n}"                                              \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32), CONVSCOPE_D32(64)                           \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

#define CONVSCOPE_WGMMA_256(TYPE)                                                                  \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE                                 \
      " {"                                                                                         \
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
      "}, %128, %129, p, 1, 1, %131, %132;\n}"                                                     \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32), CONVSCOPE_D32(64), CONVSCOPE_D32(96)                  \
      : "l"(a), "l"(b), "r"(add ? 1 : 0), "n"(kAOuter ? 1 : 0), "n"(kBOuter ? 1 : 0))

// Computes d = a b, or d += a b when `add`. All lanes of the warp group must call it together.
template <class Half, int kColumns, bool kAOuter, bool kBOuter = kAOuter>
__device__ inline void wgmma(float (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b, bool add) {
  constexpr bool kBFloat = dtype_of<Half> == DType::bf16;
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64 || kColumns == 128 ||
                kColumns == 192 || kColumns == 256);
  if constexpr (kColumns == 16 && kBFloat) CONVSCOPE_WGMMA_16("bf16");
  if constexpr (kColumns == 16 && !kBFloat) CONVSCOPE_WGMMA_16("f16");
  if constexpr (kColumns == 32 && kBFloat) CONVSCOPE_WGMMA_32("bf16");
  if constexpr (kColumns == 32 && !kBFloat) CONVSCOPE_WGMMA_32("f16");
  if constexpr (kColumns == 64 && kBFloat) CONVSCOPE_WGMMA_64("bf16");
  if constexpr (kColumns == 64 && !kBFloat) CONVSCOPE_WGMMA_64("f16");
  if constexpr (kColumns == 128 && kBFloat) CONVSCOPE_WGMMA_128("bf16");
  if constexpr (kColumns == 128 && !kBFloat) CONVSCOPE_WGMMA_128("f16");
  if constexpr (kColumns == 192 && kBFloat) CONVSCOPE_WGMMA_192("bf16");
  if constexpr (kColumns == 192 && !kBFloat) CONVSCOPE_WGMMA_192("f16");
  if constexpr (kColumns == 256 && kBFloat) CONVSCOPE_WGMMA_256("bf16");
  if constexpr (kColumns == 256 && !kBFloat) CONVSCOPE_WGMMA_256("f16");
}

// Computes the same product as above, but with A in registers: 16 rows per warp, laid out as in
// mma.cuh. B is K-major.
#define CONVSCOPE_WGMMA_ROWS_16(TYPE)                             \
  asm volatile(                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"                \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE \
      " {"                                                        \
      "%0, %1, %2, %3, %4, %5, %6, %7"                            \
      "}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;\n}"                \
      : CONVSCOPE_D8(0)                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_ROWS_32(TYPE)                                        \
  asm volatile(                                                              \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"                           \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE            \
      " {"                                                                   \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
      "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;\n}"                         \
      : CONVSCOPE_D8(0), CONVSCOPE_D8(8)                                     \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_ROWS_64(TYPE)                                                  \
  asm volatile(                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                     \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                      \
      " {"                                                                             \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}"                                   \
      : CONVSCOPE_D32(0)                                                               \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0))

template <class Half, int kColumns>
__device__ inline void wgmma_rows(float (&d)[kColumns / 2], const unsigned (&a)[4], std::uint64_t b,
                                  bool add) {
  constexpr bool kBFloat = dtype_of<Half> == DType::bf16;
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64);
  if constexpr (kColumns == 16 && kBFloat) CONVSCOPE_WGMMA_ROWS_16("bf16");
  if constexpr (kColumns == 16 && !kBFloat) CONVSCOPE_WGMMA_ROWS_16("f16");
  if constexpr (kColumns == 32 && kBFloat) CONVSCOPE_WGMMA_ROWS_32("bf16");
  if constexpr (kColumns == 32 && !kBFloat) CONVSCOPE_WGMMA_ROWS_32("f16");
  if constexpr (kColumns == 64 && kBFloat) CONVSCOPE_WGMMA_ROWS_64("bf16");
  if constexpr (kColumns == 64 && !kBFloat) CONVSCOPE_WGMMA_ROWS_64("f16");
}

// Sets the number of registers per thread, a multiple of 8. All warps of a warp group call it
// together, and each group calls it in a separate branch of an if/else. An increase waits until
// other groups have released enough registers.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Call before the first wgmma that reads registers written by this thread.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroups>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

}  // namespace convscope

#undef CONVSCOPE_WGMMA_ROWS_16
#undef CONVSCOPE_WGMMA_ROWS_32
#undef CONVSCOPE_WGMMA_ROWS_64
#undef CONVSCOPE_WGMMA_16
#undef CONVSCOPE_WGMMA_32
#undef CONVSCOPE_WGMMA_64
#undef CONVSCOPE_WGMMA_128
#undef CONVSCOPE_WGMMA_192
#undef CONVSCOPE_WGMMA_256
#undef CONVSCOPE_D32
#undef CONVSCOPE_D8
