// SPDX-License-Identifier: Apache-2.0
// cpu_isa.h: chooses the instruction set of the kernels at run time.
//
// Kernels that depend on the instruction set are in files named *_simd.cpp. CMake compiles each
// such file once per instruction set. In it, CONVSCOPE_ISA is the namespace, and simd.h provides
// the vectors. Each copy adds its table of kernels under its instruction set:
//
//   // gemm_simd.cpp
//   namespace convscope::CONVSCOPE_ISA { namespace { void tile(...) {...} } }
//   CONVSCOPE_SIMD_KERNELS(gemm_kernels, (GemmKernels{.tile = convscope::CONVSCOPE_ISA::tile}))
//
//   // gemm_cpu.cpp: constinit IsaTable<GemmKernels> gemm_kernels;   use:
//   gemm_kernels.get().tile(...)
//
// Each table is constant data in a separate section of the library, which current_isa() reads once.
// The alternative, a start-up function in each file, would be compiled for the instruction set,
// too, and would crash older CPUs at load time.
//
// Files named *_int8_simd.cpp multiply int8 values. For AVX2 and for AVX-512, they are compiled
// twice, without and with VNNI. A VNNI instruction adds four int8 products in each lane. An
// IsaTable holds both versions.
#pragma once

#include <string>
#include <string_view>

#include "framework/check.h"
#include "framework/export.h"

namespace convscope {

// In ascending order of the number of lanes. vector4 runs on every CPU.
enum class Isa { scalar, vector4, avx2, avx512 };
inline constexpr int kIsaCount = 4;

constexpr std::string_view name_of(Isa isa) {
  constexpr std::string_view kNames[kIsaCount] = {"scalar", "vector4", "avx2", "avx512"};
  return kNames[static_cast<int>(isa)];
}

// Returns the widest instruction set that this CPU supports, unless CONVSCOPE_ISA or set_isa() sets
// another instruction set.
CONVSCOPE_API Isa current_isa();
CONVSCOPE_API bool supports_isa(Isa isa);
// Forces an instruction set; throws when this CPU lacks it. For tests and comparisons.
CONVSCOPE_API void set_isa(Isa isa);
CONVSCOPE_API Isa parse_isa(std::string_view text);
// Returns true if int8 kernels use VNNI with the current instruction set: the CPU has VNNI, and
// neither CONVSCOPE_VNNI=off nor set_vnni(false) disables it.
CONVSCOPE_API bool uses_vnni();
CONVSCOPE_API bool supports_vnni(Isa isa);
// Allows or forbids VNNI, for tests and comparisons; true has no effect on a CPU without VNNI.
CONVSCOPE_API void set_vnni(bool allowed);
// Returns "sse4_2 avx2 fma avx512f avx512vnni ...": the CPU's features, for `convscope info`.
CONVSCOPE_API std::string cpu_features();

// A table of kernels for each instruction set. It is constinit, so it exists before any file
// registers kernels.
template <class Kernels>
class IsaTable {
 public:
  constexpr IsaTable() = default;
  const Kernels& get() const { return get(current_isa()); }
  const Kernels& get(Isa isa) const {
    current_isa();  // fills the tables on its first call
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

// An entry of the section of tables. Each *_simd.cpp file defines one entry per table, and
// current_isa() stores `kernels` in `slot`.
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
