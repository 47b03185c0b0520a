// SPDX-License-Identifier: Apache-2.0
// claim_test.cpp: tests that a member of a sweep has only one worker at a time, even if workers run
// on several hosts with different clocks.
#include "experiments/sweep/claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_owner.h"
#include "framework/check.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using std::chrono::milliseconds;
using testing::TemporaryFolder;

constexpr ClaimTimes kQuick = {.beat = milliseconds(20), .silence = milliseconds(200)};

ClaimRecord self(const std::string& host = name_of_this_host()) {
  return {.host = host, .pid = static_cast<std::int64_t>(getpid()), .call = "c1"};
}

// Writes the claim of a worker on another host, whose file lock is not visible on this host.
void write_far_claim(const std::string& folder, std::int64_t count, bool held = true) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/.owner-3")
      << R"({"host": "far-away", "pid": 7, "held": )" << (held ? "true" : "false")
      << R"(, "count": )" << count << "}";
}

void set_clock_of(const std::string& file, int seconds) {
  timespec times[2];
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec += seconds;
  times[1] = times[0];
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
}

TEST(Claim, IsHeldByOneUntilItIsLetGo) {
  const TemporaryFolder root;
  const std::string folder = root.path() + "/.s1.claim";
  ClaimWatch first(kQuick), second(kQuick);
  std::unique_ptr<Claim> claim = first.try_take(folder, self());
  ASSERT_NE(claim, nullptr);
  EXPECT_EQ(second.try_take(folder, self()), nullptr);
  EXPECT_TRUE(second.seen_alive(folder));
  EXPECT_TRUE(is_claimed(folder));
  EXPECT_TRUE(read_claim(folder).held);
  claim.reset();
  EXPECT_FALSE(is_claimed(folder));
  EXPECT_FALSE(read_claim(folder).held);
  EXPECT_NE(second.try_take(folder, self()), nullptr);
  EXPECT_EQ(newest_owner(folder), 2);
}

TEST(Claim, LeavesASentenceForThoseWhoWait) {
  const TemporaryFolder root;
  ClaimWatch watch(kQuick);
  const std::string folder = root.path() + "/c";
  watch.try_take(folder, self())->give_up("no room\nleft \x1b[31m" + std::string(5000, '"'));
  const ClaimRecord found = read_claim(folder);
  EXPECT_FALSE(found.held);
  EXPECT_EQ(found.call, "c1");
  EXPECT_TRUE(found.error.starts_with("no room")) << found.error;
  EXPECT_EQ(found.error.find('\n'), std::string::npos);
  EXPECT_LT(std::filesystem::file_size(folder + "/.owner-1"), 4096u);
}

// Threads represent processes here: each takes its own lock.
TEST(Claim, GoesToOneOfManyRivals) {
  const TemporaryFolder root;
  for (int round = 0; round < 20; ++round) {
    const std::string folder = root.path() + "/" + std::to_string(round);
    std::atomic<int> winners{0};
    std::vector<std::thread> rivals;
    std::vector<std::unique_ptr<Claim>> held(8);
    for (std::size_t i = 0; i < held.size(); ++i) {
      rivals.emplace_back([&, i] {
        ClaimWatch watch(kQuick);
        held[i] = watch.try_take(folder, self());
        if (held[i]) ++winners;
      });
    }
    for (std::thread& rival : rivals) rival.join();
    EXPECT_EQ(winners, 1);
  }
}

