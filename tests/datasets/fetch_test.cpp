// SPDX-License-Identifier: Apache-2.0
// fetch_test.cpp: tests downloads from a local server on 127.0.0.1; no test needs a network.
#include "datasets/files/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "datasets/cifar10.h"
#include "datasets/files/sums.h"
#include "experiments/cli/cli.h"
#include "tests/support/expect_error.h"
#include "tests/support/http_server.h"
#include "tests/support/idx_files.h"
#include "tests/support/tar_files.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::bytes_of;
using testing::gzipped;

std::string sha256(const std::string& text) {
  Sha256 sum;
  sum.add(bytes_of(text));
  return sum.hex();
}

std::string content_of(const std::string& path) {
  const auto bytes = read_file(path);
  return {bytes.begin(), bytes.end()};
}

// A set with one label file of 5000 bytes.
class Fetch : public ::testing::Test {
 protected:
  Fetch() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    ::unsetenv("CONVSCOPE_DATA");
    std::string random;  // so that the packed file is long enough to truncate
    std::uint32_t state = 1;
    for (int i = 0; i < 5000; ++i) {
      state = state * 1664525u + 1013904223u;
      random += static_cast<char>((state >> 24) % 10);
    }
    labels_ = idx_bytes(Tensor::from(std::span<const std::uint8_t>(bytes_of(random)), {5000}));
    packed_ = gzipped(labels_);
    set_ = {.name = "tiny",
            .mirrors = {server_.url("/a"), server_.url("/b")},
            .files = {{"train-labels-idx1-ubyte.gz", sha256(labels_), ""}},
            .members = {},
            .train_size = 5000};
    events_.say = [this](const std::string& line) { said_.push_back(line); };
  }
  void serve(const std::string& mirror, testing::ServedFile file) {
    server_.put(mirror + "/train-labels-idx1-ubyte.gz", std::move(file));
  }
  void run() { fetch(set_, folder_.path(), events_); }
  void expect_fetched() {
    EXPECT_EQ(content_of(folder_ / "train-labels-idx1-ubyte.gz"), packed_);
    EXPECT_FALSE(std::filesystem::exists(part()));
    const auto files = check_files(set_, folder_.path());
    ASSERT_EQ(files.size(), 1u);
    EXPECT_TRUE(files[0].sound) << files[0].remark;
    EXPECT_EQ(files[0].remark, "SHA-256 of the content matches");
  }
  std::string part() const { return folder_ / "train-labels-idx1-ubyte.gz.part"; }

  testing::HttpServer server_;
  testing::TemporaryFolder folder_;
  std::string labels_, packed_;
  PublishedSet set_;
  FetchEvents events_;
  std::vector<std::string> said_;
};

TEST_F(Fetch, GetsAFileAndLeavesItAloneTheNextTime) {
  serve("/a", {packed_});
  run();
  expect_fetched();
  run();
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(Fetch, WaitsForAnotherThatFetchesIntoTheFolderAndTakesItsFiles) {
  serve("/a", {packed_});
  const int other = ::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  std::thread fetches([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    write_file(folder_ / "train-labels-idx1-ubyte.gz", packed_);
    ::close(other);
  });
  run();
  fetches.join();
  EXPECT_TRUE(server_.requests().empty());
  ASSERT_FALSE(said_.empty());
  EXPECT_NE(said_[0].find("another process fetches into"), std::string::npos) << said_[0];
}

TEST_F(Fetch, TakesTheNextMirrorAfterA404) {
  serve("/b", {packed_});
  run();
  expect_fetched();
  ASSERT_GE(said_.size(), 1u);
  EXPECT_NE(said_[0].find("the server answered 404"), std::string::npos) << said_[0];
}

TEST_F(Fetch, ResumesWhenTheConnectionIsCut) {
  serve("/a", {packed_, 1000});
  run();
  expect_fetched();
  const auto requests = server_.requests();
  ASSERT_GE(requests.size(), 2u);
  EXPECT_EQ(requests[1], "/a/train-labels-idx1-ubyte.gz from 1000");
  EXPECT_EQ(requests.size(), (packed_.size() + 999) / 1000);
}

TEST_F(Fetch, ResumesAPartOfAnEarlierRun) {
  write_file(part(), packed_.substr(0, 700));
  serve("/a", {packed_});
  run();
  expect_fetched();
  EXPECT_EQ(server_.requests(), std::vector<std::string>{"/a/train-labels-idx1-ubyte.gz from 700"});
}

TEST_F(Fetch, BeginsAgainWhenTheServerCannotResume) {
  write_file(part(), packed_.substr(0, 700));
  serve("/a", {packed_, std::string::npos, false});
  run();
  expect_fetched();
}

TEST_F(Fetch, BeginsAgainWhenThePartIsNotABeginningOfTheFile) {
  write_file(part(), std::string(700, 'x'));
  serve("/a", {packed_});
  run();
  expect_fetched();
  write_file(part(), packed_ + "too long");
  std::filesystem::remove(folder_ / "train-labels-idx1-ubyte.gz");
  run();
  expect_fetched();
}

TEST_F(Fetch, NeverShowsACorruptFileUnderItsNameAndListsEachMirrorsReason) {
  std::string damaged = labels_;
  damaged[100] = static_cast<char>(damaged[100] ^ 1);
  serve("/a", {gzipped(damaged)});
  EXPECT_ERROR(ErrorKind::kData, "expected SHA-256 of the content " + sha256(labels_), run());
  EXPECT_ERROR(ErrorKind::kData, "/b/train-labels-idx1-ubyte.gz: the server answered 404", run());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  serve("/b", {packed_});
  run();
  expect_fetched();
}

TEST_F(Fetch, ReportsAServerThatHangsUpAndOneThatIsNotThere) {
  serve("/a", {packed_, 0});
  set_.mirrors = {server_.url("/a"), "http://127.0.0.1:1"};
  EXPECT_ERROR(ErrorKind::kData, "the connection ended after 0 bytes", run());
  EXPECT_ERROR(ErrorKind::kData, "http://127.0.0.1:1/train-labels-idx1-ubyte.gz: ", run());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "train-labels-idx1-ubyte.gz"));
  set_.mirrors = {"file:///etc"};
  EXPECT_ERROR(ErrorKind::kData, "file:///etc/train-labels", run());
}

