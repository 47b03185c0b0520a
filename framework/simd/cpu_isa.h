// SPDX-License-Identifier: Apache-2.0
// cpu_isa.h: which instruction set the kernels run on, chosen at run time.
//
// Kernels that depend on the instruction set stand in files named *_simd.cpp. CMake compiles each
// such file once for each instruction set; inside, CONVSCOPE_ISA names the namespace and simd.h
// gives the vectors. Each copy enters its table of kernels under its instruction set:
//
//   // gemm_simd.cpp
//   namespace convscope::CONVSCOPE_ISA { namespace { void tile(...) {...} } }
//   CONVSCOPE_SIMD_KERNELS(gemm_kernels, (GemmKernels{.tile = convscope::CONVSCOPE_ISA::tile}))
//
//   // gemm_cpu.cpp: constinit IsaTable<GemmKernels> gemm_kernels;   use:
//   gemm_kernels.get().tile(...)
//
// The entry is constant data in a section of its own, which current_isa() walks once. A start-up
// function would itself be compiled for the instruction set and stop an older CPU while it loads.
//
// Files named *_int8_simd.cpp multiply bytes. They are compiled twice for AVX2 and for AVX-512:
// without and with VNNI, the instruction that adds four products of bytes. The table holds both.
#pragma once

#include <string>
#include <string_view>

#include "framework/check.h"
#include "framework/export.h"

namespace convscope {

enum class Isa { scalar, avx2, avx512 };
inline constexpr int kIsaCount = 3;

constexpr std::string_view name_of(Isa isa) {
  constexpr std::string_view kNames[kIsaCount] = {"scalar", "avx2", "avx512"};
  return kNames[static_cast<int>(isa)];
}

// The best one that this CPU runs, or the one that CONVSCOPE_ISA or set_isa() forces.
CONVSCOPE_API Isa current_isa();
CONVSCOPE_API bool supports_isa(Isa isa);
// An error when this CPU does not run it. For tests and comparisons.
CONVSCOPE_API void set_isa(Isa isa);
CONVSCOPE_API Isa parse_isa(std::string_view text);
// Whether kernels of bytes use VNNI with this instruction set: the CPU has it, and neither
// CONVSCOPE_VNNI=off nor set_vnni(false) forbids it.
CONVSCOPE_API bool uses_vnni();
CONVSCOPE_API bool supports_vnni(Isa isa);
// For tests and comparisons; true has no effect where the CPU has none.
CONVSCOPE_API void set_vnni(bool allowed);
// "sse4_2 avx2 fma avx512f avx512vnni ...": what the CPU offers, for `convscope info`.
CONVSCOPE_API std::string cpu_features();

// One table of kernels for each instruction set. constinit, so registration order does not matter.
template <class Kernels>
class IsaTable {
 public:
  constexpr IsaTable() = default;
  const Kernels& get() const { return get(current_isa()); }
  const Kernels& get(Isa isa) const {
    current_isa();  // enters the tables on its first call
    const void* const with_vnni = vnni_[static_cast<int>(isa)];
    const bool use = with_vnni != nullptr && uses_vnni();
    return *static_cast<const Kernels*>(use ? with_vnni : tables_[static_cast<int>(isa)]);
  }
  constexpr const void** slot(Isa isa, bool vnni) {
    return &(vnni ? vnni_ : tables_)[static_cast<int>(isa)];
  }

 private:
  const void* tables_[kIsaCount]{};
  const void* vnni_[kIsaCount]{};  // null: one table serves both
};

// What a *_simd.cpp file leaves in the section: put `kernels` into `slot`.
struct IsaEntry {
  const void** slot;
  const void* kernels;
};

}  // namespace convscope

#if !defined(CONVSCOPE_ISA_VNNI)
#define CONVSCOPE_ISA_VNNI false
#endif

#define CONVSCOPE_SIMD_KERNELS(table, ...)                                                    \
  namespace convscope::CONVSCOPE_ISA {                                                        \
  namespace {                                                                                 \
  constexpr auto table##_here = __VA_ARGS__;                                                  \
  [[gnu::used, gnu::section("convscope_isa")]] constinit ::convscope::IsaEntry table##_entry{ \
      (table).slot(::convscope::Isa::CONVSCOPE_ISA_ENUM, CONVSCOPE_ISA_VNNI), &table##_here}; \
  }                                                                                           \
  }
