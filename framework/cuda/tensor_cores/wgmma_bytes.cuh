// SPDX-License-Identifier: Apache-2.0
// wgmma_bytes.cuh: int8 matrix products of a warp group (128 threads) on sm_90a: A is u8 or i8, B
// is i8, both are in shared memory, and accumulators have 32 bits.
//
// One instruction multiplies [64 x 32] by [32 x N] bytes. Both operands are K-major, in rows of 128
// bytes that are swizzled as in wgmma.cuh. Only byte_tile.cuh includes this file.
// Source: PTX ISA, "Asynchronous warpgroup level matrix instructions"
#pragma once

#include <cstdint>

#define CONVSCOPE_D8(i)                                                               \
  "+r"(d[i]), "+r"(d[(i) + 1]), "+r"(d[(i) + 2]), "+r"(d[(i) + 3]), "+r"(d[(i) + 4]), \
      "+r"(d[(i) + 5]), "+r"(d[(i) + 6]), "+r"(d[(i) + 7])
#define CONVSCOPE_D32(i) \
  CONVSCOPE_D8(i), CONVSCOPE_D8((i) + 8), CONVSCOPE_D8((i) + 16), CONVSCOPE_D8((i) + 24)

namespace convscope {

#define CONVSCOPE_WGMMA_BYTES_64(TYPE)                                         \
  asm volatile(                                                                \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n64k32.s32." TYPE                       \
      ".s8 {"                                                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
      "%30, %31"                                                               \
      "}, %32, %33, p;\n}"                                                     \
      : CONVSCOPE_D32(0)                                                       \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_BYTES_128(TYPE)                                        \
  asm volatile(                                                                \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                             \
      "wgmma.mma_async.sync.aligned.m64n128k32.s32." TYPE                      \
      ".s8 {"                                                                  \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
      "%58, %59, %60, %61, %62, %63"                                           \
      "}, %64, %65, p;\n}"                                                     \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32)                                    \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

#define CONVSCOPE_WGMMA_BYTES_256(TYPE)                                           \
  asm volatile(                                                                   \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                               \
      "wgmma.mma_async.sync.aligned.m64n256k32.s32." TYPE                         \
      ".s8 {"                                                                     \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "    \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "    \
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "    \
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "    \
      "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "    \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, "    \
      "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "    \
      "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "  \
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "  \
      "%124, %125, %126, %127"                                                    \
      "}, %128, %129, p;\n}"                                                      \
      : CONVSCOPE_D32(0), CONVSCOPE_D32(32), CONVSCOPE_D32(64), CONVSCOPE_D32(96) \
      : "l"(a), "l"(b), "r"(add ? 1 : 0))

// Computes d = a b, or d += a b when `add`. All lanes of the warp group must call it together.
template <bool kSigned, int kColumns>
__device__ inline void wgmma_bytes(int (&d)[kColumns / 2], std::uint64_t a, std::uint64_t b,
                                   bool add) {
  static_assert(kColumns == 64 || kColumns == 128 || kColumns == 256);
  if constexpr (kColumns == 64 && kSigned) CONVSCOPE_WGMMA_BYTES_64("s8");
  if constexpr (kColumns == 64 && !kSigned) CONVSCOPE_WGMMA_BYTES_64("u8");
  if constexpr (kColumns == 128 && kSigned) CONVSCOPE_WGMMA_BYTES_128("s8");
  if constexpr (kColumns == 128 && !kSigned) CONVSCOPE_WGMMA_BYTES_128("u8");
  if constexpr (kColumns == 256 && kSigned) CONVSCOPE_WGMMA_BYTES_256("s8");
  if constexpr (kColumns == 256 && !kSigned) CONVSCOPE_WGMMA_BYTES_256("u8");
}

}  // namespace convscope

#undef CONVSCOPE_WGMMA_BYTES_64
#undef CONVSCOPE_WGMMA_BYTES_128
#undef CONVSCOPE_WGMMA_BYTES_256
#undef CONVSCOPE_D32
#undef CONVSCOPE_D8
