// SPDX-License-Identifier: Apache-2.0
// atomic_file_test.cpp: tests that a file is replaced either completely or not at all.
#include "framework/io/atomic_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

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

// A limit on file sizes simulates a full disk: the write fails in the middle of the data.
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

TEST(AtomicFile, KeepsTheRightsOfTheFileThatItReplaces) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "secret.txt";
  write_file(path, "old");
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  write_file(path, "new");
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(static_cast<int>(std::filesystem::status(path).permissions()), 0600);
}

TEST(AtomicFile, WritesThroughALinkAndLeavesItALink) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "far");
  write_file(folder / "far/real.txt", "old");
  std::filesystem::create_symlink("far/real.txt", folder / "link.txt");
  write_file(folder / "link.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.txt"));
  EXPECT_EQ(content_of(folder / "far/real.txt"), "new");
}

// A killed process may leave temporary files, and a new process may get the same process id.
TEST(AtomicFile, ANameThatAKilledProcessLeftIsNoObstacle) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  for (int i = 0; i < 900; ++i) {
    std::ofstream(cat(folder.path(), "/.a.txt.", static_cast<long>(getpid()), ".", i, ".partial"));
  }
  write_file(path, "new");
  EXPECT_EQ(content_of(path), "new");
}

// On file systems with nameless files (O_TMPFILE) a killed process leaves no file. On others, the
// next write removes the file.
TEST(AtomicFile, OfAKilledProcessLeavesNothing) {
  const testing::TemporaryFolder folder;
  const int nameless = ::open(folder.path().c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0) GTEST_SKIP() << "no files without names here";
  ::close(nameless);
  EXPECT_EXIT(
      {
        AtomicFile file(folder / "a.txt");
        file.write("half");
        std::raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_EQ(files_in(folder.path()), 0u);
}

TEST(AtomicFile, RemovesWhatAKilledProcessLeftLongAgo) {
  const testing::TemporaryFolder folder;
  const timespec long_ago[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  const std::vector<std::string> kept = {".b.txt.12.0.partial", ".a.txt.mine.partial",
                                         ".a.txt.partial"};
  for (const std::string& name : kept) std::ofstream(folder / name) << "x";
  std::ofstream(folder / ".a.txt.12.0.partial") << "half";
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), long_ago, 0), 0);
  }
  std::ofstream(folder / ".a.txt.13.0.partial") << "of a process at work";
  write_file(folder / "a.txt", "new");
  EXPECT_FALSE(std::filesystem::exists(folder / ".a.txt.12.0.partial"));
  EXPECT_TRUE(std::filesystem::exists(folder / ".a.txt.13.0.partial"));
  for (const std::string& name : kept) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
}

TEST(AtomicFile, CheckingThatAFileCanBeWrittenLeavesTheOldOne) {
  const testing::TemporaryFolder folder;
  write_file(folder / "old.json", "old");
  check_writable(folder / "old.json");
  check_writable(folder / "new.json");
  EXPECT_EQ(content_of(folder / "old.json"), "old");
  EXPECT_EQ(files_in(folder.path()), 1u);
  EXPECT_ERROR(ErrorKind::kIo, "none/a.json", check_writable(folder / "none/a.json"));
}

TEST(ReadFile, NamesPathAndReason) {
  const testing::TemporaryFolder folder;
  EXPECT_ERROR(ErrorKind::kIo, "got: No such file", read_file(folder / "none"));
  EXPECT_ERROR(ErrorKind::kIo, "got: Is a directory", read_file(folder.path()));
  EXPECT_ERROR(ErrorKind::kIo, "expected a regular file", read_file("/dev/zero"));
}

TEST(ReadText, TakesFilesAndPipesAndRefusesLongerOnes) {
  const testing::TemporaryFolder folder;
  write_file(folder / "a.txt", "0123456789");
  EXPECT_EQ(read_text(folder / "a.txt", 100), "0123456789");
  EXPECT_EQ(read_text(folder / "a.txt", 10), "0123456789");
  EXPECT_ERROR(ErrorKind::kIo, "got: 10 bytes, more than the 4", read_text(folder / "a.txt", 4));
  EXPECT_ERROR(ErrorKind::kIo, "expected a file or a pipe", read_text("/dev/zero", 4));
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "from a pipe"; });
  EXPECT_EQ(read_text(pipe, 100), "from a pipe");
  writer.join();
  std::thread longer([&] { std::ofstream(pipe) << "from a pipe"; });
  EXPECT_ERROR(ErrorKind::kIo, "more than the 4", read_text(pipe, 4));
  longer.join();
}

// Opening it without care would wait forever.
TEST(ReadText, DoesNotWaitForAPipeThatNobodyWritesTo) {
  const testing::TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(ErrorKind::kIo, "got nothing for two seconds", read_text(pipe, 100));
  EXPECT_ERROR(ErrorKind::kIo, "expected a regular file", read_file(pipe));
}

}  // namespace
}  // namespace convscope
