// SPDX-License-Identifier: Apache-2.0
// own_file_test.cpp: run folders of another person, or changed by an editor.
#include "experiments/run_folder/files/own_file.h"

#include <gtest/gtest.h>

#include <thread>

#include "experiments/run_folder/append_file.h"
#include "experiments/run_folder/files/kept_rows.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/sweep/claim.h"
#include "framework/io/atomic_file.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::text_of;

// A finished run, and a file outside of it.
class OwnFile : public ::testing::Test {
 protected:
  OwnFile() {
    RunFolder folder = RunFolder::create(root_.path(), "run", 1);
    run_ = folder.path();
    folder.set_status({.state = "INTERRUPTED", .exit_code = 130});
    write_file(victim_, "precious");
    fs::create_directory(elsewhere_);
    write_file(elsewhere_ + "/.a.1.0.partial", "precious");
  }
  void link(const std::string& name, const std::string& to) const {
    fs::remove_all(run_ + "/" + name);
    fs::create_symlink(to, run_ + "/" + name);
  }
  void expect_untouched() const {
    EXPECT_EQ(text_of(victim_), "precious");
    EXPECT_EQ(std::distance(fs::directory_iterator(elsewhere_), fs::directory_iterator()), 1);
  }

  TemporaryFolder root_;
  std::string run_;
  const std::string victim_ = root_.path() + "/victim", elsewhere_ = root_.path() + "/elsewhere";
};

TEST_F(OwnFile, ThatIsRewrittenTakesThePlaceOfALink) {
  link("status.json", victim_);
  link("summary.json", victim_);
  {
    const RunFolder folder = RunFolder::reopen(run_);
    folder.set_status({.state = "DONE", .exit_code = 0});
    folder.write("summary.json", "{}\n");
  }
  expect_untouched();
  EXPECT_FALSE(fs::is_symlink(run_ + "/summary.json"));
  EXPECT_EQ(read_run_status(run_).state, "DONE");
  link("ckpt/last.safetensors", victim_);
  write_file(own_path(run_, "ckpt/last.safetensors"), "weights");
  expect_untouched();
  EXPECT_EQ(text_of(run_ + "/ckpt/last.safetensors"), "weights");
}

TEST_F(OwnFile, ThatGrowsIsNoLink) {
  link("metrics.jsonl", victim_);
  EXPECT_ERROR(ErrorKind::kIo, "expected no symbolic link", AppendFile(run_ + "/metrics.jsonl", 0));
  link("log.txt", victim_);
  EXPECT_ERROR(ErrorKind::kIo, "/log.txt; remove it", RunFolder::reopen(run_));
  fs::remove(run_ + "/log.txt");
  link(".lock", victim_);
  EXPECT_ERROR(ErrorKind::kIo, "/.lock; remove it", RunFolder::reopen(run_));
  expect_untouched();
}

TEST_F(OwnFile, OfASubfolderThatIsALinkIsRefused) {
  link("ckpt", elsewhere_);
  EXPECT_ERROR(ErrorKind::kIo, "/ckpt; remove it", RunFolder::reopen(run_));
  EXPECT_ERROR(ErrorKind::kIo, "expected no symbolic link",
               own_path(run_, "ckpt/last.safetensors"));
  link("claim", elsewhere_);
  EXPECT_ERROR(ErrorKind::kIo, "/claim; remove it",
               ClaimWatch().try_take(run_ + "/claim", {.host = "here"}));
  expect_untouched();
}

TEST_F(OwnFile, OfAFolderThatIsReachedByALinkIsFine) {
  const std::string way = root_.path() + "/way";
  fs::create_directory_symlink(run_, way);
  const RunFolder folder = RunFolder::reopen(way);
  folder.write("summary.json", "{}\n");
  AppendFile(way + "/metrics.jsonl", 0).append("{}\n");
  EXPECT_EQ(text_of(run_ + "/summary.json"), "{}\n");
}

// Commands such as `note` lock a run briefly and change one of its files. Here the second thread
// acts as such a command.
TEST_F(OwnFile, IsWaitedForWhileAnotherHasTheRunForAMoment) {
  auto held = std::make_unique<RunFolder>(RunFolder::reopen(run_));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    held->write("summary.json", "of the other\n");
    held.reset();
  });
  const RunFolder folder = RunFolder::reopen(run_);
  EXPECT_EQ(text_of(folder.file("summary.json")), "of the other\n");
  other.join();
}

