// SPDX-License-Identifier: Apache-2.0
// measure_once_test.cpp: tests when the program measures the machine. Only one of two processes
// measures. No process measures if measuring is switched off or there is no cache folder. After a
// measurement on a busy machine, the program measures again later.
#include "experiments/cli/measure_once.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/cache_folder.h"
#include "tests/support/call_program.h"
#include "tests/support/some_peaks.h"

namespace convscope {
namespace {

using testing::CacheFolder;

class MeasureOnceTest : public ::testing::Test {
 protected:
  MeasureOnce how() {
    return {.measure =
                [this] {
                  ++measured_;
                  busy_ = busy_later_;
                  return testing::some_peaks();
                },
            .cores_of_others = [this] { return std::optional(busy_); },
            .say = [this](const std::string& line) { said_.push_back(line); }};
  }

  CacheFolder folder_;
  testing::EnvironmentVariable variable_{"CONVSCOPE_MEASURE", nullptr};
  int measured_ = 0;
  double busy_ = 0, busy_later_ = 0;
  std::vector<std::string> said_;
};

TEST_F(MeasureOnceTest, MeasuresOnceSaysSoAndRemembers) {
  EXPECT_TRUE(measure_once(how()));
  CacheFolder::forget();  // so it comes from the file
  EXPECT_FALSE(measure_once(how()));
  EXPECT_EQ(measured_, 1);
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find(cpu_peaks_path()), std::string::npos) << said_[0];
  ASSERT_TRUE(remembered_cpu_peaks());
  EXPECT_EQ(remembered_cpu_peaks()->flops.one_thread, 100e9);
}

TEST_F(MeasureOnceTest, CanBeSwitchedOff) {
  variable_.assign("off");
  EXPECT_FALSE(measure_once(how()));
  EXPECT_EQ(measured_, 0);
  EXPECT_FALSE(std::filesystem::exists(cpu_peaks_path()));
}

TEST_F(MeasureOnceTest, WhatABusyMachineGivesIsNotKept) {
  busy_ = 1.5;
  EXPECT_FALSE(measure_once(how()));
  EXPECT_EQ(measured_, 0);
  busy_ = 0;
  busy_later_ = 1.5;  // the others begin while it measures
  EXPECT_FALSE(measure_once(how()));
  EXPECT_EQ(measured_, 1);
  EXPECT_FALSE(remembered_cpu_peaks());
  busy_ = busy_later_ = 0;
  EXPECT_TRUE(measure_once(how()));
  EXPECT_TRUE(remembered_cpu_peaks());
}

TEST_F(MeasureOnceTest, AnInterruptedMeasurementLeavesNothing) {
  MeasureOnce broken = how();
  broken.measure = []() -> CpuPeaks { throw std::runtime_error("stopped"); };
  EXPECT_THROW(measure_once(broken), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(cpu_peaks_path()));
  EXPECT_TRUE(measure_once(how()));
}

// Another process measures and holds the lock. The tested process waits, then uses the stored
// result.
TEST_F(MeasureOnceTest, OneOfTwoMeasures) {
  const std::string path = cpu_peaks_path();
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  const int other = open((path + ".measuring").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_GE(other, 0);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  std::atomic<bool> over = false;
  bool did = true;
  std::thread waiting([&] {
    did = measure_once(how());
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(over);
  remember_cpu_peaks(testing::some_peaks());
  close(other);
  waiting.join();
  EXPECT_FALSE(did);
  EXPECT_EQ(measured_, 0);
}

// A measurement takes three seconds, so the program reports a mistyped argument before it measures.
TEST(MeasureThisMachineOnce, ComesBehindTheChecks) {
  const testing::TemporaryFolder folder;
  for (const char* words :
       {"run typo.yaml", "run quickstart modell.type=x", "run quickstart --dry-run", "eval nowhere",
        "explain typo.yaml", "sweep typo.yaml", "sweep synthetic_sweep --dry-run",
        "bench conv2d --problem c=4", "bench conv2d --weights typo", "bench net typo",
        "op conv2d --x none.npy --w none.npy --out-y y.npy", "op net typo.yaml --x none.npy"}) {
    const testing::Called answer = testing::call_program(
        words, folder.path(), "CONVSCOPE_MEASURE= CONVSCOPE_CACHE_DIR=" + folder.path());
    EXPECT_EQ(answer.err.find("measuring"), std::string::npos) << words << "\n" << answer.err;
    // On a busy machine a measuring process prints nothing, but it creates this lock file. So the
    // absence of the file shows that the process has not begun to measure.
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/peaks_cpu.json.measuring")) << words;
    EXPECT_EQ(answer.code == 0, std::string(words).ends_with("--dry-run")) << words;
  }
}

}  // namespace
}  // namespace convscope
