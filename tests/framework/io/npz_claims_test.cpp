// SPDX-License-Identifier: Apache-2.0
// npz_claims_test.cpp: tests that a small archive which claims or contains very much data is
// refused before it is unpacked.
#include <gtest/gtest.h>
#include <zlib.h>

#include "framework/io/npy.h"
#include "framework/io/npz.h"
#include "tests/support/expect_error.h"
#include "tests/support/resident_memory.h"

namespace convscope {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Returns an archive with one compressed entry: `beginning`, followed by `mebibytes` MiB of zeros.
// The directory claims that the entry has `claimed` bytes.
std::string packed_zeros(const std::string& beginning, std::size_t mebibytes, std::size_t claimed) {
  std::string piece(kMiB, '\0');
  std::string packed(mebibytes * 2048 + 65536, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  uLong crc = crc32(0, nullptr, 0);
  const auto add = [&](const std::string& text, int flush) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(text.data()), text.size());
    deflate(&stream, flush);
  };
  add(beginning, Z_NO_FLUSH);
  for (std::size_t i = 0; i < mebibytes; ++i) add(piece, Z_NO_FLUSH);
  add("", Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);

  const std::string name = "w.npy";
  std::string fields;
  append_little_endian(fields, 20, 2);  // version 2.0, no flags, deflated, no time
  append_little_endian(fields, 0, 2);
  append_little_endian(fields, 8, 2);
  append_little_endian(fields, 0, 4);
  append_little_endian(fields, crc, 4);
  append_little_endian(fields, packed.size(), 4);
  append_little_endian(fields, claimed, 4);
  append_little_endian(fields, name.size(), 2);
  append_little_endian(fields, 0, 2);
  std::string out = "PK\x03\x04" + fields + name + packed;
  const std::size_t directory_at = out.size();
  out += "PK\x01\x02";
  append_little_endian(out, 20, 2);
  out += fields + std::string(14, '\0') + name;
  const std::size_t directory_bytes = out.size() - directory_at;
  out += "PK\x05\x06" + std::string(4, '\0');
  append_little_endian(out, 1, 2);
  append_little_endian(out, 1, 2);
  append_little_endian(out, directory_bytes, 4);
  append_little_endian(out, directory_at, 4);
  return out + std::string(2, '\0');
}

NamedTensors parse(const std::string& file) {
  return parse_npz({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "t.npz");
}

TEST(NpzClaims, TakeLittleMemoryWhenTheyAreWrong) {
  const std::string small = npy_header(Tensor::empty({6}));
  const std::string other = packed_zeros(small, 128, 128 * kMiB + small.size());
  const std::string none = packed_zeros("", 128, 128 * kMiB);
  const std::string large = npy_header(Tensor::view({}, 0, {1 << 28}, DType::f32));
  const std::string cut = packed_zeros(large, 2, 1024 * kMiB + large.size());
  const auto extra = testing::extra_resident_bytes([&] {
    EXPECT_ERROR(ErrorKind::kData, "by the header of the array", parse(other));
    EXPECT_ERROR(ErrorKind::kData, "which begins with", parse(none));
    EXPECT_ERROR(ErrorKind::kData, "[npz] t.npz", parse(cut));
  });
  EXPECT_LT(extra, 32 << 20);
}

TEST(NpzClaims, OfALargeArrayThatIsThereAreBelieved) {
  const Tensor zeros = Tensor::view({}, 0, {1 << 20}, DType::f32);
  const std::string header = npy_header(zeros);
  const NamedTensors back = parse(packed_zeros(header, 4, 4 * kMiB + header.size()));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].tensor.shape(), Shape{1 << 20});
  EXPECT_EQ(back[0].tensor.at((1 << 20) - 1), 0);
}

}  // namespace
}  // namespace convscope
