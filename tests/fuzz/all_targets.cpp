// SPDX-License-Identifier: Apache-2.0
// all_targets.cpp: the targets, compiled once for all libFuzzer programs.
#include "tests/fuzz/targets.h"

namespace convscope::testing {

const FuzzTarget& fuzz_target_named(std::string_view name) { return *find_fuzz_target(name); }

}  // namespace convscope::testing
