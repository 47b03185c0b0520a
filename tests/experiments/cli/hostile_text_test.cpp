// SPDX-License-Identifier: Apache-2.0
// hostile_text_test.cpp: tests that hostile text in files has no effect in the output: control
// sequences of terminals, formulas of spreadsheets, syntax of configs.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/report/text_table.h"
#include "experiments/run_folder/run_folder.h"
#include "framework/io/atomic_file.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;
using testing::TemporaryFolder;
using testing::text_of;

constexpr const char* kEscape = "\x1b[2J\x1b]0;owned\x07";

bool acts(const std::string& text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) return true;
  }
  return false;
}

class HostileText : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(root / "c.yaml",
               "name: small\ndata: {set: synthetic_digits, train_size: 64, test_size: 32}\n"
               "model: {type: lenet5}\ntrain: {epochs: 1}\n");
  }
  Called call(const std::string& words) const { return call_program(words, root.path()); }
  void expect_clean(const std::string& words) const {
    const Called done = call(words);
    EXPECT_FALSE(acts(done.out)) << words << "\n" << done.out;
    EXPECT_FALSE(acts(done.err)) << words << "\n" << done.err;
    EXPECT_FALSE((done.out + done.err).empty());
  }
  TemporaryFolder root;
};

TEST_F(HostileText, OfARunsFilesReachesNoTerminal) {
  EXPECT_EQ(call("run c.yaml -q").code, 0);
  const std::string run = resolve_run(root / "runs/small");
  auto summary = nlohmann::json::parse(text_of(run + "/summary.json"));
  for (const char* field : {"name", "note", "tags", "algorithm", "model", "device_name"}) {
    summary[field] = kEscape;
  }
  write_file(run + "/summary.json", summary.dump());
  auto status = nlohmann::json::parse(text_of(run + "/status.json"));
  status["reason"] = status["host"] = kEscape;
  status["state"] = "FAILED";
  write_file(run + "/status.json", status.dump());
  write_file(run + "/log.txt", std::string("2026-01-01T00:00:00Z ") + kEscape + "\n");
  write_file(run + "/config.yaml",
             text_of(run + "/config.yaml") + "\"" + "\\e[31m" + "\": \"\\e[2J\"\n");
  for (const char* words :
       {"report runs", "report runs -c id,name,note,tags,algorithm,state,reason", "note runs/small",
        "report runs -f latex", "watch runs/small --once", "compare runs/small runs/small",
        "eval runs/small", "run --resume runs/small", "config check runs/small/latest/config.yaml",
        "plot runs/small --kind curves -o p.svg"}) {
    expect_clean(words);
  }
}

TEST_F(HostileText, OfAConfigReachesNoTerminal) {
  write_file(root / "n.yaml",
             "name: small\nnote: \"a\\e[31mb\"\n"
             "data: {set: synthetic_digits, train_size: 64, test_size: 32}\n"
             "layers: [{type: conv2d, name: \"a\\e[31m\", out_channels: 2, kernel_size: 3}, "
             "{type: flatten}, {type: linear, out_features: 10}]\n");
  for (const char* words : {"explain n.yaml", "explain n.yaml --all", "config show n.yaml",
                            "config check n.yaml", "run n.yaml --dry-run",
                            "config show c.yaml "
                            "\"seed=\x1b[31m\"",
                            "config show \"\x1b[31m.yaml\""}) {
    expect_clean(words);
  }
}

// The output escapes every control character, as YAML allows, so no text is lost.
TEST_F(HostileText, OfAConfigIsTheSameWhenItIsReadAgain) {
  write_file(root / "n.yaml",
             "name: small\ndata: {set: mnist, root: \"a\\tb\\e\\x01\"}\nmodel: {type: lenet5}\n");
  const Called shown = call("run n.yaml --dry-run");
  EXPECT_EQ(shown.code, 0) << shown.err;
  write_file(root / "again.yaml", shown.out);
  EXPECT_EQ(call("run again.yaml --dry-run").out, shown.out);
}

TEST_F(HostileText, CellsOfCsvAreNoFormulas) {
  TextTable table;
  table.columns = {{"text"}, {"number"}};
  for (const char* text :
       {"=1+1", "+cmd", "-cmd|' /C calc'!A0", "@SUM(A1)", "\tx", "-", "-1.5e3", "+7", "plain"}) {
    table.rows.push_back({std::string(text), -2.5});
  }
  EXPECT_EQ(to_csv(table),
            "text,number\n'=1+1,-2.5\n'+cmd,-2.5\n'-cmd|' /C calc'!A0,-2.5\n'@SUM(A1),-2.5\n"
            "'\tx,-2.5\n-,-2.5\n-1.5e3,-2.5\n'+7,-2.5\nplain,-2.5\n");
}

TEST_F(HostileText, AnOverrideOfTwoLinesLeavesAReadableSweep) {
  write_file(root / "s.yaml", text_of(root / "c.yaml") + "sweep: {seeds: [1, 2]}\n");
  const Called done = call("sweep s.yaml -q --jobs 1 'note=\"a\nb: [\"'");
  EXPECT_EQ(done.code, 0) << done.err;
  const std::string sweep = "runs/small/sweep.yaml";
  EXPECT_EQ(call("config check " + sweep).code, 0) << text_of(root / sweep);
}

}  // namespace
}  // namespace convscope
