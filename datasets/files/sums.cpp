// SPDX-License-Identifier: Apache-2.0
// sums.cpp: SHA-256 and MD5, to verify downloaded files.
#include "datasets/files/sums.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace convscope {
namespace {

// SHA-256 and MD5 process blocks of 64 bytes; `rest` holds the incomplete block.
template <class Block>
void add_blocks(Bytes bytes, std::array<std::uint8_t, 64>& rest, std::uint64_t& length,
                Block&& block) {
  std::size_t used = length % 64;
  length += bytes.size();
  while (!bytes.empty()) {
    if (used == 0 && bytes.size() >= 64) {
      block(bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const std::size_t piece = std::min(64 - used, bytes.size());
    std::memcpy(rest.data() + used, bytes.data(), piece);
    bytes = bytes.subspan(piece);
    used += piece;
    if (used == 64) {
      block(rest.data());
      used = 0;
    }
  }
}

// Pads the message: a one bit, zeros up to 8 bytes before the end of a block, and the length in
// bits.
template <class Sum>
void pad(Sum& sum, std::uint64_t length) {
  const std::array<std::uint8_t, 64> padding{0x80};
  const std::size_t used = length % 64;
  sum.add(Bytes(padding.data(), (used < 56 ? 56 : 120) - used));
}

void append_hex(std::string& out, std::uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t kSha256Constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// floor(2^32 |sin(i)|), i = 1..64.
constexpr std::uint32_t kMd5Constants[64] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};
constexpr int kMd5Shifts[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

}  // namespace

void Sha256::add(Bytes bytes) {
  add_blocks(bytes, rest_, length_, [this](const std::uint8_t* b) { block(b); });
}

void Sha256::block(const std::uint8_t* bytes) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = std::uint32_t{bytes[4 * i]} << 24 | std::uint32_t{bytes[4 * i + 1]} << 16 |
           std::uint32_t{bytes[4 * i + 2]} << 8 | bytes[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kSha256Constants[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::uint32_t add[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

std::string Sha256::hex() {
  const std::uint64_t bits = length_ * 8;
  pad(*this, length_);
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(bits >> (56 - 8 * i));
  add(length);
  std::string out;
  for (std::uint32_t word : state_) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      append_hex(out, static_cast<std::uint8_t>(word >> shift));
    }
  }
  return out;
}

void Md5::add(Bytes bytes) {
  add_blocks(bytes, rest_, length_, [this](const std::uint8_t* b) { block(b); });
}

void Md5::block(const std::uint8_t* bytes) {
  auto [a, b, c, d] = state_;
  for (int i = 0; i < 64; ++i) {
    const int round = i / 16;
    std::uint32_t mix = 0;
    int word = 0;
    if (round == 0) {
      mix = (b & c) | (~b & d);
      word = i;
    } else if (round == 1) {
      mix = (d & b) | (~d & c);
      word = (5 * i + 1) % 16;
    } else if (round == 2) {
      mix = b ^ c ^ d;
      word = (3 * i + 5) % 16;
    } else {
      mix = c ^ (b | ~d);
      word = 7 * i % 16;
    }
    const auto m = static_cast<std::uint32_t>(
        little_endian(Bytes(bytes, 64), static_cast<std::size_t>(4 * word), 4));
    const std::uint32_t rotated =
        std::rotl(a + mix + kMd5Constants[i] + m, kMd5Shifts[round][i % 4]);
    a = d;
    d = c;
    c = b;
    b += rotated;
  }
  const std::uint32_t add[4] = {a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) state_[i] += add[i];
}

std::string Md5::hex() {
  const std::uint64_t bits = length_ * 8;
  pad(*this, length_);
  std::array<std::uint8_t, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  add(length);
  std::string out;
  for (std::uint32_t word : state_) {
    for (int shift = 0; shift < 32; shift += 8) {
      append_hex(out, static_cast<std::uint8_t>(word >> shift));
    }
  }
  return out;
}

}  // namespace convscope
