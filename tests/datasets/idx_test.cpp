// SPDX-License-Identifier: Apache-2.0
// idx_test.cpp: tests the reader of MNIST's IDX format: raw and gzip files, valid and damaged.
#include "datasets/files/idx.h"

#include <cstdlib>
#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/idx_files.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::bytes_of;
using testing::gzipped;

Tensor parse(const std::string& file) { return parse_idx(bytes_of(file), "t.idx"); }

std::string header(std::initializer_list<std::uint32_t> sizes, char type = 8) {
  std::string out{'\0', '\0', type, static_cast<char>(sizes.size())};
  for (std::uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(size >> shift & 0xff);
  }
  return out;
}

TEST(Idx, ReadsRawAndGzip) {
  const std::string file = header({2, 3}) + "abcdef";
  for (const std::string& bytes : {file, gzipped(file)}) {
    const Tensor x = parse(bytes);
    EXPECT_EQ(x.str(), "u8[2,3] cpu");
    EXPECT_EQ(x.at(5), 'f');
    EXPECT_EQ(idx_bytes(x), file);
  }
}

// As written by pigz and `cat a.gz b.gz` (RFC 1952, section 2.2).
TEST(Idx, ReadsGzipFilesOfSeveralMembers) {
  const std::string file = header({2, 3}) + "abcdef";
  for (const std::size_t cut : {std::size_t{0}, std::size_t{2}, std::size_t{13}, file.size()}) {
    const Tensor x = parse(gzipped(file.substr(0, cut)) + gzipped("") + gzipped(file.substr(cut)));
    EXPECT_EQ(idx_bytes(x), file) << cut;
  }
  EXPECT_ERROR(ErrorKind::kData, "got more", parse(gzipped(file) + gzipped("g")));
  const std::string cut = gzipped(file) + gzipped("");
  EXPECT_ERROR(ErrorKind::kData, "cut short", parse(cut.substr(0, cut.size() - 3)));
}

TEST(Idx, RefusesAClaimOfTwoToThe31ImagesBeforeAllocating) {
  const std::string file = header({0x80000000u, 28, 28}) + std::string(1000, 'x');
  reset_peak(Device{});
  const std::int64_t before = memory_stats(Device{}).peak_bytes;
  EXPECT_ERROR(ErrorKind::kData, "[2147483648,28,28]", parse(file));
  EXPECT_ERROR(ErrorKind::kData, "[2147483648,28,28]", parse(gzipped(file)));
  EXPECT_ERROR(ErrorKind::kData, "at most",
               parse(header({0xffffffffu, 0xffffffffu, 0xffffffffu}) + "x"));
  EXPECT_EQ(memory_stats(Device{}).peak_bytes, before);
}

TEST(Idx, RefusesTruncatedAndOversizedFiles) {
  const std::string file = header({2, 3}) + "abcdef";
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_ERROR(ErrorKind::kData, "t.idx", parse(file.substr(0, bytes)));
    EXPECT_ERROR(ErrorKind::kData, "t.idx", parse(gzipped(file.substr(0, bytes))));
  }
  EXPECT_ERROR(ErrorKind::kData, "expected 6 bytes of data for [2,3], got 7", parse(file + "g"));
  EXPECT_ERROR(ErrorKind::kData, "got more", parse(gzipped(file + "g")));
}

TEST(Idx, RefusesAGzipFileThatIsCutDamagedOrFollowedByMore) {
  const std::string file = gzipped(header({2, 3}) + "abcdef");
  for (std::size_t bytes = 2; bytes < file.size(); ++bytes) {
    EXPECT_ERROR(ErrorKind::kData, "cut short", parse(file.substr(0, bytes)));
  }
  std::string damaged = file;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // in its CRC
  EXPECT_ERROR(ErrorKind::kData, "incorrect data check", parse(damaged));
  EXPECT_ERROR(ErrorKind::kData, "nothing after the gzip data", parse(file + "x"));
}

TEST(Idx, UnpacksABombOnlyAsFarAsItsHeaderSays) {
  const std::string bomb = gzipped(header({2, 3}) + std::string(50'000'000, '\0'));
  reset_peak(Device{});
  const std::int64_t before = memory_stats(Device{}).peak_bytes;
  EXPECT_ERROR(ErrorKind::kData, "got more", parse(bomb));
  EXPECT_LE(memory_stats(Device{}).peak_bytes, before + 6);
}

