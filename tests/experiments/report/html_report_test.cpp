// SPDX-License-Identifier: Apache-2.0
// html_report_test.cpp: tests that the HTML report needs no other file and shows the important
// facts first. tests/experiments/browser/pages_test.py tests the report in a browser.
#include "experiments/report/html/html_report.h"

#include <regex>

#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

std::string part_of(const std::string& page, const std::string& from, const std::string& to) {
  const std::size_t begin = page.find(from);
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find(to, begin) - begin);
}

std::string without_tags(const std::string& markup) {
  return std::regex_replace(markup, std::regex("<[^>]*>"), "|");
}

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
  for (const char* outside : {"src=", "@import", "<script", "url(", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  for (std::size_t at = page.find("href="); at != std::string::npos;
       at = page.find("href=", at + 1)) {
    EXPECT_EQ(page.substr(at, 7), "href=\"#");
  }
}

TEST(HtmlReport, says_that_a_finished_run_is_done) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1);
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  Progress progress(Progress::Mode::quiet);
  Trainer(setup, folder, progress).run();
  EXPECT_NE(text_of(folder.file("report.html")).find(">DONE<"), std::string::npos);
}

TEST(HtmlReport, says_that_a_run_missed_its_gate) {
  const TemporaryFolder root;
  TrainingSetup setup = small_setup(1, 0.0);
  setup.expect.test_acc_min = 101;
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  Progress progress(Progress::Mode::quiet);
  EXPECT_THROW(Trainer(setup, folder, progress).run(), Error);
  const std::string page = text_of(folder.file("report.html"));
  EXPECT_NE(page.find(">FAILED<"), std::string::npos);
  EXPECT_NE(part_of(page, "class=\"note\"", "</div>").find("at least 101 %"), std::string::npos);
}

TEST(HtmlReport, begins_with_the_facts_and_warnings) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  RunSummary summary = parse_summary(text_of(folder + "/summary.json"));
  summary.model = "lenet5";
  summary.data = "digits";
  summary.algorithm = "direct";
  summary.step = "dynamic";
  summary.execution = "masked dense";
  summary.device = "cpu";
  summary.threads = 3;
  summary.avg_step = 0.0064;
  summary.images_per_s = 12345;
  summary.epochs_planned = 2;
  summary.tags = "first, <b>";
  write_text(folder + "/summary.json", to_json_text(summary));
  write_text(folder + "/env.json",
             R"({"version": "0.1.0", "cpu": "A CPU", "load_average": "1.75 1 1 1/2 3",
                 "project": {"path": "/p", "branch": "topic", "commit": "abcdef0123456789",
                             "dirty": true}})");
  write_text(folder + "/log.txt", "2026-01-01T00:00:00Z warning: something is odd\n");
  const std::string page = html_report(folder);
  const std::string facts = without_tags(part_of(page, "<h1>", "<nav"));
  for (const char* fact :
       {"lenet5 on digits: 90.00 % of the test images are right after 2 of 2 epochs.", "DONE",
        "|Convolution||direct|", "|masked dense, dynamic step|", "cpu: A CPU", "3 threads",
        "|6.40 ms|", "images/s", "something is odd", "(load 1.75)", "slower than a planned step",
        "topic abcdef0123, with changes", "first, &lt;b&gt;"}) {
    EXPECT_NE(facts.find(fact), std::string::npos) << fact << "\n" << facts;
  }
  EXPECT_LT(page.find("<dl"), page.find("<svg"));
}

TEST(HtmlReport, does_not_warn_about_an_idle_machine) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  write_text(folder + "/env.json", R"({"load_average": "0.10 1 1 1/2 3"})");
  EXPECT_EQ(html_report(folder).find("class=\"note\""), std::string::npos);
}

TEST(HtmlReport, contents_name_every_section_and_figure) {
  const TemporaryFolder root;
  const std::string page = html_report(write_run(root.path(), {}));
  const std::string contents = part_of(page, "<nav", "</nav>");
  for (const char* id : {"curves", "bars", "memory", "epochs", "config", "summary"}) {
    EXPECT_NE(contents.find(cat("href=\"#", id, "\"")), std::string::npos) << id;
    EXPECT_NE(page.find(cat("id=\"", id, "\"")), std::string::npos) << id;
  }
}

// A run folder may come from anywhere.
TEST(HtmlReport, leaves_out_the_values_of_a_config_that_refers_to_itself) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  write_text(folder + "/config.yaml", "a: &a [*a]\n");
  EXPECT_NE(html_report(folder).find("a: &amp;a [*a]"), std::string::npos);
}

