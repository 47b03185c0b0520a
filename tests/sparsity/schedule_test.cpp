// SPDX-License-Identifier: Apache-2.0
// schedule_test.cpp: how sparse a network is after a number of steps.
#include <cmath>

#include "tests/sparsity/networks.h"

namespace convscope::testing {
namespace {

using Text = std::string;

// Expected share: f(t) = drop_fraction / 2 (1 + cos(pi t / end)), and 0 in the first and the last
// update.
TEST(Schedule, rigl_replaces_the_share_of_the_cosine) {
  const SparsitySchedule schedule(options_of({{"method", Text("rigl")},
                                              {"target", 0.8},
                                              {"start", 0.1},
                                              {"end", 0.8},
                                              {"drop_fraction", 0.4},
                                              {"every_steps", std::int64_t{50}}}),
                                  1000);  // from step 100 to step 800
  for (const std::int64_t steps : {0, 100, 800, 900}) EXPECT_EQ(schedule.replaced(steps), 0);
  EXPECT_NEAR(schedule.replaced(200), 0.2 * (1 + std::sqrt(0.5)), 1e-12);  // cos(pi / 4)
  EXPECT_NEAR(schedule.replaced(400), 0.2, 1e-12);
  EXPECT_NEAR(schedule.replaced(600), 0.2 * (1 - std::sqrt(0.5)), 1e-12);
}

TEST(Schedule, cubic_follows_the_formula_of_zhu_and_gupta_and_changes_every_n_steps) {
  const SparsitySchedule schedule(
      options_of(
          {{"method", Text("magnitude")}, {"target", 0.8}, {"every_steps", std::int64_t{50}}}),
      1000);  // from step 150 to step 750
  EXPECT_EQ(schedule.sparsity(0), 0);
  EXPECT_EQ(schedule.sparsity(149), 0);
  for (std::int64_t steps : {150, 200, 400, 700}) {
    const double t = static_cast<double>(steps - 150) / 600;
    EXPECT_NEAR(schedule.sparsity(steps), 0.8 * (1 - std::pow(1 - t, 3)), 1e-12) << steps;
    EXPECT_TRUE(schedule.update_due(steps)) << steps;
    EXPECT_FALSE(schedule.update_due(steps + 1)) << steps;
    EXPECT_EQ(schedule.sparsity(steps + 49), schedule.sparsity(steps)) << "until the next update";
    EXPECT_FALSE(schedule.finished(steps));
  }
  EXPECT_EQ(schedule.sparsity(750), 0.8);
  EXPECT_TRUE(schedule.update_due(750));
  EXPECT_TRUE(schedule.finished(750));
  EXPECT_FALSE(schedule.update_due(800));
}

TEST(Schedule, reaches_its_target_when_the_steps_do_not_divide) {
  const SparsitySchedule schedule(
      options_of(
          {{"method", Text("magnitude")}, {"target", 0.7}, {"every_steps", std::int64_t{64}}}),
      1003);
  EXPECT_TRUE(schedule.update_due(schedule.last_update()));
  EXPECT_EQ(schedule.sparsity(schedule.last_update()), 0.7);
}

TEST(Schedule, one_shot_cuts_once) {
  const SparsitySchedule schedule(options_of({{"method", Text("magnitude")},
                                              {"schedule", Text("one_shot")},
                                              {"target", 0.5},
                                              {"start", 0.2}}),
                                  100);
  int updates = 0;
  for (std::int64_t steps = 0; steps <= 100; ++steps) updates += schedule.update_due(steps) ? 1 : 0;
  EXPECT_EQ(updates, 1);
  EXPECT_TRUE(schedule.update_due(20));
  EXPECT_EQ(schedule.sparsity(19), 0);
  EXPECT_EQ(schedule.sparsity(20), 0.5);
}

TEST(Schedule, iterative_takes_the_same_share_of_the_rest_in_each_round) {
  const SparsitySchedule schedule(options_of({{"method", Text("magnitude")},
                                              {"schedule", Text("iterative")},
                                              {"target", 0.875},
                                              {"rounds", std::int64_t{3}},
                                              {"start", 0.2},
                                              {"end", 0.6}}),
                                  100);
  std::vector<std::int64_t> updates;
  for (std::int64_t steps = 0; steps <= 100; ++steps) {
    if (schedule.update_due(steps)) updates.push_back(steps);
  }
  EXPECT_EQ(updates, (std::vector<std::int64_t>{20, 40, 60}));
  EXPECT_NEAR(schedule.sparsity(20), 0.5, 1e-12);
  EXPECT_NEAR(schedule.sparsity(40), 0.75, 1e-12);
  EXPECT_NEAR(schedule.sparsity(60), 0.875, 1e-12);
}

TEST(Schedule, reaches_its_target_in_a_run_of_one_step) {
  for (const char* name : {"one_shot", "cubic", "iterative"}) {
    const SparsitySchedule schedule(
        options_of({{"method", Text("magnitude")}, {"schedule", Text(name)}, {"target", 0.5}}), 1);
    EXPECT_EQ(schedule.sparsity(1), 0.5) << name;
  }
}

TEST(SparsityOptions, that_cannot_be_are_refused_in_words) {
  const auto message = [](const std::map<std::string, OptionValue>& given) -> Text {
    try {
      options_of(given);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "accepted";
  };
  using Integers = std::vector<std::int64_t>;
  EXPECT_NE(message({{"target", 1.5}}).find("target"), Text::npos) << message({{"target", 1.5}});
  EXPECT_NE(message({{"target", -0.1}}).find("target"), Text::npos);
  EXPECT_NE(message({{"method", Text("magnitud")}}).find("magnitude"), Text::npos);
  EXPECT_NE(message({{"block", Integers{16}}}).find("[rows, columns]"), Text::npos);
  EXPECT_NE(message({{"block", Integers{0, 1}}}).find("block"), Text::npos);
  EXPECT_NE(message({{"start", 0.9}}).find("start <= end"), Text::npos);
  EXPECT_NE(message({{"method", Text("n_m")}, {"n", std::int64_t{4}}}).find("n below m"),
            Text::npos);
  EXPECT_NE(message({{"method", Text("n_m")}, {"distribution", Text("erk")}}).find("uniform"),
            Text::npos);
  EXPECT_NE(message({{"method", Text("rigl")}, {"distribution", Text("global")}}).find("global"),
            Text::npos);
  EXPECT_NE(message({{"targt", 0.5}}).find("did you mean 'target'"), Text::npos);
}

}  // namespace
}  // namespace convscope::testing
