// SPDX-License-Identifier: Apache-2.0
// npy_test.cpp: reads and writes .npy: valid, unsupported and damaged.
#include "framework/io/npy.h"

#include "framework/io/atomic_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

std::string npy(const std::string& dict, const std::string& data, int major = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  append_little_endian(file, dict.size(), major == 1 ? 2 : 4);
  return file + dict + data;
}

Tensor parse(const std::string& file) {
  return parse_npy(Bytes(reinterpret_cast<const std::uint8_t*>(file.data()), file.size()), "t.npy");
}

TEST(Npy, ReadsWhatItWroteInEveryDType) {
  const testing::TemporaryFolder folder;
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::i32, DType::i8, DType::u8}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 0, 3}, Shape{1, 2, 1, 3}}) {
      Tensor x = Tensor::empty(shape, DType::f32);
      for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i * 7);
      x = x.to(dtype);
      write_npy(folder / "x.npy", x);
      const Tensor y = read_npy(folder / "x.npy");
      ASSERT_EQ(y.str(), x.str());
      for (std::int64_t i = 0; i < x.numel(); ++i) EXPECT_EQ(y.at(i), x.at(i));
    }
  }
}

TEST(Npy, WritesTheBytesThatNumPyWrites) {
  const std::string header = npy_header(Tensor::zeros({2, 3}));
  EXPECT_EQ(header.size(), 128u);
  EXPECT_EQ(header.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_EQ(header.substr(10, 60), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(npy_header(Tensor::zeros({5})).find("'shape': (5,), }"), std::string::npos);
  EXPECT_NE(npy_header(Tensor::zeros({})).find("'shape': (), }"), std::string::npos);
}

TEST(Npy, ReadsVersionTwoAndAnyKeyOrder) {
  const std::string data("\0\0\x80\x3f\0\0\0\x40", 8);
  const Tensor x = parse(npy("{\"shape\":(2,),'fortran_order':False,'descr':'<f4'}\n", data, 2));
  EXPECT_EQ(x.shape(), Shape{2});
  EXPECT_EQ(x.at(1), 2.0);
}

TEST(Npy, RefusesFortranOrderAndSaysWhatToDo) {
  EXPECT_ERROR(ErrorKind::kData, "np.ascontiguousarray",
               parse(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,1)}", "abcd")));
}

TEST(Npy, RefusesOtherDTypesByName) {
  for (const char* descr : {"<i8", ">f4", "|b1", "<c8", "<U4", "|O"}) {
    EXPECT_ERROR(ErrorKind::kData, std::string(descr) + "'; convert it in NumPy",
                 parse(npy(cat("{'descr': '", descr, "', 'fortran_order': False, 'shape': ()}"),
                           "abcdefgh")));
  }
  EXPECT_ERROR(
      ErrorKind::kData, "structured",
      parse(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "abcd")));
}

TEST(Npy, ComparesTheShapeWithTheFileBeforeItAllocates) {
  const auto with_shape = [](const std::string& shape, const std::string& data) {
    return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}", data);
  };
  EXPECT_ERROR(ErrorKind::kData, "expected 8 bytes of data because it is f32[2], got 7",
               parse(with_shape("(2,)", "1234567")));
  EXPECT_ERROR(ErrorKind::kData, "got 9", parse(with_shape("(2,)", "123456789")));
  EXPECT_ERROR(ErrorKind::kData, "got 4", parse(with_shape("(1000000000000,)", "1234")));
  EXPECT_ERROR(ErrorKind::kData, "2^63", parse(with_shape("(4294967296, 4294967296)", "1234")));
  EXPECT_ERROR(ErrorKind::kData, "2^63", parse(with_shape("(99999999999999999999,)", "1234")));
  EXPECT_ERROR(ErrorKind::kData, "at most 6 axes", parse(with_shape("(1,1,1,1,1,1,1)", "1234")));
  EXPECT_ERROR(ErrorKind::kData, "whole number", parse(with_shape("(-1,)", "1234")));
}

TEST(Npy, RefusesDamagedHeaders) {
  EXPECT_ERROR(ErrorKind::kData, "begins with", parse("hello, this is no array"));
  EXPECT_ERROR(ErrorKind::kData, "begins with", parse(""));
  EXPECT_ERROR(ErrorKind::kData, "version", parse(npy("{}", "", 3)));
  std::string file = npy_header(Tensor::zeros({1}));
  EXPECT_ERROR(ErrorKind::kData, "cut short", parse(file.substr(0, 60)));
  EXPECT_ERROR(ErrorKind::kData, "keys", parse(npy("{'descr': '<f4'}", "")));
  EXPECT_ERROR(ErrorKind::kData, "once each", parse(npy("{'descr':'<f4','descr':'<f4'}", "")));
  EXPECT_ERROR(ErrorKind::kData, "nothing after",
               parse(npy("{'descr':'<f4','fortran_order':False,'shape':()} x", "abcd")));
}

TEST(Npy, RefusesToWriteADTypeThatNumPyLacks) {
  EXPECT_ERROR(ErrorKind::kInvalid, "convert it to f32",
               npy_header(Tensor::zeros({1}, DType::bf16)));
}

}  // namespace
}  // namespace convscope
