// SPDX-License-Identifier: Apache-2.0
// options_test.cpp: typed options: defaults, refusals and suggestions.
#include "framework/options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/registry.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const OptionField kRate{.name = "rate",
                        .type = OptionType::number,
                        .default_value = 0.5,
                        .doc = "a rate",
                        .min = 0,
                        .max = 1};
const OptionField kWord{.name = "word",
                        .type = OptionType::text,
                        .default_value = std::string("relu"),
                        .doc = "a word",
                        .choices = {"relu", "tanh"}};
const OptionField kSizes{.name = "sizes", .type = OptionType::integers, .doc = "sizes", .min = 1};

TEST(Options, DefaultsAreFilledInAndReadByType) {
  Options options({kRate, kWord, kSizes});
  EXPECT_EQ(options.number("rate"), 0.5);
  EXPECT_EQ(options.text("word"), "relu");
  EXPECT_FALSE(options.has("sizes"));
  options.set("sizes", std::vector<std::int64_t>{3, 4});
  EXPECT_EQ(options.integers("sizes")[1], 4);
  options.set("rate", std::int64_t{1});
  EXPECT_EQ(options.number("rate"), 1.0);
}

TEST(Options, ReadingAMissingOrDifferentValueIsAnError) {
  const Options options({kRate, kSizes});
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a value for 'speed', got none",
               options.number("speed"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 'rate' to be text, got '0.5'", options.text("rate"));
  EXPECT_ERROR(ErrorKind::kInvalid, "got 'null'", options.integers("sizes"));
}

TEST(Options, RefusalsSayWhatWasExpected) {
  EXPECT_EQ(refusal_of(kRate, 0.25), "");
  EXPECT_EQ(refusal_of(kRate, std::int64_t{1}), "");
  EXPECT_EQ(refusal_of(kRate, 1.5), "expected 0 to 1, got 1.5");
  EXPECT_EQ(refusal_of(kRate, std::string("abc")), "expected a number, got 'abc'");
  EXPECT_NE(refusal_of(kRate, std::nan("")), "");
  EXPECT_EQ(refusal_of(kWord, std::string("tanh")), "");
  EXPECT_EQ(refusal_of(kWord, std::string("rleu")),
            "expected one of relu, tanh, got 'rleu'; did you mean 'relu'?");
  EXPECT_EQ(refusal_of(kSizes, std::int64_t{3}), "");
  EXPECT_EQ(refusal_of(kSizes, std::vector<std::int64_t>{3, 0}), "expected at least 1, got 0");
  EXPECT_EQ(refusal_of(kSizes, std::monostate{}), "");
  OptionField required = kSizes;
  required.required = true;
  EXPECT_NE(refusal_of(required, std::monostate{}), "");
}

TEST(Options, ValuesAreWrittenAsInYaml) {
  EXPECT_EQ(to_text(std::monostate{}), "null");
  EXPECT_EQ(to_text(true), "true");
  EXPECT_EQ(to_text(0.1), "0.1");
  EXPECT_EQ(to_text(1.0), "1.0");
  EXPECT_EQ(to_text(std::vector<std::int64_t>{1, 2}), "[1, 2]");
  EXPECT_EQ(std::stod(to_text(1.0 / 3)), 1.0 / 3);
}

TEST(Registry, FindsSuggestsAndRefusesDoubles) {
  Registry<int> table("animal");
  table.add("horse", 1, "horse.cpp");
  table.add("ant", 2, "ant.cpp");
  EXPECT_EQ(table.get("horse"), 1);
  EXPECT_EQ(table.names(), (std::vector<std::string>{"ant", "horse"}));
  EXPECT_EQ(table.file_of("ant"), "ant.cpp");
  EXPECT_EQ(table.find("cow"), nullptr);
  EXPECT_ERROR(ErrorKind::kConfig,
               "[animal] unknown animal 'hores'; did you mean 'horse'? (known: ant, horse)",
               table.get("hores"));
  EXPECT_ERROR(ErrorKind::kUnavailable,
               "unknown animal 'zebra' (known:", table.get("zebra", ErrorKind::kUnavailable));
  EXPECT_ERROR(ErrorKind::kInvalid, "ant.cpp has it already and other.cpp adds it again",
               table.add("ant", 3, "other.cpp"));
}

TEST(Registry, TheNearestWordAllowsSwapsAndKnowsItsLimits) {
  const std::vector<std::string> known{"kernel_size", "padding", "stride"};
  EXPECT_EQ(nearest_word("kernel_szie", known), "kernel_size");
  EXPECT_EQ(nearest_word("paddin", known), "padding");
  EXPECT_EQ(nearest_word("dilation", known), "");
  EXPECT_EQ(nearest_word("", known), "");
}

}  // namespace
}  // namespace convscope