TEST(Idx, RefusesOtherMagicTypesAndAxes) {
  EXPECT_ERROR(ErrorKind::kData, "magic 0 0 8 r, got 80 75 3 4", parse("PK\x03\x04"));
  EXPECT_ERROR(ErrorKind::kData, "type code 8 (unsigned bytes), got 13",
               parse(header({1}, 13) + "abcd"));
  EXPECT_ERROR(ErrorKind::kData, "1 to 4 axes, got 0", parse(header({})));
  EXPECT_ERROR(ErrorKind::kData, "1 to 4 axes, got 5", parse(header({1, 1, 1, 1, 1}) + "a"));
}

// The four files of a set, in all spellings.
class IdxSplits : public ::testing::Test {
 protected:
  void write(const std::string& link, const std::string& ending) {
    const auto put = [&](const std::string& stem, const char* idx, const std::string& bytes) {
      write_file(folder_ / (stem + link + idx + "-ubyte" + ending),
                 ending.empty() ? bytes : gzipped(bytes));
    };
    put("train-images", "idx3", testing::image_bytes(train_));
    put("train-labels", "idx1", testing::label_bytes(train_));
    put("t10k-images", "idx3", testing::image_bytes(test_));
    put("t10k-labels", "idx1", testing::label_bytes(test_));
  }
  DatasetSplits load(const std::string& set = "mnist") {
    const DatasetType& type = dataset_types().get(set);
    Options options(type.fields);
    options.set("root", folder_.path());
    return type.load(options);
  }
  testing::TemporaryFolder folder_;
  Dataset train_ = testing::numbered_dataset(20);
  Dataset test_ = testing::numbered_dataset(10);
};

TEST_F(IdxSplits, ReadsBothSpellingsRawAndGzip) {
  for (const char* ending : {"", ".gz"}) {
    for (const char* link : {"-", "."}) {
      for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        std::filesystem::remove(entry.path());
      }
      write(link, ending);
      const DatasetSplits splits = load();
      EXPECT_EQ(splits.train.images.shape(), (Shape{20, 1, 4, 4}));
      EXPECT_EQ(splits.test.size(), 10);
      EXPECT_EQ(splits.train.images.at(33), train_.images.at(33));
      EXPECT_EQ(splits.train.labels.at(13), 3);
      EXPECT_EQ(splits.test.mean, splits.train.mean);
      EXPECT_EQ(splits.test.std, splits.train.std);
      EXPECT_EQ(splits.train.std, train_.std);
    }
  }
}

TEST_F(IdxSplits, FashionMnistHasItsOwnClassNames) {
  write("-", ".gz");
  EXPECT_EQ(load("fashion_mnist").train.class_names[9], "Ankle boot");
}

TEST_F(IdxSplits, NamesThePathsTriedAndTheFetchCommandWhenTheFolderIsMissing) {
  const DatasetType& type = dataset_types().get("mnist");
  Options options(type.fields);
  options.set("root", std::string("/nowhere"));
  EXPECT_ERROR(ErrorKind::kData, "in /nowhere or /nowhere/mnist, got none", type.load(options));
  EXPECT_ERROR(ErrorKind::kData, "`convscope data fetch mnist --root /nowhere`",
               type.load(options));
  ::setenv("CONVSCOPE_DATA", "/somewhere", 1);
  EXPECT_ERROR(ErrorKind::kData, "in /somewhere/mnist or ./data/mnist",
               type.load(Options(type.fields)));
  ::unsetenv("CONVSCOPE_DATA");
}

TEST_F(IdxSplits, NamesTheOneFileThatIsMissing) {
  write("-", "");
  std::filesystem::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_ERROR(ErrorKind::kData, "t10k-labels-idx1-ubyte", load());
}

TEST_F(IdxSplits, NamesFileIndexAndValueOfAWrongLabel) {
  test_.labels.data<std::int32_t>()[7] = 11;
  write("-", ".gz");
  EXPECT_ERROR(ErrorKind::kData,
               "t10k-labels-idx1-ubyte.gz: expected labels 0 to 9 because the set has 10 classes, "
               "got 11 at index 7",
               load());
}

TEST_F(IdxSplits, RefusesOtherNumbersOfLabelsThanImages) {
  write("-", "");
  write_file(folder_ / "train-labels-idx1-ubyte", testing::label_bytes(test_));
  EXPECT_ERROR(ErrorKind::kData, "expected 20 labels", load());
}

}  // namespace
}  // namespace convscope
