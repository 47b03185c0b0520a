// SPDX-License-Identifier: Apache-2.0
// clean_text_test.cpp: the text that a terminal gets.
#include "framework/io/clean_text.h"

#include <gtest/gtest.h>

#include "framework/check.h"

namespace convscope {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

TEST(CleanText, LeavesTextAsItIs) {
  const std::string text = "a ± b\n\tc, 10 µs, \xE6\xBC\xA2, \xF0\x9F\x99\x82";
  EXPECT_EQ(clean_text(text), text);
  EXPECT_EQ(clean_line("a\nb\tc"), "a b c");
}

TEST(CleanText, TakesAwayWhatActs) {
  EXPECT_EQ(clean_text("\x1b[31mred\x1b]0;title\x07"),
            kMark + "[31mred" + kMark + "]0;title" + kMark);
  EXPECT_EQ(clean_text("over\rwrite\x7f\b"), "over" + kMark + "write" + kMark + kMark);
  EXPECT_EQ(clean_text("\xC2\x9B"
                       "31m"),
            kMark + "31m");  // CSI as a single character
  EXPECT_EQ(clean_text("\xE2\x80\xAE"
                       "fdp.exe"),
            kMark + "fdp.exe");  // from right to left
  EXPECT_EQ(clean_text(std::string_view("a\0b", 3)), "a" + kMark + "b");
}

TEST(CleanText, TakesAwayWhatIsNoUtf8) {
  EXPECT_EQ(clean_text("\x9B"
                       "31m \xC3"),
            kMark + "31m " + kMark);
  EXPECT_EQ(clean_text("\xC0\x9B"), kMark + kMark);              // overlong
  EXPECT_EQ(clean_text("\xED\xA0\x80"), kMark + kMark + kMark);  // a surrogate
  EXPECT_EQ(clean_text("\xF4\x90\x80\x80"), kMark + kMark + kMark + kMark);
}

TEST(CleanText, ErrorsAreClean) {
  EXPECT_STREQ(Error(ErrorKind::kIo, "read", "got \x1b[2J").what(),
               ("[read] got " + kMark + "[2J").c_str());
}

}  // namespace
}  // namespace convscope
