// SPDX-License-Identifier: Apache-2.0
// index_test.cpp: tests the index page of all runs: rows, links and escaping.
// tests/experiments/browser/pages_test.py tests searching and sorting in a browser.
#include <gtest/gtest.h>

#include "experiments/report/index/index_page.h"
#include "experiments/report/index/sparkline.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/xml_check.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

std::string table_of(const std::string& page) {
  const std::size_t begin = page.find("<table id=\"runs\"");
  return page.substr(begin, page.find("</table>", begin) + 8 - begin);
}

TEST(RunIndex, lists_every_run_newest_first_with_its_curve) {
  const TemporaryFolder root;
  write_run(root.path(), {.name = "a", .seed = 1});
  write_run(root.path(), {.name = "b", .seed = 2, .test_acc = 95, .epochs = 3});
  const RunIndex index = read_run_index(root.path());
  ASSERT_EQ(index.runs.size(), 2);
  EXPECT_EQ(index.runs[0].row.summary.name, "b");
  EXPECT_EQ(index.runs[0].test_acc, (std::vector<double>{93, 94, 95}));
  EXPECT_TRUE(index.sweeps.empty());
}

TEST(RunIndex, keeps_the_settings_that_differ) {
  const TemporaryFolder root;
  write_run(root.path(), {.name = "a", .config = "data:\n  batch_size: 64\noptim:\n  lr: 0.1\n"});
  write_run(root.path(), {.name = "b", .config = "data:\n  batch_size: 64\noptim:\n  lr: 0.2\n"});
  const RunIndex index = read_run_index(root.path());
  EXPECT_EQ(index.runs[0].settings.size(), 1);
  EXPECT_EQ(index.runs[0].settings.count("optim.lr"), 1);
  write_text(root.path() + "/c/2026-01-01_000000-s1/config.yaml", "[");
  EXPECT_EQ(read_run_index(root.path()).runs[0].settings.size(), 1) << "an unreadable one";
}

TEST(RunIndex, plain_settings_skips_lists_of_blocks) {
  const auto settings = plain_settings(
      "seed: 1\nmodel:\n  layers:\n    - type: conv2d\n      kernel: 3\n    - {type: relu}\n"
      "  widths: [6, 16]\noptim:\n  schedule:\n    type: cosine\n  lr: 0.05\n");
  EXPECT_EQ(settings, (std::map<std::string, std::string>{{"seed", "1"},
                                                          {"model.widths", "[6, 16]"},
                                                          {"optim.schedule.type", "cosine"},
                                                          {"optim.lr", "0.05"}}));
}

TEST(RunIndex, a_run_that_cannot_be_read_is_a_row_with_the_reason) {
  const TemporaryFolder root;
  write_text(root.path() + "/a/2026-01-01_000000-s1/config.yaml", "name: a\n");
  const RunIndex index = read_run_index(root.path());
  ASSERT_EQ(index.runs.size(), 1);
  const std::string page = index_page("runs", index, root.path());
  EXPECT_NE(page.find(">UNREADABLE<"), std::string::npos);
  EXPECT_NE(page.find("status.json is missing"), std::string::npos);
}

TEST(RunIndex, names_of_users_are_escaped) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  RunSummary summary;
  summary.name = "<script>alert(1)</script>";
  summary.tags = "\"><img src=x>";
  summary.note = "a & b";
  write_text(folder + "/summary.json", to_json_text(summary));
  const std::string table = table_of(index_page("<i>", read_run_index(root.path()), root.path()));
  EXPECT_EQ(table.find("<script"), std::string::npos);
  EXPECT_EQ(table.find("<img"), std::string::npos);
  EXPECT_NE(table.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  expect_well_formed(table);
}

TEST(RunIndex, links_are_relative_to_the_page_and_escaped) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path() + "/runs", {.name = "50% #1?"});
  const std::string inside = "50%25%20%231%3F/2026-01-01_000000-s1/report.html";
  const RunIndex without = read_run_index(root.path() + "/runs");
  EXPECT_EQ(index_page("t", without, root.path() + "/runs").find("report.html"), std::string::npos);
  write_text(folder + "/report.html", "x");
  const RunIndex index = read_run_index(root.path() + "/runs");
  EXPECT_NE(index_page("t", index, root.path() + "/runs").find("href=\"" + inside + "\""),
            std::string::npos);
  EXPECT_NE(index_page("t", index, root.path() + "/pages").find("href=\"../runs/" + inside + "\""),
            std::string::npos);
  EXPECT_EQ(url_of_path("a:b/\xC3\xA4"), "a%3Ab/%C3%A4");
}

TEST(RunIndex, a_sweep_is_listed_with_its_members) {
  const TemporaryFolder root;
  write_run(root.path() + "/sweep", {.name = "row"});
  write_text(root.path() + "/sweep/sweep.state.json",
             R"({"state": "DONE", "members": [{"state": "done"}, {"state": "done"},
                                              {"state": "missing"}]})");
  write_text(root.path() + "/sweep/sweep.md", "table");
  const RunIndex index = read_run_index(root.path());
  ASSERT_EQ(index.sweeps.size(), 1);
  EXPECT_EQ(index.runs.at(0).sweep, "sweep");
  const std::string page = index_page("runs", index, root.path());
  EXPECT_NE(page.find("2 done, 1 to do"), std::string::npos);
  EXPECT_NE(page.find("href=\"sweep/sweep.md\""), std::string::npos);
}

TEST(RunIndex, a_broken_state_file_of_a_sweep_is_a_row) {
  const TemporaryFolder root;
  write_run(root.path() + "/sweep", {.name = "row"});
  write_text(root.path() + "/sweep/sweep.state.json", "{");
  EXPECT_EQ(read_run_index(root.path()).sweeps.at(0).state, "UNREADABLE");
}

TEST(Sparkline, rises_and_falls_with_its_values) {
  EXPECT_EQ(sparkline({}, ""), "");
  const std::string line = sparkline({10, 20, 15}, "a <b>");
  EXPECT_NE(line.find("points=\"3.0,19.0 42.0,3.0 81.0,11.0\""), std::string::npos) << line;
  expect_well_formed(line);
  // Noise of a tenth of a percent must look flat.
  EXPECT_NE(sparkline({98.0, 98.1}, "").find("points=\"3.0,11.4 81.0,10.6\""), std::string::npos)
      << sparkline({98.0, 98.1}, "");
}

}  // namespace
}  // namespace convscope::testing
