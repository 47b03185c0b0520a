// SPDX-License-Identifier: Apache-2.0
// measure_plugins_test.cpp: tests stored results of `measure` that were measured with a plug-in.
// They are not used without the plug-in or with another build of it. Results without plug-ins stay
// valid.
#include <gtest/gtest.h>

#include "layers/dispatch/plugin/plugin_algorithms.h"
#include "layers/dispatch/select.h"
#include "tests/support/cache_folder.h"

namespace convscope {
namespace {

Question question(const std::vector<std::string>& names) {
  Question out{"fake", "n=1", Direction::forward, Device{}, WeightUse::once, "", {}};
  for (const std::string& name : names) {
    Verdict& verdict = out.verdicts.emplace_back();
    verdict.algorithm = name;
    verdict.accepts = true;
  }
  return out;
}

std::string fastest(const std::vector<std::string>& names, const std::string& best, int& timed) {
  forget_measured();  // as in a new process
  return measured_fastest(key_of(question(names)), names, [&]() -> SecondsOf {
    ++timed;
    return [best](const std::string& name) { return name == best ? 1e-3 : 1e-2; };
  });
}

TEST(MeasurePlugins, AreRememberedApart) {
  const testing::CacheFolder cache;
  int timed = 0;
  EXPECT_EQ(fastest({"a", "b"}, "a", timed), "a");
  EXPECT_EQ(timed, 1);
  note_plugin_algorithm("fake", "mine", {.file = "/mine.so", .hash = "1111"});
  EXPECT_EQ(fastest({"a", "b", "mine"}, "mine", timed), "mine");  // not the remembered 'a'
  EXPECT_EQ(timed, 2);
  EXPECT_EQ(fastest({"a", "b", "mine"}, "a", timed), "mine");  // remembered
  EXPECT_EQ(timed, 2);
  EXPECT_EQ(fastest({"a", "b"}, "b", timed), "a");  // without the plug-in: the remembered one
  EXPECT_EQ(timed, 2);
  note_plugin_algorithm("fake", "mine", {.file = "/mine.so", .hash = "2222"});  // another build
  EXPECT_EQ(fastest({"a", "b", "mine"}, "b", timed), "b");
  EXPECT_EQ(timed, 3);
}

TEST(MeasurePlugins, StandInTheKeyWhereTheyAreCandidatesAlone) {
  note_plugin_algorithm("fake", "mine", {.file = "/mine.so", .hash = "1111"});
  EXPECT_EQ(key_of(question({"a", "mine"})).plugins, " | mine of plug-in 1111");
  Question refused = question({"a", "mine"});
  refused.verdicts[1].accepts = false;
  EXPECT_EQ(key_of(refused).plugins, "");
  Question by_name = question({"a", "mine"});
  by_name.verdicts[1].auto_ok = false;
  EXPECT_EQ(key_of(by_name).plugins, "");
  EXPECT_EQ(key_of(question({"a", "b"})).plugins, "");
}

}  // namespace
}  // namespace convscope
