// SPDX-License-Identifier: Apache-2.0
// library_words_test.cpp: tests the error for a damaged JSON file. It names the position of the
// damage, and contains neither words of the JSON library nor raw bytes of the file.
#include <gtest/gtest.h>

#include <fstream>

#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "framework/io/json_text.h"
#include "framework/io/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

void expect_plain(const std::string& said) {
  EXPECT_EQ(said.find("json.exception"), std::string::npos) << said;
  EXPECT_NE(said.find("line 1"), std::string::npos) << said;
  for (const char letter : said) EXPECT_GE(letter, ' ') << said;
}

const std::string kDamaged = "{\"state\": \"\x1b[31m\xff\"";

TEST(LibraryWords, AreLeftOutOfAStatus) {
  const TemporaryFolder folder;
  std::ofstream(folder / "status.json") << kDamaged;
  const RunStatus status = read_run_status(folder.path());
  EXPECT_EQ(status.state, "UNREADABLE");
  expect_plain(status.reason);
}

TEST(LibraryWords, AreLeftOutOfASummary) {
  try {
    parse_summary(kDamaged);
    FAIL() << "a damaged summary was read";
  } catch (const Error& error) {
    expect_plain(error.what());
  }
}

TEST(LibraryWords, AreLeftOutOfTheHeadOfATensorFile) {
  std::string file(1, static_cast<char>(kDamaged.size()));
  file += std::string(7, '\0') + kDamaged;
  try {
    parse_safetensors({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "x");
    FAIL() << "a damaged header was read";
  } catch (const Error& error) {
    expect_plain(error.what());
  }
}

TEST(LibraryWords, AreCutOffAtTheirEndAlone) {
  EXPECT_EQ(json_problem("[json.exception.out_of_range.403] key 'a' not found"),
            "key 'a' not found");
  EXPECT_EQ(json_problem("no [brackets] in front"), "no [brackets] in front");
  EXPECT_EQ(json_problem("[json.exception."), "[json.exception.");
  EXPECT_EQ(json_problem("a\n\xc3"), "a\\x0A\\xC3");
}

}  // namespace
}  // namespace convscope::testing
