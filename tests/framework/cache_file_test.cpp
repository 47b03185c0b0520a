// SPDX-License-Identifier: Apache-2.0
// cache_file_test.cpp: several processes add to one file without losing an entry.
#include "framework/machine/cache_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;
using testing::text_of;

constexpr int kProcesses = 4;
constexpr int kLines = 20;

void add_lines(const std::string& path) {
  for (int i = 0; i < kLines; ++i) {
    change_cache_file(path, "not written", [](const CacheText& text) {
      usleep(500);  // between reading and writing
      return text.value_or("") + "line\n";
    });
  }
}

TEST(CacheFile, NothingIsLostWhenProcessesAddAtOnce) {
  const TemporaryFolder root;
  const std::string path = root / "below/file.json";
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() == 0) {
      add_lines(path);
      _exit(0);
    }
  }
  for (int i = 0; i < kProcesses; ++i) wait(nullptr);
  const std::string text = text_of(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kProcesses * kLines);
}

TEST(CacheFile, WhatIsNoFileIsAWarning) {
  const TemporaryFolder root;
  const std::string pipe = root / "pipe", folder = root / "folder";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(folder);
  for (const std::string& path : {pipe, folder}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(read_cache_file(path), std::nullopt);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("the file is ignored"),
              std::string::npos);
  }
  EXPECT_EQ(read_cache_file(root / "nothing"), std::nullopt);
  change_cache_file("", "not written", [](const CacheText&) -> std::string {
    ADD_FAILURE();
    return "";
  });
}

}  // namespace
}  // namespace convscope