TEST(RunFolder, latest_leads_to_a_run_that_can_be_asked) {
  const TemporaryFolder root;
  const RunFolder first = RunFolder::create(root.path(), "run", 1);
  EXPECT_FALSE(fs::exists(fs::symlink_status(root.path() + "/run/latest")));
  first.set_status({.state = "RUNNING"});
  const RunFolder second = RunFolder::create(root.path(), "run", 1);
  EXPECT_EQ(fs::read_symlink(root.path() + "/run/latest"), first.id());
  second.set_status({.state = "RUNNING"});
  first.set_status({.state = "RUNNING", .step = 1});  // a heartbeat
  EXPECT_EQ(fs::read_symlink(root.path() + "/run/latest"), second.id());
}

// ---- rows ----

std::string metrics_row(int step, int epoch, const char* split) {
  return cat("{\"t\":0.1,\"step\":", step, ",\"epoch\":", epoch, ",\"split\":\"", split, "\"}\n");
}

// A checkpoint after one epoch of 20 steps.
KeptRows kept_metrics(const std::string& path, std::int64_t counted) {
  return kept_rows(path, counted,
                   [](std::string_view row) { return place_of_metrics_row(row, 1, 20); });
}

TEST(KeptRows, FollowTheBytesOfTheCheckpointWhileTheyFit) {
  const TemporaryFolder root;
  const std::string path = root / "metrics.jsonl";
  const std::string before = metrics_row(20, 1, "train") + metrics_row(20, 1, "test");
  const auto bytes = static_cast<std::int64_t>(before.size());
  for (const std::string& after :
       {std::string(), metrics_row(25, 2, "train"), std::string("{\"t\":")}) {
    write_file(path, before + after);
    EXPECT_EQ(kept_metrics(path, bytes).bytes, bytes);
    EXPECT_TRUE(kept_metrics(path, bytes).as_counted);
  }
  EXPECT_EQ(kept_metrics(root / "none", 0).bytes, 0);
  EXPECT_TRUE(kept_metrics(root / "none", 0).as_counted);
  EXPECT_FALSE(kept_metrics(root / "none", 5).as_counted);
}

TEST(KeptRows, OfAChangedFileAreThoseBeforeTheCheckpoint) {
  const TemporaryFolder root;
  const std::string path = root / "metrics.jsonl";
  const std::string before = metrics_row(20, 1, "train") + metrics_row(20, 1, "test");
  const std::string after = metrics_row(20, 2, "test") + metrics_row(25, 2, "train");
  const auto bytes = static_cast<std::int64_t>(before.size());
  const auto expect_kept = [&](const std::string& kept, const std::string& cut, bool ended = true) {
    write_file(path, kept + cut);
    const KeptRows found = kept_metrics(path, bytes);
    EXPECT_EQ(found.bytes, static_cast<std::int64_t>(kept.size())) << kept;
    EXPECT_FALSE(found.as_counted) << kept;
    EXPECT_EQ(found.lacks_line_end, !ended) << kept;
  };
  expect_kept("    " + before, after);             // the byte count ends in the middle of a row
  expect_kept("# a remark\n" + before, after);     // and after a whole row
  expect_kept(metrics_row(20, 1, "test"), after);  // a row is gone, others follow
  expect_kept(metrics_row(20, 1, "test"), "");     // a row is gone, the file is shorter
  expect_kept(before.substr(0, before.size() - 1), "", /*ended=*/false);
  expect_kept(metrics_row(20, 1, "train"), "{\"t\":0.1,\"st");
}

TEST(KeptRows, OfEpochsCountEpochs) {
  EXPECT_EQ(place_of_epoch_row("epoch,step", 1), RowPlace::unknown);
  EXPECT_EQ(place_of_epoch_row("1,20,0.1", 1), RowPlace::before);
  EXPECT_EQ(place_of_epoch_row("2,40,0.1", 1), RowPlace::after);
  EXPECT_EQ(place_of_metrics_row("[]", 1, 20), RowPlace::unknown);
  EXPECT_EQ(place_of_metrics_row(R"({"step": 5})", 1, 20), RowPlace::unknown);
}

// ---- how a run ends ----

TEST(RunPage, ThatCannotBeWrittenIsSaidInTheStatusOfADoneRun) {
  const TemporaryFolder root;
  TrainingSetup setup = testing::small_setup(1);
  RunFolder folder = RunFolder::create(root.path(), "small", 1);
  fs::create_directory(folder.file("report.html"));
  Progress quiet(Progress::Mode::quiet);
  Trainer trainer(setup, folder, quiet);
  EXPECT_EQ(trainer.run(), 0);
  const RunStatus status = read_run_status(folder.path());
  EXPECT_EQ(status.state, "DONE");
  EXPECT_EQ(status.exit_code, 0);
  EXPECT_NE(status.reason.find("report.html could not be written"), std::string::npos);
  EXPECT_NE(status.reason.find("`convscope plot " + folder.path() + "` makes it"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
