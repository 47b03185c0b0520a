// SPDX-License-Identifier: Apache-2.0
// hostile_bytes_test.cpp: tests every parser with all prefixes, single flipped bits and random
// changes of valid files. These tests are short and repeatable; tests/fuzz/run.sh runs long ones.
#include <gtest/gtest.h>

#include "framework/random.h"
#include "tests/fuzz/targets.h"

namespace convscope {
namespace {

using testing::bytes_of;
using testing::FuzzTarget;

class HostileBytes : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  // Returns the distance between the tested positions of an input. Testing all positions of a long
  // input would take too long: one test takes about 1 ms for a config, and several ms for a run
  // folder.
  static std::size_t step(const std::string& seed) {
    const std::string_view name = GetParam().name;
    const bool is_folder = name.ends_with("_folder") || name == "bench" || name == "checkpoint";
    const std::size_t places = name == "run_page"                                          ? 2
                               : is_folder                                                 ? 15
                               : name == "config" || name == "sweep" || name == "baseline" ? 40
                                                                                           : 400;
    return std::max<std::size_t>(1, seed.size() / places);
  }
};

TEST_P(HostileBytes, SoundInputsAreRead) {
  ASSERT_FALSE(GetParam().seeds().empty());
  for (const std::string& seed : GetParam().seeds())
    EXPECT_NO_THROW(GetParam().run(bytes_of(seed)));
}

TEST_P(HostileBytes, EveryBeginningIsReadOrRefused) {
  for (const std::string& seed : GetParam().seeds()) {
    for (std::size_t bytes = 0; bytes < seed.size(); bytes += step(seed)) {
      // Copies the bytes to a separate allocation, so that a sanitizer detects a read of the first
      // byte after the end.
      const std::vector<std::uint8_t> part(seed.begin(),
                                           seed.begin() + static_cast<std::ptrdiff_t>(bytes));
      testing::run_target(GetParam(), part);
    }
  }
}

TEST_P(HostileBytes, ChangedBitsAndBytesAreReadOrRefused) {
  Generator random(1);
  for (const std::string& seed : GetParam().seeds()) {
    for (std::size_t at = 0; at < seed.size(); at += step(seed)) {
      std::vector<std::uint8_t> changed(seed.begin(), seed.end());
      changed[at] ^= static_cast<std::uint8_t>(1u << random.below(8));
      testing::run_target(GetParam(), changed);
      const std::uint32_t more = 1 + random.below(6);
      for (std::uint32_t i = 0; i < more; ++i) {
        changed[random.below(static_cast<std::uint32_t>(changed.size()))] =
            static_cast<std::uint8_t>(random.below(256));
      }
      testing::run_target(GetParam(), changed);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Parsers, HostileBytes, ::testing::ValuesIn(testing::fuzz_targets()),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace convscope