TEST(Claim, OfAKilledProcessOfThisHostIsFreeAtOnce) {
  const TemporaryFolder root;
  const std::string folder = root.path() + "/c";
  const pid_t child = fork();
  if (child == 0) {
    ClaimWatch watch(kQuick);
    const std::unique_ptr<Claim> claim = watch.try_take(folder, self());
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(read_claim(folder).held);  // it did not release the claim
  ClaimWatch watch;                      // a minute of silence would be too long for this test
  EXPECT_NE(watch.try_take(folder, self()), nullptr);
}

TEST(Claim, OfAnotherHostIsFreeWhenItsCountStandsStill) {
  const TemporaryFolder root;
  const std::string folder = root.path() + "/c";
  write_far_claim(folder, 5);
  ClaimWatch watch(kQuick);
  EXPECT_EQ(watch.try_take(folder, self()), nullptr);
  EXPECT_FALSE(watch.seen_alive(folder));
  for (int count = 6; count < 12; ++count) {
    std::this_thread::sleep_for(milliseconds(80));
    write_far_claim(folder, count);
    EXPECT_EQ(watch.try_take(folder, self()), nullptr) << "it counts";
    EXPECT_TRUE(watch.seen_alive(folder));
  }
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(watch.try_take(folder, self()), nullptr);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_NE(watch.try_take(folder, self()), nullptr);
  EXPECT_EQ(newest_owner(folder), 4);
}

TEST(Claim, OfAnotherHostThatLetGoIsFreeAtOnce) {
  const TemporaryFolder root;
  write_far_claim(root.path() + "/c", 5, /*held=*/false);
  ClaimWatch watch;
  EXPECT_NE(watch.try_take(root.path() + "/c", self()), nullptr);
}

// The modification time of the claim file is wrong by up to 90 minutes, which must not matter.
TEST(Claim, DoesNotAskWhatClocksSay) {
  for (const int minutes : {-90, -5, 5, 90}) {
    const TemporaryFolder root;
    const std::string folder = root.path() + "/c";
    ClaimWatch watch(kQuick);
    for (int count = 1; count < 5; ++count) {
      write_far_claim(folder, count);
      set_clock_of(folder + "/.owner-3", 60 * minutes);
      EXPECT_EQ(watch.try_take(folder, self()), nullptr) << minutes;
      std::this_thread::sleep_for(milliseconds(60));
    }
    set_clock_of(folder + "/.owner-3", 60 * minutes);
    std::this_thread::sleep_for(milliseconds(210));
    EXPECT_NE(watch.try_take(folder, self()), nullptr) << minutes;
  }
}

// A suspended host, whose lock is not visible elsewhere, wakes up.
TEST(Claim, ThatWasTakenOverIsLostAndWritesNothing) {
  const TemporaryFolder root;
  const std::string folder = root.path() + "/c";
  ClaimWatch watch(kQuick);
  std::unique_ptr<Claim> claim = watch.try_take(folder, self());
  ASSERT_TRUE(claim_ownership(folder, 2));
  std::ofstream(folder + "/.owner-2") << R"({"host": "far-away", "held": true, "count": 1})";
  for (int i = 0; i < 500 && !claim->lost(); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(claim->lost());
  claim->give_up("too late");
  EXPECT_EQ(read_claim(folder).number, 2);
  EXPECT_TRUE(read_claim(folder).held);
  EXPECT_EQ(read_claim(folder).error, "");
}

TEST(Claim, OfADamagedFileIsTakenAfterTheSilence) {
  const TemporaryFolder root;
  for (const char* text : {"", "{", "[1]", "{\"count\": \"x\", \"held\": 3}", "\xff\xfe"}) {
    const std::string folder = root.path() + "/c" + std::to_string(std::hash<std::string>{}(text));
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/.owner-1") << text;
    ClaimWatch watch(kQuick);
    EXPECT_EQ(watch.try_take(folder, self()), nullptr) << text;
    std::this_thread::sleep_for(milliseconds(210));
    EXPECT_NE(watch.try_take(folder, self()), nullptr) << text;
  }
}

// If a worker were killed after it had created its claim file and before it wrote into it, the file
// would stay empty. The other workers would then wait for a holder that has ended. So a kill at any
// moment must not leave an empty file.
TEST(Claim, OfAKilledHolderIsFreeAtOnce) {
  const TemporaryFolder root;
  for (int kill_at = 0; kill_at < 60; ++kill_at) {
    const std::string begin = root.path() + "/" + std::to_string(kill_at) + "-";
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int i = 0;; ++i) ClaimWatch().try_take(begin + std::to_string(i), self());
    }
    while (!std::filesystem::exists(begin + "0")) usleep(50);
    usleep(static_cast<useconds_t>(2000 + 37 * kill_at));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    int last = 0;
    while (std::filesystem::exists(begin + std::to_string(last + 1))) ++last;
    EXPECT_NE(ClaimWatch().try_take(begin + std::to_string(last), self()), nullptr) << kill_at;
  }
}

// When a worker is killed, the member that it started may still run and keep the lock file open.
// Here a duplicate of the file descriptor acts as this member.
TEST(Claim, IsHeldAsLongAsAChildKeepsItsLockOpen) {
  const TemporaryFolder root;
  const std::string folder = root.path() + "/c";
  ClaimWatch watch(kQuick);
  std::unique_ptr<Claim> claim = watch.try_take(folder, self());
  const int child_lock = dup(claim->lock());
  claim.reset();
  EXPECT_EQ(watch.try_take(folder, self()), nullptr);
  EXPECT_TRUE(is_claimed(folder));
  close(child_lock);
  EXPECT_NE(watch.try_take(folder, self()), nullptr);
}

TEST(Claim, InAFolderThatCannotBeWrittenIsOneSentence) {
  const TemporaryFolder root;
  std::ofstream(root.path() + "/file") << "x";
  ClaimWatch watch;
  try {
    watch.try_take(root.path() + "/file/c", self());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_NE(std::string(error.what()).find("[sweep] expected to create the folder"),
              std::string::npos)
        << error.what();
  }
}

// A run is on a host whose clock is minutes off. Its age is computed with the clock of the file
// system.
TEST(MemberOnAnotherHost, IsAliveByTheClockOfTheFileSystem) {
  const TemporaryFolder root;
  std::string path;
  {
    const RunFolder folder = RunFolder::create(root.path(), "far", 1);
    path = folder.path();
  }
  const auto age = [&](int seconds) {
    std::ofstream(path + "/status.json")
        << R"({"state": "RUNNING", "reason": "", "exit_code": null, "pid": 1, "host": "far-away",
               "heartbeat_unix": 0, "epoch": 1, "step": 10})";
    set_clock_of(path + "/status.json", -seconds);
    return read_run_status(path, /*exactly=*/true).state;
  };
  EXPECT_EQ(age(60), "RUNNING");
  EXPECT_EQ(age(300), "KILLED");
  // The probe is removed.
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".now-"));
  }
}

}  // namespace
}  // namespace convscope
