// SPDX-License-Identifier: Apache-2.0
// safetensors_test.cpp: reads and writes safetensors: valid and damaged.
#include "framework/io/safetensors.h"

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

SafetensorsFile parse_text(const std::string& json, const std::string& data) {
  std::string file;
  append_little_endian(file, json.size(), 8);
  file += json + data;
  return parse_safetensors({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()},
                           "t.safetensors");
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return cat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
             ",\"data_offsets\":", offsets, "}");
}

TEST(Safetensors, ReadsWhatItWroteInEveryDType) {
  const testing::TemporaryFolder folder;
  NamedTensors tensors;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    Tensor x = Tensor::empty({2, 3}, DType::f32);
    for (int j = 0; j < 6; ++j) x.data<float>()[j] = static_cast<float>(i * 10 + j);
    tensors.push_back({cat("layer.", name_of(dtype)), x.to(dtype)});
  }
  tensors.push_back({"scalar", Tensor::full({}, 2.5)});
  tensors.push_back({"empty", Tensor::zeros({0, 4})});
  const std::string path = folder / "a.safetensors";
  write_safetensors(path, tensors, {{"epoch", "3"}, {"quote\"", "\xc3\xa4"}});
  const SafetensorsFile file = read_safetensors(path);
  EXPECT_EQ(file.tensors.size(), tensors.size());
  EXPECT_EQ(file.metadata.at("epoch"), "3");
  EXPECT_EQ(file.metadata.at("quote\""), "\xc3\xa4");
  for (const NamedTensor& expected : tensors) {
    const Tensor* found = file.find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    ASSERT_EQ(found->str(), expected.tensor.str());
    for (std::int64_t i = 0; i < found->numel(); ++i) {
      EXPECT_EQ(found->at(i), expected.tensor.at(i));
    }
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST(Safetensors, WritesTheLayoutOfTheFormat) {
  const testing::TemporaryFolder folder;
  write_safetensors(folder / "a", {{"b", Tensor::full({1}, 1, DType::u8)},
                                   {"a", Tensor::full({2}, 1, DType::f32)}});
  const auto bytes = read_file(folder / "a");
  const std::string expected =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[8,9]}}";
  const std::uint64_t header = little_endian(bytes, 0, 8);
  EXPECT_EQ(header % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + header + 9);
  EXPECT_EQ(std::string(bytes.begin() + 8, bytes.begin() + 8 + 107).substr(0, expected.size()),
            expected);
  EXPECT_EQ(bytes.back(), 1);
}

TEST(Safetensors, AcceptsNoTensorsAtAll) {
  EXPECT_EQ(parse_text("{}", "").tensors.size(), 0u);
  EXPECT_EQ(parse_text("{\"__metadata__\":{}}    ", "").tensors.size(), 0u);
}

TEST(Safetensors, RefusesOverlapsHolesAndDataBeyondTheHeader) {
  const std::string eight = "12345678";
  EXPECT_ERROR(ErrorKind::kData, "overlap",
               parse_text("{" + entry("a", "U8", "[6]", "[0,6]") + "," +
                              entry("b", "U8", "[4]", "[4,8]") + "}",
                          eight));
  EXPECT_ERROR(ErrorKind::kData, "overlap",
               parse_text("{" + entry("a", "F32", "[2]", "[0,8]") + "," +
                              entry("b", "F32", "[2]", "[0,8]") + "}",
                          eight));
  EXPECT_ERROR(ErrorKind::kData, "hole",
               parse_text("{" + entry("a", "U8", "[2]", "[0,2]") + "," +
                              entry("b", "U8", "[4]", "[4,8]") + "}",
                          eight));
  EXPECT_ERROR(ErrorKind::kData, "hole",
               parse_text("{" + entry("a", "U8", "[6]", "[2,8]") + "}", eight));
  EXPECT_ERROR(ErrorKind::kData, "expected 6 bytes of data because the header says so, got 8",
               parse_text("{" + entry("a", "U8", "[6]", "[0,6]") + "}", eight));
  EXPECT_ERROR(ErrorKind::kData, "expected 12 bytes of data",
               parse_text("{" + entry("a", "F32", "[3]", "[0,12]") + "}", eight));
}

TEST(Safetensors, RefusesEntriesThatDoNotAddUp) {
  const std::string eight = "12345678";
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
    return parse_text("{" + entry("a", dtype, shape, offsets) + "}", eight);
  };
  EXPECT_ERROR(ErrorKind::kData, "12 bytes apart because 'a' is F32[3]",
               one("F32", "[3]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "got 'I64'", one("I64", "[1]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "whole numbers", one("U8", "[-8]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "whole numbers", one("U8", "[8.0]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "whole numbers", one("U8", "[8]", "[0,\"8\"]"));
  EXPECT_ERROR(ErrorKind::kData, "2^63", one("F32", "[4294967296,4294967296]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "at most 6 axes", one("U8", "[1,1,1,1,1,1,8]", "[0,8]"));
  EXPECT_ERROR(ErrorKind::kData, "two data_offsets", one("U8", "[8]", "[0]"));
  EXPECT_ERROR(ErrorKind::kData, "apart", one("U8", "[8]", "[8,0]"));
  EXPECT_ERROR(ErrorKind::kData, "deeper", one("U8", "[[8]]", "[0,8]"));
}

TEST(Safetensors, RefusesDamagedHeaders) {
  const auto raw = [](const std::string& file) {
    return parse_safetensors({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()},
                             "t");
  };
  EXPECT_ERROR(ErrorKind::kData, "only 3 bytes", raw("abc"));
  EXPECT_ERROR(ErrorKind::kData, "expected a safetensors file, whose header begins with '{'",
               raw(std::string("\x93NUMPY\x01\0v\0{'descr'", 18)));
  EXPECT_ERROR(ErrorKind::kData, "header of at most 100000000 bytes",
               raw(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)));
  EXPECT_ERROR(ErrorKind::kData, "cut short", raw(std::string("\x09\0\0\0\0\0\0\0{}", 10)));
  EXPECT_ERROR(ErrorKind::kData, "begin with '{'", parse_text("", ""));
  EXPECT_ERROR(ErrorKind::kData, "begins with '{'", parse_text("[1]", ""));
  EXPECT_ERROR(ErrorKind::kData, "JSON header", parse_text("{\"a\":", ""));
  EXPECT_ERROR(ErrorKind::kData, "got 'a' twice",
               parse_text("{" + entry("a", "U8", "[1]", "[0,1]") + "," +
                              entry("a", "U8", "[1]", "[0,1]") + "}",
                          "x"));
  EXPECT_ERROR(ErrorKind::kData, "only text in __metadata__",
               parse_text("{\"__metadata__\":{\"epoch\":3}}", ""));
  EXPECT_ERROR(ErrorKind::kData, "deeper objects", parse_text("{\"a\":{\"b\":{\"c\":{}}}}", ""));
}

TEST(Safetensors, RefusesToWriteANameTwice) {
  const testing::TemporaryFolder folder;
  const Tensor x = Tensor::zeros({1});
  EXPECT_ERROR(ErrorKind::kInvalid, "'a' twice",
               write_safetensors(folder / "x", {{"a", x}, {"a", x}}));
  EXPECT_ERROR(ErrorKind::kInvalid, "UTF-8", write_safetensors(folder / "x", {{"\xff", x}}));
}

}  // namespace
}  // namespace convscope
