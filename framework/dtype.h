// SPDX-License-Identifier: Apache-2.0
// dtype.h: the element types of tensors, and the two 16-bit float formats in plain C++.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace convscope {

// f64 is for gradient checks and references; networks use f32 and the 16-bit floats.
enum class DType : std::uint8_t { f32, f64, f16, bf16, i32, i8, u8 };
inline constexpr int kDTypeCount = 7;

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i8:
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {"f32", "f64", "f16", "bf16", "i32", "i8", "u8"};
  return kNames[static_cast<int>(dtype)];
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

// bfloat16: the upper half of a float; conversion rounds to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit constexpr BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Rounds to nearest, ties to even.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit constexpr Float16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN stays NaN
      bits = static_cast<std::uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds past the largest fp16 number, 65504
      bits = static_cast<std::uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // subnormal in fp16: adding 0.5f rounds the fraction
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits =
          static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    } else {
      const std::uint32_t odd = (magnitude >> 13) & 1u;
      bits = static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
    }
  }
  explicit constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t rest = bits & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
    const float value = static_cast<float>(rest) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
};

// Maps between the C++ type of an element and its DType.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace convscope
