// SPDX-License-Identifier: Apache-2.0
// options_test.cpp: typed options: defaults, refusals and suggestions.
#include "framework/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "framework/number_text.h"
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
const OptionField kShares{.name = "shares", .type = OptionType::numbers, .doc = "shares", .min = 0};

TEST(Options, DefaultsAreFilledInAndReadByType) {
  Options options({kRate, kWord, kSizes});
  EXPECT_EQ(options.number("rate"), 0.5);
  EXPECT_EQ(options.text("word"), "relu");
  EXPECT_FALSE(options.has("sizes"));
  options.set("sizes", std::vector<std::int64_t>{3, 4});
  EXPECT_EQ(options.integers("sizes")[1], 4);
  options.set("rate", std::int64_t{1});
  EXPECT_EQ(options.number("rate"), 1.0);
  options.set("shares", std::vector<double>{0.25, 2});
  EXPECT_EQ(options.numbers("shares")[0], 0.25);
  EXPECT_EQ(to_text(options.get("shares")), "[0.25, 2.0]");
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
  EXPECT_EQ(refusal_of(kShares, std::vector<double>{0.5, 0}), "");
  EXPECT_EQ(refusal_of(kShares, std::vector<double>{0.5, -0.5}), "expected at least 0, got -0.5");
  EXPECT_EQ(refusal_of(kShares, 0.5), "expected a list of numbers, got '0.5'");
  EXPECT_NE(refusal_of(kShares, std::vector<double>{1e300}), "");
  OptionField beta = kRate;  // an open interval
  beta.max = std::nextafter(1.0, 0.0);
  EXPECT_EQ(refusal_of(beta, std::int64_t{1}), "expected at least 0 and below 1, got 1");
  EXPECT_EQ(refusal_of(beta, 1.5), "expected at least 0 and below 1, got 1.5");
  beta.min = std::nextafter(0.0, 1.0);
  EXPECT_EQ(refusal_of(beta, std::int64_t{0}), "expected above 0 and below 1, got 0");
  EXPECT_EQ(refusal_of(kRate, 1 + 1e-9), "expected 0 to 1, got 1.000000001");
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
  EXPECT_EQ(parse_number<double>(to_text(1.0 / 3)), 1.0 / 3);
  // PyYAML follows YAML 1.1: a real number needs a decimal point, and its exponent needs a sign.
  const std::regex yaml_1_1("[-+]?([0-9][0-9_]*)\\.[0-9_]*([eE][-+][0-9]+)?|[-+]?\\.inf|\\.nan");
  for (const double value : {1e-5, 5e-4, 1e6, 1e20, 1.5e-7, 1e300, 1e-310, 4.9e-324, 0.1, 3.0, 1e16,
                             -0.0, -2.5e-9, 1.0 / 3, HUGE_VAL, -HUGE_VAL}) {
    const std::string text = to_text(value);
    EXPECT_TRUE(std::regex_match(text, yaml_1_1)) << text;
    EXPECT_EQ(parse_number<double>(text).value_or(value), value) << text;  // none: .inf
  }
  EXPECT_EQ(to_text(1e-5), "1.0e-05");
}

// std::stod() throws for a denormal number.
TEST(Options, NumbersThatF32DoesNotHoldAreRefused) {
  const OptionField any{.name = "lr", .type = OptionType::number};
  for (const double value : {0.0, -0.0, 1.5e-45, 1e-40, -1e-39, 3.4e38}) {
    EXPECT_EQ(refusal_of(any, value), "") << value;
  }
  EXPECT_EQ(refusal_of(any, 1e-310),
            "expected 0 or a size from 1.4e-45 to 3.4e+38, because f32 holds no smaller one, got "
            "1.0e-310");
  EXPECT_NE(refusal_of(any, 1e39).find("no larger one, got 1.0e+39"), std::string::npos);
}

TEST(NumberText, IsTheWholeTextOrNoNumber) {
  EXPECT_EQ(parse_number<double>("1e-310"), 1e-310);
  EXPECT_EQ(parse_number<double>("+3.5"), 3.5);
  EXPECT_EQ(parse_number<int>("+3"), 3);
  for (const char* text : {"", "+", "+-3", " 1", "1 ", "1x", "0x10", "1e999", "1e-999", "1_000"}) {
    EXPECT_FALSE(parse_number<double>(text)) << text;
  }
  for (const char* text : {"", "1.0", "99999999999", "-", "1e3"}) {
    EXPECT_FALSE(parse_number<int>(text)) << text;
  }
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
  EXPECT_ERROR(ErrorKind::kInvalid, "ant.cpp adds it and other.cpp adds it again",
               table.add("ant", 3, "other.cpp"));
}

TEST(Registry, TheNearestWordAllowsSwapsAndKnowsItsLimits) {
  const std::vector<std::string> known{"kernel_size", "padding", "stride"};
  EXPECT_EQ(nearest_word("kernel_szie", known), "kernel_size");
  EXPECT_EQ(nearest_word("paddin", known), "padding");
  EXPECT_EQ(nearest_word("dilation", known), "");
  EXPECT_EQ(nearest_word("", known), "");
  // A correct or nearly correct prefix selects the shortest word.
  EXPECT_EQ(nearest_word("kernel", known), "kernel_size");
  EXPECT_EQ(nearest_word("kernal", {"kernel_size", "kernel_size_of_all"}), "kernel_size");
  EXPECT_EQ(nearest_word("str", known), "");
}

}  // namespace
}  // namespace convscope
