// SPDX-License-Identifier: Apache-2.0
// stillborn_test.cpp: tests that a new run deletes folders of runs that were killed before their
// first step, and keeps all others.
#include "experiments/run_folder/stillborn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "experiments/run_folder/run_folder.h"
#include "framework/io/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

void make_old(const std::string& folder, int seconds) {
  timespec times[2];
  clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= seconds;
  times[1] = times[0];
  ASSERT_EQ(utimensat(AT_FDCWD, folder.c_str(), times, 0), 0);
}

// Makes the folder of a run that was killed immediately after it created the folder.
std::string killed_run(const std::string& path, const std::vector<std::string>& files) {
  fs::create_directories(path + "/ckpt");
  for (const std::string& file : files) write_file(path + "/" + file, "");
  make_old(path, 300);
  return path;
}

TEST(Stillborn, FoldersGoWithTheNextRun) {
  const TemporaryFolder root;
  const std::string parent = root / "small";
  const std::string first = parent + "/2026-01-01_000000-s";
  const std::string empty = first + "1";
  fs::create_directories(empty);
  make_old(empty, 300);
  const std::string begun = killed_run(
      first + "2-3", {".lock", ".owner-1", "log.txt", "config.yaml", "env.json", ".x.partial"});

  const std::string with_status = killed_run(first + "4", {".lock", "status.json"});
  const std::string with_more = killed_run(first + "5", {".lock", "my_notes.txt"});
  const std::string with_checkpoint = killed_run(first + "6", {".lock", "ckpt/last.safetensors"});
  const std::string with_another_name = killed_run(parent + "/mine", {".lock"});
  const std::string young = killed_run(first + "7", {".lock"});
  make_old(young, 5);
  const std::string at_work = killed_run(first + "8", {".lock"});
  const int lock = open((at_work + "/.lock").c_str(), O_RDWR);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  fs::create_directory_symlink(empty, first + "9");

  const RunFolder folder = RunFolder::create(root.path(), "small", 1);
  EXPECT_FALSE(fs::exists(empty));
  EXPECT_FALSE(fs::exists(begun));
  for (const std::string& stays :
       {with_status, with_more, with_checkpoint, with_another_name, young, at_work}) {
    EXPECT_TRUE(fs::exists(stays)) << stays;
  }
  EXPECT_TRUE(fs::is_symlink(first + "9"));
  EXPECT_TRUE(fs::exists(folder.path()));
  close(lock);
}

}  // namespace
}  // namespace convscope
