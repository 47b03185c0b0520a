// SPDX-License-Identifier: Apache-2.0
// run_owner_test.cpp: a run has one owner, on any host.
#include "experiments/run_folder/run_owner.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <fstream>

#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_search.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;

// Makes a run whose owner is a process on another host. The owner's last heartbeat was `seconds`
// ago.
std::string run_of_another_host(const std::string& root, int seconds) {
  std::string path;
  {
    const RunFolder folder = RunFolder::create(root, "far", 1);
    path = folder.path();
    folder.write("config.yaml", "name: far\n");
  }
  std::ofstream(path + "/status.json")
      << R"({"state": "RUNNING", "reason": "", "exit_code": null, "pid": 1, "host": "far-away",
             "heartbeat_unix": 0, "epoch": 1, "step": 10})";
  timespec times[2];
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= seconds;
  times[1] = times[0];
  EXPECT_EQ(utimensat(AT_FDCWD, (path + "/status.json").c_str(), times, 0), 0);
  return path;
}

std::string refusal_of(const std::string& path) {
  try {
    RunFolder::reopen(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The age of a heartbeat is computed from the modification time of the status file. A time that the
// owner writes into the file may come from a wrong clock.
TEST(RunOwner, OfAnotherHostIsThereAsLongAsItGivesSignsOfLife) {
  const TemporaryFolder root;
  const std::string path = run_of_another_host(root.path(), 60);
  EXPECT_EQ(read_run_status(path).state, "RUNNING");
  const std::string refusal = refusal_of(path);
  EXPECT_NE(refusal.find("process 1 on far-away"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("after 120 s without one it can be taken over"), std::string::npos);
}

TEST(RunOwner, OfAnotherHostThatIsSilentIsReplacedOnce) {
  const TemporaryFolder root;
  const std::string path = run_of_another_host(root.path(), 300);
  EXPECT_EQ(read_run_status(path).state, "KILLED");
  EXPECT_EQ(newest_owner(path), 1);
  EXPECT_EQ(refusal_of(path), "");
  EXPECT_EQ(newest_owner(path), 2);
}

// Two processes try to take over the same abandoned run at the same time.
TEST(RunOwner, OnlyOneOfTwoGetsANumber) {
  const TemporaryFolder root;
  EXPECT_TRUE(claim_ownership(root.path(), 2));
  EXPECT_FALSE(claim_ownership(root.path(), 2));
  EXPECT_TRUE(claim_ownership(root.path(), 3));
  EXPECT_FALSE(claim_ownership(root.path(), 2)) << "a late one";
  EXPECT_EQ(newest_owner(root.path()), 3);
}

// A process may sleep for minutes, for example on a suspended machine. If another process has taken
// over the run meanwhile, the first process must not write to the run any more.
TEST(RunOwner, ThatWasReplacedWritesNoStatusAnyMore) {
  const TemporaryFolder root;
  const RunFolder sleeper = RunFolder::create(root.path(), "sleeper", 1);
  sleeper.set_status({.state = "RUNNING", .step = 1});
  ASSERT_TRUE(claim_ownership(sleeper.path(), 2));
  EXPECT_THROW(sleeper.set_status({.state = "RUNNING", .step = 2}), Error);
  EXPECT_EQ(read_run_status(sleeper.path()).step, 1);
}

TEST(RunSearch, ARunningOneIsFoundOnlyByThoseWhoWantTheSame) {
  const TemporaryFolder root;
  const RunFolder running = RunFolder::create(root.path(), "same", 1);
  running.write("config.yaml", "a\n");
  running.set_status({.state = "RUNNING"});
  const std::string folder = root.path() + "/same";
  EXPECT_EQ(newest_unfinished_run(folder), std::nullopt);
  EXPECT_EQ(newest_unfinished_run(folder, [](const std::string&) { return true; }), running.path());
  EXPECT_EQ(newest_unfinished_run(folder, [](const std::string&) { return false; }), std::nullopt);
}

}  // namespace
}  // namespace convscope
