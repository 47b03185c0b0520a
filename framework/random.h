// SPDX-License-Identifier: Apache-2.0
// random.h: counter-based random numbers. Number i of stream s under seed k is a pure function of
// (k, s, i), so all threads and devices compute the same numbers in any order. The state of a
// generator is three integers: k, s and i.
//
// Source: J. Salmon, M. Moraes, R. Dror, D. Shaw: Parallel Random Numbers: As Easy as 1, 2, 3,
// SC 2011, doi 10.1145/2063384.2063405 (Philox4x32-10). The normal numbers use the Box-Muller
// transform (1958) with custom polynomials instead of the C library's log and cos, and explicit fma
// for all multiply-adds. So the bits do not depend on library or device.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "framework/host_device.h"

namespace convscope {

struct Philox4 {
  std::uint32_t x[4];
};

// Applies ten rounds of Philox to a 128-bit counter with a 64-bit key; returns four 32-bit words.
CONVSCOPE_HOST_DEVICE inline Philox4 philox4x32(Philox4 counter, std::uint64_t key) {
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter.x[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter.x[2];
    counter = {
        {static_cast<std::uint32_t>(b >> 32) ^ counter.x[1] ^ key0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ counter.x[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// Returns the four words of block `index` of `stream` under `seed`.
CONVSCOPE_HOST_DEVICE inline Philox4 random_block(std::uint64_t seed, std::uint64_t stream,
                                                  std::uint64_t index) {
  return philox4x32(
      {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
        static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}},
      seed);
}

// Returns a uniform number in [0, 1) from the upper 24 bits, so every value is exact.
CONVSCOPE_HOST_DEVICE inline float uniform_from_bits(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Two standard normal numbers, computed from two 32-bit words.
struct NormalPair {
  float a, b;
};

namespace detail {

// Computes log(x) for normal x > 0. First, x = m * 2^e with m in [sqrt(1/2), sqrt(2)). Then log(m)
// is the series of 2 atanh(t) with t = (m-1)/(m+1) and |t| < 0.172. Six terms of the series leave
// an error below 2^-30.
CONVSCOPE_HOST_DEVICE inline float log_of(float x) {
  auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t shifted = bits - 0x3f3504f3u;  // bits of sqrt(1/2)
  const auto exponent = static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
  bits = (shifted & 0x007fffffu) + 0x3f3504f3u;
  const float m = std::bit_cast<float>(bits);
  const float t = (m - 1.0f) / (m + 1.0f);
  const float t2 = t * t;
  float p = std::fma(t2, 2.0f / 11, 2.0f / 9);
  p = std::fma(p, t2, 2.0f / 7);
  p = std::fma(p, t2, 2.0f / 5);
  p = std::fma(p, t2, 2.0f / 3);
  p = std::fma(p, t2, 2.0f);
  return std::fma(exponent, 0.693147180559945f, t * p);
}

// Computes cos and sin of 2 pi u, u in [0, 1). Subtracts the nearest quarter turn and evaluates
// Taylor polynomials of degree 8 and 9 at the remainder x, |x| <= pi/4.
CONVSCOPE_HOST_DEVICE inline NormalPair cos_sin_turn(float u) {
  const auto quarter = static_cast<std::int32_t>(std::fma(u, 4.0f, 0.5f));
  const float x = std::fma(static_cast<float>(quarter), -0.25f, u) * 6.283185307179586f;
  const float x2 = x * x;
  float c = std::fma(x2, 1.0f / 40320, -1.0f / 720);
  c = std::fma(c, x2, 1.0f / 24);
  c = std::fma(c, x2, -0.5f);
  c = std::fma(c, x2, 1.0f);
  float s = std::fma(x2, 1.0f / 362880, -1.0f / 5040);
  s = std::fma(s, x2, 1.0f / 120);
  s = std::fma(s, x2, -1.0f / 6);
  s = std::fma(s * x2, x, x);
  switch (quarter & 3) {
    case 0:
      return {c, s};
    case 1:
      return {-s, c};
    case 2:
      return {-c, -s};
    default:
      return {s, -c};
  }
}

}  // namespace detail

CONVSCOPE_HOST_DEVICE inline NormalPair normal_from_bits(std::uint32_t bits_a,
                                                         std::uint32_t bits_b) {
  const float u = uniform_from_bits(bits_a) + 0x1p-25f;  // in (0, 1), so the log is finite
  const float radius = std::sqrt(-2.0f * detail::log_of(u));
  const NormalPair turn = detail::cos_sin_turn(uniform_from_bits(bits_b));
  return {radius * turn.a, radius * turn.b};
}

// Hands out the numbers of one stream in sequence.
class Generator {
 public:
  explicit Generator(std::uint64_t seed = 0, std::uint64_t stream = 0)
      : seed_(seed), stream_(stream) {}

  std::uint32_t next_bits() {
    if (used_ == 4) {
      block_ = random_block(seed_, stream_, index_++);
      used_ = 0;
    }
    return block_.x[used_++];
  }
  float uniform() { return uniform_from_bits(next_bits()); }  // [0, 1)
  float uniform(float low, float high) { return std::fma(uniform(), high - low, low); }
  float normal() {
    const std::uint32_t a = next_bits();
    return normal_from_bits(a, next_bits()).a;
  }
  // Returns an unbiased uniform number in [0, bound), bound >= 1 (Lemire 2019, arXiv 1805.10941).
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next_bits()} * bound;
    if (static_cast<std::uint32_t>(product) < bound) {
      const std::uint32_t threshold = (0u - bound) % bound;
      while (static_cast<std::uint32_t>(product) < threshold) {
        product = std::uint64_t{next_bits()} * bound;
      }
    }
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t index_ = 0;
  Philox4 block_{};
  std::uint32_t used_ = 4;
};

}  // namespace convscope
