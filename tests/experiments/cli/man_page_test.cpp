// SPDX-License-Identifier: Apache-2.0
// man_page_test.cpp: the manual page: well formed, and complete.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::call_shell;
using testing::Called;

// Returns the text without roff's marks.
std::string plain(std::string text) {
  for (const std::string mark : {"\\-", "\\e", "\\&"}) {
    const std::string is = mark == "\\-" ? "-" : mark == "\\e" ? "\\" : "";
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
      text.replace(at, 2, is);
      at += is.size();
    }
  }
  return text;
}

TEST(ManPage, IsWellFormed) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(call_program("man > convscope.1", folder.path()).code, 0);
  const bool mandoc = call_shell("command -v mandoc").code == 0;
  if (!mandoc && call_shell("command -v groff").code != 0) {
    GTEST_SKIP() << "neither mandoc nor groff is installed";
  }
  const Called checked = call_shell(mandoc ? "mandoc -T lint -W warning convscope.1 && mandoc "
                                             "convscope.1"
                                           : "groff -man -ww -Wbreak -T utf8 convscope.1",
                                    folder.path());
  EXPECT_EQ(checked.code, 0);
  EXPECT_EQ(checked.err, "");
  EXPECT_EQ(checked.out.find("WARNING"), std::string::npos) << checked.out;
  EXPECT_NE(checked.out.find("CONVSCOPE(1)"), std::string::npos);
}

TEST(ManPage, HasTheDayThatAPackageAsksFor) {
  const Called page =
      call_shell("SOURCE_DATE_EPOCH=86400 " CONVSCOPE_BINARY_DIR "/bin/convscope man");
  EXPECT_NE(page.out.find(".TH CONVSCOPE 1 1970-01-02 \"convscope "), std::string::npos);
}

TEST(ManPage, HasEveryCommandAndOptionOfTheHelp) {
  const std::string page = plain(call_program("man").out);
  std::istringstream commands(call_program("completion words :").out);
  int rows = 0;
  for (std::string line; std::getline(commands, line);) {
    const std::string command = line.substr(0, line.find('\t'));
    EXPECT_NE(page.find(".SS \"" + command + "\"\n"), std::string::npos) << command;
    std::istringstream help(call_program("help " + command).out);
    bool options = false;
    for (std::string row; std::getline(help, row);) {
      if (row.empty()) options = false;
      const std::size_t begin = row.find_first_not_of(' ');
      if (options && begin <= 6 && row[begin] == '-') {
        const std::size_t end = row.find("  ", begin);
        const std::string term = row.substr(begin, end - begin);
        EXPECT_NE(page.find("\n.B " + term + "\n"), std::string::npos) << command << ": " << term;
        ++rows;
      }
      if (row == "Options:") options = true;
    }
  }
  EXPECT_GT(rows, 20);
}

}  // namespace
}  // namespace convscope
