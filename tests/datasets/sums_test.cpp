// SPDX-License-Identifier: Apache-2.0
// sums_test.cpp: SHA-256 and MD5 against the test vectors of their standards.
#include "datasets/files/sums.h"

#include <gtest/gtest.h>

#include "tests/support/idx_files.h"

namespace convscope {
namespace {

using testing::bytes_of;

template <class Sum>
std::string sum_of(const std::string& text) {
  Sum sum;
  sum.add(bytes_of(text));
  return sum.hex();
}

// NIST's example vectors for FIPS 180-4.
TEST(Sha256, GivesTheSumsOfTheStandard) {
  EXPECT_EQ(sum_of<Sha256>(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum_of<Sha256>("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sum_of<Sha256>("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sum_of<Sha256>(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Test vectors of RFC 1321.
TEST(Md5, GivesTheSumsOfTheStandard) {
  EXPECT_EQ(sum_of<Md5>(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(sum_of<Md5>("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(sum_of<Md5>("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(sum_of<Md5>("1234567890123456789012345678901234567890123456789012345678901234567890123"
                        "4567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Sums, DoNotDependOnHowTheBytesAreCut) {
  const std::string text(1000, 'x');
  for (const std::size_t piece : {1, 55, 56, 63, 64, 65, 200}) {
    Sha256 sha;
    Md5 md5;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      sha.add(bytes_of(text).subspan(at, std::min(piece, text.size() - at)));
      md5.add(bytes_of(text).subspan(at, std::min(piece, text.size() - at)));
    }
    EXPECT_EQ(sha.hex(), sum_of<Sha256>(text));
    EXPECT_EQ(md5.hex(), sum_of<Md5>(text));
  }
}

}  // namespace
}  // namespace convscope