TEST_F(Fetch, RefusesAFolderThatCannotBeMade) {
  EXPECT_ERROR(ErrorKind::kIo, "/dev/null/x", fetch(set_, "/dev/null/x", events_));
}

TEST_F(Fetch, ChecksAnArchiveByItsMd5AndKeepsOnlyItsMembers) {
  const std::string record = std::string(1, '\3') + std::string(3072, 'p');
  std::vector<std::pair<std::string, std::string>> files;
  for (int i = 1; i <= 5; ++i) files.emplace_back(cat("inner/data_batch_", i, ".bin"), record);
  files.emplace_back("../../test_batch.bin", record);  // must not leave the folder
  files.emplace_back("inner/readme.html", "not kept");
  const std::string archive = gzipped(testing::tar_of(files));
  Md5 md5;
  md5.add(bytes_of(archive));
  PublishedSet set = published_set("cifar10");
  set.mirrors = {server_.url()};
  set.files[0].md5 = md5.hex();
  set.train_size = 5;
  set.test_size = 1;
  server_.put("/cifar-10-binary.tar.gz", {archive});
  fetch(set, folder_.path(), events_);
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder_.path()))
    ++count;
  EXPECT_EQ(count, 6u);
  for (const FileReport& file : check_files(set, folder_.path())) {
    EXPECT_TRUE(file.sound);
    EXPECT_NE(file.remark.find("no published checksum"), std::string::npos);
  }
  set.test_size = 2;
  EXPECT_FALSE(check_files(set, folder_.path())[5].sound);
}

TEST_F(Fetch, PutsFilesWhereLoadingWillFindThem) {
  const std::string root = folder_.path();
  EXPECT_EQ(fetch_folder(set_, root), root + "/tiny");
  EXPECT_EQ(fetch_folder(set_, root + "/tiny/"), root + "/tiny");
  EXPECT_EQ(fetch_folder(set_, ""), "./data/tiny");
  write_file(folder_ / "train-labels-idx1-ubyte", "damaged");  // loading prefers this file
  EXPECT_EQ(fetch_folder(set_, root), root);
}

TEST_F(Fetch, ChecksRawCopiesOfEitherSpellingByTheSameSum) {
  write_file(folder_ / "train-labels.idx1-ubyte", labels_);
  EXPECT_TRUE(check_files(set_, folder_.path())[0].sound);
  write_file(folder_ / "train-labels.idx1-ubyte", labels_.substr(0, 4000));
  EXPECT_FALSE(check_files(set_, folder_.path())[0].sound);
}

int command(std::vector<std::string> words) {
  words.insert(words.begin(), "convscope");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return run_command_line(static_cast<int>(words.size()), argv.data());
}

TEST_F(Fetch, CommandLineEndsWithTheCodeOfTheTrouble) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const std::string root = folder_.path();
  EXPECT_EQ(command({"data", "fetch", "mnist", "--root", root, "--mirror", server_.url("/none")}),
            4);
  EXPECT_EQ(command({"data", "fetch", "mnist", "--root", "/dev/null", "--mirror", server_.url()}),
            6);
  EXPECT_EQ(command({"data", "fetch", "mnsit"}), 2);
  EXPECT_EQ(command({"data", "check", "mnist", "--root", root}), 4);
  EXPECT_EQ(command({"data", "synth", "--root", root + "/mnist", "--train-size", "20",
                     "--test-size", "10", "--sheet", root + "/sheet.pgm"}),
            0);
  EXPECT_EQ(command({"data", "check", "mnist", "--root", root}), 4);  // right files, wrong content
  EXPECT_EQ(command({"data", "synth", "--root", root, "--format", "npz"}), 0);
  EXPECT_EQ(command({"data", "synth", "--root", root, "--train-size", "0"}), 2);
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(err.find("the server answered 404"), std::string::npos);
  EXPECT_NE(err.find("did you mean 'mnist'"), std::string::npos);
  EXPECT_NE(out.find("t10k-labels-idx1-ubyte"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(root + "/sheet.pgm"), 15u + 560 * 280);
}

// 300 KB unpack to 300 MB of zeros.
TEST_F(Fetch, AFileThatUnpacksToVeryMuchIsLeftAfterALimit) {
  std::string packed;
  {
    const std::string zeros(std::size_t{300} << 20, '\0');
    packed = gzipped(zeros);
  }
  std::ofstream(folder_ / "train-labels-idx1-ubyte.gz", std::ios::binary) << packed;
  const std::vector<FileReport> found = check_files(set_, folder_.path());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].sound);
  EXPECT_NE(found[0].remark.find("bytes of content, got more"), std::string::npos)
      << found[0].remark;
}

}  // namespace
}  // namespace convscope
