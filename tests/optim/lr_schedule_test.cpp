// SPDX-License-Identifier: Apache-2.0
// lr_schedule_test.cpp: learning-rate schedules against formulas and PyTorch's rates.
#include "optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace convscope {
namespace {

Options defaults_of(const std::string& type) { return Options(schedule_types().get(type).fields); }

double rate(const std::string& type, const Options& options, double lr, std::int64_t step,
            std::int64_t total, std::int64_t per_epoch = 1, std::int64_t warmup = 0) {
  return scheduled_rate(type, options, lr, warmup,
                        {.step = step, .total_steps = total, .steps_per_epoch = per_epoch});
}

TEST(Schedule, ConstantStaysTheSame) {
  EXPECT_EQ(rate("constant", {}, 0.3, 0, 10), 0.3);
  EXPECT_EQ(rate("constant", {}, 0.3, 1000, 10), 0.3);
}

TEST(Schedule, StepDropsAtWholeEpochs) {
  Options options = defaults_of("step");
  options.set("every_epochs", std::int64_t{2});
  options.set("gamma", 0.5);
  EXPECT_EQ(rate("step", options, 1.0, 0, 60, 10), 1.0);
  EXPECT_EQ(rate("step", options, 1.0, 19, 60, 10), 1.0);
  EXPECT_EQ(rate("step", options, 1.0, 20, 60, 10), 0.5);
  EXPECT_EQ(rate("step", options, 1.0, 59, 60, 10), 0.25);
}

// o = torch.optim.SGD([w], lr=0.4); s = CosineAnnealingLR(o, T_max=10, eta_min=0.04); s.step() ...
TEST(Schedule, CosineGivesPyTorchsRates) {
  Options options = defaults_of("cosine");
  options.set("min_lr", 0.04);
  const double expected[] = {0.4,         0.391190173, 0.365623059, 0.325801345,  0.275623059, 0.22,
                             0.164376941, 0.114198655, 0.074376941, 0.0488098271, 0.04};
  for (int step = 0; step <= 10; ++step) {
    EXPECT_NEAR(rate("cosine", options, 0.4, step, 10), expected[step], 1e-9) << step;
  }
  EXPECT_EQ(rate("cosine", options, 0.4, 25, 10), 0.04);  // constant past the end
}

// OneCycleLR(o, max_lr=0.4, total_steps=20)
TEST(Schedule, OneCycleGivesPyTorchsRates) {
  const Options options = defaults_of("one_cycle");
  const double expected[] = {0.016,        0.0526687371, 0.148668737,  0.267331263,   0.363331263,
                             0.4,          0.394985602,  0.380193853,  0.356366471,   0.324698262,
                             0.286777201,  0.244504809,  0.2000008,    0.155496791,   0.113224399,
                             0.0753033384, 0.043635129,  0.0198077472, 0.00501599751, 1.6e-06};
  for (int step = 0; step < 20; ++step) {
    EXPECT_NEAR(rate("one_cycle", options, 0.4, step, 20), expected[step], 1e-9) << step;
  }
}

TEST(Schedule, OneCycleIsDefinedForTheShortestRunsAndAnyShare) {
  for (double share : {0.0, 0.3, 1.0}) {
    Options options = defaults_of("one_cycle");
    options.set("pct_start", share);
    for (std::int64_t total : {1, 2, 3, 7}) {
      for (std::int64_t step = 0; step <= total; ++step) {
        const double value = rate("one_cycle", options, 1.0, step, total);
        EXPECT_TRUE(value > 0 && value <= 1.0) << share << " " << step << "/" << total;
      }
    }
  }
}

TEST(Schedule, WarmUpRisesInALineAndMultipliesAnySchedule) {
  EXPECT_EQ(rate("constant", {}, 1.0, 0, 100, 1, 4), 0.25);
  EXPECT_EQ(rate("constant", {}, 1.0, 2, 100, 1, 4), 0.75);
  EXPECT_EQ(rate("constant", {}, 1.0, 3, 100, 1, 4), 1.0);
  EXPECT_EQ(rate("constant", {}, 1.0, 4, 100, 1, 4), 1.0);
  for (const std::string& type : schedule_types().names()) {
    const Options options = defaults_of(type);
    EXPECT_DOUBLE_EQ(rate(type, options, 0.1, 1, 50, 5, 8),
                     rate(type, options, 0.1, 1, 50, 5) * 2 / 8)
        << type;
  }
}

TEST(Schedule, NamesTheKnownSchedulesInAnError) {
  try {
    rate("cosin", {}, 1.0, 0, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[schedule] unknown schedule 'cosin'; did you mean 'cosine'? (known: constant, "
                 "cosine, one_cycle, step)");
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
  }
  EXPECT_THROW(rate("constant", {}, 1.0, 0, 0), Error);
  EXPECT_THROW(rate("constant", {}, 1.0, -1, 1), Error);
  EXPECT_THROW(rate("constant", {}, 1.0, 0, 1, 1, -2), Error);
}

TEST(Schedule, DocumentsEachFieldAndAcceptsItsOwnDefaults) {
  for (const auto& [name, type] : schedule_types().entries()) {
    EXPECT_FALSE(type.doc.empty()) << name;
    for (const OptionField& field : type.fields) {
      EXPECT_FALSE(field.doc.empty()) << name << "." << field.name;
      EXPECT_EQ(refusal_of(field, field.default_value), "") << name << "." << field.name;
    }
  }
}

}  // namespace
}  // namespace convscope