TEST(HtmlReport, marks_what_is_not_a_default) {
  const TemporaryFolder root;
  SampleRun sample;
  sample.config =
      "data:\n  set: synthetic_digits\n  train_size: 6000\n  batch_size: 32\n"
      "model:\n  type: lenet5\n  kernel_size: 7\n  widths: [6, 16, 120, 84]\n"
      "optim:\n  type: sgd\n  lr: 0.050\n  momentum: 0.5\n"
      "train:\n  loss:\n    - type: cross_entropy\n      weight: 1.0\n"
      "    - type: focal\n      weight: 0.25\n";
  const std::string page = html_report(write_run(root.path(), sample));
  for (const char* marked :
       {"  batch_size: 32", "  kernel_size: 7", "  set: synthetic_digits", "  momentum: 0.5"}) {
    EXPECT_NE(page.find(cat("<mark>", marked, "</mark>")), std::string::npos) << marked;
  }
  for (const char* standard : {"train_size", "lr", "widths", "name"}) {
    const std::regex mark(cat("<mark> *", standard));
    EXPECT_FALSE(std::regex_search(page, mark)) << standard;
  }
  const std::string table = without_tags(part_of(page, "id=\"config\"", "<details"));
  EXPECT_NE(table.find("|data.batch_size||32||64|"), std::string::npos) << table;
  EXPECT_NE(table.find("|model.kernel_size||7||5|"), std::string::npos) << table;
  EXPECT_NE(table.find("|train.loss.1.type||focal||cross_entropy|"), std::string::npos) << table;
  EXPECT_NE(table.find("|train.loss.1.weight||0.25||1.0|"), std::string::npos) << table;
  EXPECT_EQ(table.find("train.loss.0"), std::string::npos) << table;
}

// Columns of layers.csv without times; then the time columns.
constexpr const char* kLayersHead =
    "layer,kind,output,params,kernel,forward,backward_data,backward_weight,step";

TEST(HtmlReport, shows_times_of_layers_with_bars_and_shares) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  RunSummary summary = parse_summary(text_of(folder + "/summary.json"));
  summary.avg_step = 0.008;
  write_text(folder + "/summary.json", to_json_text(summary));
  write_text(folder + "/layers.csv",
             cat(kLayersHead, ",forward_ms,backward_ms,kept_mib,timed_with\n",
                 "c1,conv2d,64x6,156,5,direct,-,direct,planned,1.5,2.5,0.75,c1\n",
                 "r1,relu,64x6,0,,,,,planned,,,,c1\n",
                 "f1,linear,64x10,850,,linear,linear,linear,planned,0.25,0.75,0.01,c1\n",
                 "loss,,,,,,,,planned,0.08,0.04,0,\n"));
  const std::string section =
      part_of(html_report(folder), "<section id=\"layer-table\"", "</section>");
  const std::string text = without_tags(section);
  EXPECT_NE(text.find("1.5000"), std::string::npos) << text;
  EXPECT_NE(text.find("|50.0 %|"), std::string::npos) << text;  // c1: 4 of 8 ms
  EXPECT_NE(text.find("|12.5 %|a part is in c1|"), std::string::npos) << text;
  EXPECT_NE(text.find("|1.5 %|"), std::string::npos) << text;  // work outside of layers
  EXPECT_NE(text.find("in the time of c1"), std::string::npos) << text;
  EXPECT_NE(text.find("64 % of the mean step"), std::string::npos) << text;
  EXPECT_NE(section.find("class=\"bar b\" style=\"width:90px\""),
            std::string::npos);  // the longest
  EXPECT_NE(section.find("style=\"width:9px\""), std::string::npos);
  EXPECT_EQ(html_report(folder).find("line is left out"), std::string::npos);
  // The summary has 2.1 and 4 ms.
  EXPECT_NE(text.find("0.270 and 0.710 ms longer than the layers"), std::string::npos) << text;
  EXPECT_EQ(text.find("threads"), std::string::npos) << text;
  summary.threads = summary.cores = 2;
  summary.cores_of_others = 1.5;
  write_text(folder + "/summary.json", to_json_text(summary));
  const std::string page = without_tags(html_report(folder));
  EXPECT_NE(page.find("wake 2 threads"), std::string::npos) << page;
  EXPECT_NE(page.find("other programs kept 1.5 of 2 cores busy"), std::string::npos) << page;
  summary.avg_forward = 1.9e-3;
  summary.avg_backward = 3.5e-3;
  write_text(folder + "/summary.json", to_json_text(summary));
  EXPECT_EQ(html_report(folder).find("longer than the layers"), std::string::npos);
}

TEST(HtmlReport, shows_layers_without_times_as_they_stand) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  write_text(folder + "/layers.csv",
             cat(kLayersHead, "\nc1,conv2d,64x6,156,5,direct,-,direct,planned\n"));
  const std::string section =
      part_of(html_report(folder), "<section id=\"layer-table\"", "</section>");
  EXPECT_NE(section.find("<td>c1</td>"), std::string::npos);
  EXPECT_EQ(section.find("class=\"bar"), std::string::npos);
}

TEST(HtmlReport, is_a_page_for_an_empty_folder) {
  const TemporaryFolder root;
  const std::string page = html_report(root.path());
  EXPECT_NE(page.find(">UNREADABLE<"), std::string::npos);
  EXPECT_NE(page.find("</html>"), std::string::npos);
}

}  // namespace
}  // namespace convscope::testing
