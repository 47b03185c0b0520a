// SPDX-License-Identifier: Apache-2.0
// sums.h: SHA-256 and MD5, to verify downloaded files. MD5 detects damage, not attacks: it is used
// only where the authors published nothing better.
// Source: NIST FIPS 180-4, 2015 (SHA-256); R. Rivest: RFC 1321, 1992 (MD5).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "framework/io/bytes.h"

namespace convscope {

class CONVSCOPE_API Sha256 {
 public:
  void add(Bytes bytes);
  std::string hex();  // finishes: 64 lower-case digits

 private:
  void block(const std::uint8_t* bytes);
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> rest_{};
  std::uint64_t length_ = 0;  // bytes
};

class CONVSCOPE_API Md5 {
 public:
  void add(Bytes bytes);
  std::string hex();  // finishes: 32 lower-case digits

 private:
  void block(const std::uint8_t* bytes);
  std::array<std::uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  std::array<std::uint8_t, 64> rest_{};
  std::uint64_t length_ = 0;  // bytes
};

}  // namespace convscope
