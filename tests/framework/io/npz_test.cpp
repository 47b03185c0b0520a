// SPDX-License-Identifier: Apache-2.0
// npz_test.cpp: reads and writes .npz: valid and damaged.
#include "framework/io/npz.h"

#include "framework/io/npy.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

class Npz : public ::testing::Test {
 protected:
  Npz() {
    tensors_.push_back({"w", Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3})});
    tensors_.push_back({"labels", Tensor::full({5}, 7, DType::u8)});
    write_npz(path_, tensors_);
    const auto bytes = read_file(path_);
    file_.assign(bytes.begin(), bytes.end());
  }
  static NamedTensors parse(const std::string& file) {
    return parse_npz({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "t.npz");
  }
  // Changes one byte of the archive, in its directory or in a header, and parses the result.
  NamedTensors parse_with(std::size_t at, char value) const {
    std::string file = file_;
    file[at] = value;
    return parse(file);
  }
  std::size_t directory() const { return file_.find("PK\x01\x02"); }
  std::size_t second_entry() const { return file_.find("PK\x01\x02", directory() + 4); }

  testing::TemporaryFolder folder_;
  std::string path_ = folder_ / "a.npz";
  NamedTensors tensors_;
  std::string file_;
};

TEST_F(Npz, ReadsWhatItWrote) {
  const NamedTensors back = read_npz(path_);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].name, "w");
  EXPECT_EQ(back[0].tensor.at(5), 6);
  EXPECT_EQ(back[1].tensor.str(), "u8[5] cpu");
  write_npz(path_, {});
  EXPECT_EQ(read_npz(path_).size(), 0u);
}

// `zip -z` appends a comment to the archive; the end record before the comment states its length.
TEST_F(Npz, ReadsAnArchiveWithAComment) {
  std::string file = file_;
  file[file.size() - 2] = 7;
  EXPECT_EQ(parse(file + "made by").size(), 2u);
  EXPECT_EQ(parse(file + "PK\x05\x06..x").size(), 2u);
  EXPECT_ERROR(ErrorKind::kData, "ends with the directory", parse(file + "made b"));
  EXPECT_ERROR(ErrorKind::kData, "ends with the directory", parse(file + "made by x"));
}

TEST_F(Npz, RefusesEveryTruncation) {
  for (std::size_t bytes = 0; bytes < file_.size(); ++bytes) {
    EXPECT_ERROR(ErrorKind::kData, "t.npz", parse(file_.substr(0, bytes)));
  }
}

TEST_F(Npz, RefusesDamagedContent) {
  const std::size_t data = file_.find("NUMPY") + 130;
  EXPECT_ERROR(ErrorKind::kData, "checksum of 'w.npy'", parse_with(data, '\x55'));
}

TEST_F(Npz, RefusesDirectoriesThatDoNotAddUp) {
  const std::size_t at = directory();
  EXPECT_ERROR(ErrorKind::kData, "without encryption", parse_with(at + 8, 1));
  EXPECT_ERROR(ErrorKind::kData, "got method 9", parse_with(at + 10, 9));
  EXPECT_ERROR(ErrorKind::kData, "'w.npy' to hold", parse_with(at + 27, 127));
  EXPECT_ERROR(ErrorKind::kData, "at byte 1", parse_with(at + 42, 1));
  EXPECT_ERROR(ErrorKind::kData, "agree about 'x.npy'", parse_with(at + 46, 'x'));
  EXPECT_ERROR(ErrorKind::kData, "only .npy files", [&] {
    std::string file = file_;  // both copies of the name
    file[at + 46 + 4] = 'z';
    file[30 + 4] = 'z';
    parse(file);
  }());
  EXPECT_ERROR(ErrorKind::kData, "right before its end", parse_with(file_.size() - 10, '\x7f'));
  EXPECT_ERROR(ErrorKind::kData, "got more", [&] {
    std::string file = file_;
    file[file.size() - 14] = 1;  // entries in this part
    file[file.size() - 12] = 1;  // and in all
    parse(file);
  }());
}

TEST_F(Npz, RefusesEntriesThatShareBytes) {
  std::string file = file_;  // the second entry becomes a copy of the first
  const std::size_t first = directory(), second = second_entry();
  const std::string copy = file.substr(first, second - first);
  std::string directory_bytes = copy + copy;
  directory_bytes[copy.size() + 46] = 'v';
  file.replace(first, file.size() - 22 - first, directory_bytes);
  std::string size;
  append_little_endian(size, directory_bytes.size(), 4);
  file.replace(file.size() - 10, 4, size);
  EXPECT_ERROR(ErrorKind::kData, "agree about 'v.npy'", parse(file));
  file[first + copy.size() + 46] = 'w';
  EXPECT_ERROR(ErrorKind::kData, "'w.npy' twice", parse(file));
}

TEST_F(Npz, RefusesOtherFilesAndNamesTwice) {
  EXPECT_ERROR(ErrorKind::kData, "expected a .npz file", parse(std::string(100, 'x')));
  EXPECT_ERROR(ErrorKind::kInvalid, "different name for each tensor",
               write_npz(path_, {{"a", Tensor::zeros({1})}, {"a", Tensor::zeros({1})}}));
}

}  // namespace
}  // namespace convscope
