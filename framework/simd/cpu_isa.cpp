// SPDX-License-Identifier: Apache-2.0
// cpu_isa.cpp: chooses the instruction set of the kernels at run time.
#include "framework/simd/cpu_isa.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "framework/error_phase.h"

// The linker sets these symbols to the beginning and the end of the section that holds the tables
// of kernels (cpu_isa.h). They are null when there is no *_simd.cpp file.
extern "C" {
extern convscope::IsaEntry __start_convscope_isa[] __attribute__((weak, visibility("hidden")));
extern convscope::IsaEntry __stop_convscope_isa[] __attribute__((weak, visibility("hidden")));
}

namespace convscope {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
// VNNI for AVX2 is leaf 7, part 1, EAX bit 4 (Intel SDM, volume 2, CPUID). Clang 16 has no name for
// it.
bool has_avx_vnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}
bool has_vnni(Isa isa) {
  if (isa == Isa::avx512) return has_avx512() && __builtin_cpu_supports("avx512vnni");
  return isa == Isa::avx2 && has_avx2() && has_avx_vnni();
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_vnni(Isa) { return false; }
#endif

bool is_compiled(Isa isa) {
  constexpr Isa kCompiled[] = {CONVSCOPE_COMPILED_ISAS};  // CMake's CONVSCOPE_ISAS
  return std::ranges::find(kCompiled, isa) != std::end(kCompiled);
}

Isa best_isa() {
  if (is_compiled(Isa::avx512) && has_avx512()) return Isa::avx512;
  if (is_compiled(Isa::avx2) && has_avx2()) return Isa::avx2;
  return is_compiled(Isa::vector4) ? Isa::vector4 : Isa::scalar;
}

void check_supported(Isa isa) {
  if (!supports_isa(isa)) {
    fail(ErrorKind::kUnavailable, "isa",
         cat("expected an instruction set that this CPU runs and this build contains, got ",
             name_of(isa), "; the best here is ", name_of(best_isa())));
  }
}

Isa initial_isa() {
  const char* forced = std::getenv("CONVSCOPE_ISA");
  if (forced == nullptr || *forced == '\0') return best_isa();
  // The error concerns the machine, not a config, so its exit code does not depend on the caller.
  return in_phase(ErrorKind::kUnavailable, [&] {
    const Isa isa = parse_isa(forced);
    check_supported(isa);
    return isa;
  });
}

Isa enter_tables() {
  for (const IsaEntry* entry = __start_convscope_isa; entry != __stop_convscope_isa; ++entry) {
    *entry->slot = entry->kernels;
  }
  return initial_isa();
}

std::atomic<Isa>& setting() {
  static std::atomic<Isa> isa{enter_tables()};
  return isa;
}

std::atomic<bool>& vnni_setting() {
  const char* const said = std::getenv("CONVSCOPE_VNNI");
  static std::atomic<bool> allowed{said == nullptr || std::string_view(said) != "off"};
  return allowed;
}

}  // namespace

bool supports_vnni(Isa isa) {
  static const bool has[kIsaCount] = {false, false, has_vnni(Isa::avx2), has_vnni(Isa::avx512)};
  return has[static_cast<int>(isa)];
}

bool uses_vnni() {
  return vnni_setting().load(std::memory_order_relaxed) && supports_vnni(current_isa());
}

void set_vnni(bool allowed) { vnni_setting() = allowed; }

Isa current_isa() { return setting().load(std::memory_order_relaxed); }

bool supports_isa(Isa isa) {
  return is_compiled(isa) && static_cast<int>(isa) <= static_cast<int>(best_isa());
}

void set_isa(Isa isa) {
  check_supported(isa);
  setting() = isa;
}

Isa parse_isa(std::string_view text) {
  for (int i = 0; i < kIsaCount; ++i) {
    if (name_of(static_cast<Isa>(i)) == text) return static_cast<Isa>(i);
  }
  fail("isa", cat("expected scalar, vector4, avx2 or avx512, got '", text, "'"));
}

std::string cpu_features() {
  std::string out;
#if defined(__x86_64__)
#define CONVSCOPE_FEATURE(name) \
  if (__builtin_cpu_supports(name)) out += out.empty() ? name : " " name
  CONVSCOPE_FEATURE("sse4.2");
  CONVSCOPE_FEATURE("avx");
  CONVSCOPE_FEATURE("fma");
  CONVSCOPE_FEATURE("avx2");
  CONVSCOPE_FEATURE("avx512f");
  CONVSCOPE_FEATURE("avx512bw");
  CONVSCOPE_FEATURE("avx512dq");
  CONVSCOPE_FEATURE("avx512vl");
  CONVSCOPE_FEATURE("avx512vnni");
  if (has_avx_vnni()) out += " avxvnni";
  CONVSCOPE_FEATURE("avx512bf16");
#undef CONVSCOPE_FEATURE
#endif
  return out;
}

}  // namespace convscope
