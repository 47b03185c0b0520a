// SPDX-License-Identifier: Apache-2.0
// fuzz_main.cpp: one libFuzzer program for each target, named by CONVSCOPE_FUZZ_TARGET
// (CMakeLists.txt).
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace convscope::testing;
  static const FuzzTarget& target = fuzz_target_named(CONVSCOPE_FUZZ_TARGET);
  run_target(target, {data, bytes});
  return 0;
}
