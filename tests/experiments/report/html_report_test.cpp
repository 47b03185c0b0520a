// SPDX-License-Identifier: Apache-2.0
// html_report_test.cpp: the report is one page that needs no other file.
#include "experiments/report/html_report.h"

#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

TEST(HtmlReport, is_one_page_that_needs_no_other_file) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1);
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  folder.write("config.yaml", "name: <small>\n");
  Progress progress(Progress::Mode::quiet);
  Trainer(setup, folder, progress).run();
  const std::string page = text_of(folder.file("report.html"));
  EXPECT_EQ(page, html_report(folder.path()));
  for (const char* text : {"name: &lt;small&gt;", "Learning rate", "Training curves",
                           "Time of a training step", "Memory of a training step"}) {
    EXPECT_NE(page.find(text), std::string::npos) << text;
  }
  for (const char* outside : {"src=", "href=", "@import", "<script", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

}  // namespace
}  // namespace convscope::testing
