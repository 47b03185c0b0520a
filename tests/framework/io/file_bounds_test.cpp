// SPDX-License-Identifier: Apache-2.0
// file_bounds_test.cpp: tests that a file of any size is refused or read piecewise, never loaded as
// a whole by mistake. The large files are sparse and take no disk space.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "framework/io/bytes.h"
#include "framework/io/file_start.h"
#include "framework/io/safetensors.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

constexpr std::uintmax_t kTerabytes = std::uintmax_t{8} << 40;

// Writes `text` at the beginning of a large sparse file. Returns false if the file system has no
// sparse files.
bool write_sparse(const std::string& path, const std::string& text, std::uintmax_t size) {
  std::ofstream(path, std::ios::binary) << text;
  std::error_code error;
  std::filesystem::resize_file(path, size, error);
  return !error;
}

std::string safetensors_start(const std::string& header) {
  std::string out;
  append_little_endian(out, header.size(), 8);
  return out + header;
}

TEST(FileBounds, ALongTextIsRefusedWithItsNameItsSizeAndTheBound) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/config.yaml";
  if (!write_sparse(path, "name: a\n", kTerabytes)) GTEST_SKIP() << "no files with holes here";
  EXPECT_ERROR(ErrorKind::kIo,
               path + ", got: 8796093022208 bytes, more than the 1000 that such a file may have",
               read_text(path, 1000));
  EXPECT_FALSE(text_if_there(path, 1000).has_value());
}

TEST(FileBounds, AFileThatIsLargerThanTheMemoryIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.ply";
  if (!write_sparse(path, "ply\n", kTerabytes)) GTEST_SKIP() << "no files with holes here";
  EXPECT_ERROR(ErrorKind::kIo, path + ", got: 8796093022208 bytes, more than there is memory",
               read_file(path));
}

TEST(FileBounds, TheHeaderOfASafetensorsFileIsComparedBeforeTheDataAreRead) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.safetensors";
  const std::string start =
      safetensors_start(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})");
  if (!write_sparse(path, start, kTerabytes)) GTEST_SKIP() << "no files with holes here";
  EXPECT_ERROR(ErrorKind::kData,
               "expected 8 bytes of data because the header says so, got 87960930",
               read_safetensors(path));
  // A valid file is not read completely for its header either.
  const std::string text =
      R"({"a":{"dtype":"U8","shape":[1099511627776],"data_offsets":[0,1099511627776]}})";
  ASSERT_TRUE(
      write_sparse(path, safetensors_start(text), 8 + text.size() + (std::uintmax_t{1} << 40)));
  const SafetensorsHeader header = read_safetensors_header(path);
  ASSERT_EQ(header.tensors.size(), 1u);
  EXPECT_EQ(header.tensors[0].shape, (Shape{std::int64_t{1} << 40}));
  EXPECT_EQ(header.data_bytes, std::int64_t{1} << 40);
}

TEST(FileBounds, LinesAreReadOneByOneAndLongOnesPassedOver) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a.jsonl";
  std::vector<std::string> seen;
  const auto read_from = [&](std::uint64_t from) {
    seen.clear();
    return for_each_line(path, from, [&](std::string_view line, bool whole) {
      seen.push_back(std::string(line) + (whole ? "" : "..."));
    });
  };
  std::ofstream(path, std::ios::binary) << "one\n\ntwo\nthr";
  EXPECT_EQ(read_from(0), 9u);
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "", "two", "thr..."}));
  EXPECT_EQ(read_from(5), 9u);
  EXPECT_EQ(seen, (std::vector<std::string>{"two", "thr..."}));
  EXPECT_EQ(read_from(100), 100u);
  EXPECT_TRUE(seen.empty());
  std::ofstream(path, std::ios::binary) << "one\n"
                                        << std::string(kMaxLineBytes + 1, 'x') << "\ntwo\n";
  EXPECT_EQ(read_from(0), std::filesystem::file_size(path));
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(for_each_line(folder.path() + "/none", 7, [](std::string_view, bool) {}), 7u);
}

}  // namespace
}  // namespace convscope
