// SPDX-License-Identifier: Apache-2.0
// atomic_file_test.cpp: a file shows its new content whole or not at all.
#include "framework/io/atomic_file.h"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>

#include "framework/io/bytes.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

std::string content_of(const std::string& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

std::size_t files_in(const std::string& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(AtomicFile, ShowsTheNewContentOnlyAfterCommit) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(content_of(path), "old");
    file.commit();
  }
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const testing::TemporaryFolder folder;
  {
    AtomicFile file(folder / "a.txt");
    file.write("half");
  }
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(AtomicFile, NamesPathAndReasonWhenTheFolderIsMissingOrTheTargetIsAFolder) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(ErrorKind::kIo, "nowhere/a.txt, got: No such file or directory",
               write_file(folder / "nowhere/a.txt", "x"));
  EXPECT_ERROR(ErrorKind::kIo, "got: Is a directory", write_file(folder.path(), "x"));
}

TEST(AtomicFile, ReportsAFullDevice) {
  EXPECT_ERROR(ErrorKind::kIo, "/dev/full, got: No space left on device",
               write_file("/dev/full", "x"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

// A limit on file sizes stands for a full disk: the system refuses in the middle of the data.
TEST(AtomicFile, KeepsTheOldFileAndRemovesTheHalfOneWhenTheDiskIsFull) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.bin";
  write_file(path, "old");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_ERROR(ErrorKind::kIo, "got: File too large", write_file(path, std::string(10000, 'x')));
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(ReadFile, NamesPathAndReason) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(ErrorKind::kIo, "got: No such file", read_file(folder / "none"));
  EXPECT_ERROR(ErrorKind::kIo, "got: Is a directory", read_file(folder.path()));
  EXPECT_ERROR(ErrorKind::kIo, "expected a regular file", read_file("/dev/zero"));
}

}  // namespace
}  // namespace convscope
