// SPDX-License-Identifier: Apache-2.0
// products.cpp: converts fp16/bf16 operands to float and multiplies them, with the widest vectors
// of the machine.
#include "framework/cuda/emulation/products.h"

#include <bit>
#include <cstring>

// The compiler makes one copy per instruction set, and the loader chooses one. No copy fuses a
// product and a sum (-ffp-contract=off).
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CONVSCOPE_COPIES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CONVSCOPE_COPIES
#endif

namespace emulation {
namespace {

using convscope::DType;

// Returns the bits of static_cast<float>(Float16), without branches. inf and NaN keep an exponent
// of all ones.
[[gnu::always_inline]] inline std::uint32_t bits_of_half(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t rest = half & 0x7fffu;
  const float small = static_cast<float>(static_cast<std::int32_t>(rest)) * 0x1p-24f;
  const std::uint32_t normal = (rest << 13) + 0x38000000u;
  // The masks are all ones or all zeros. A condition would prevent vectorisation.
  const std::uint32_t is_small = 0u - static_cast<std::uint32_t>(rest < 0x0400u);
  const std::uint32_t is_special = 0u - static_cast<std::uint32_t>(rest >= 0x7c00u);
  const std::uint32_t magnitude = (std::bit_cast<std::uint32_t>(small) & is_small) |
                                  ((normal + (0x38000000u & is_special)) & ~is_small);
  return sign | magnitude;
}

// Copies from[line][k] to to[k][line].
template <int kDepths>
[[gnu::always_inline]] inline void turn(const std::uint32_t* from, int lines, float* to,
                                        int stride) {
  for (int line = 0; line < lines; ++line) {
    for (int depth = 0; depth < kDepths; ++depth) {
      to[depth * stride + line] = std::bit_cast<float>(from[line * kDepths + depth]);
    }
  }
}

// A vector of columns. Use it only inside functions, because passing a vector to a function depends
// on the instruction set.
using Vector [[gnu::vector_size(4 * kColumnsAtOnce), gnu::aligned(4), gnu::may_alias]] = float;

}  // namespace

// Decodes in three loops over all elements, each of which the compiler vectorises.
CONVSCOPE_COPIES
bool decode(DType dtype, bool outer, const unsigned char* const* pieces, int lines, int depths,
            float* numbers, int stride) {
  const int in_piece = dtype == DType::f32 ? 4 : 8;
  const int count = lines * depths;
  alignas(64) static std::uint16_t half_bits[kMaxNumbers];
  alignas(64) static std::uint32_t bits[kMaxNumbers];
  auto* const raw = dtype == DType::f32 ? reinterpret_cast<unsigned char*>(bits)
                                        : reinterpret_cast<unsigned char*>(half_bits);
  for (int i = 0; i < count / in_piece; ++i) std::memcpy(raw + 16 * i, pieces[i], 16);
  if (dtype == DType::f16) {
    for (int i = 0; i < count; ++i) bits[i] = bits_of_half(half_bits[i]);
  } else if (dtype == DType::bf16) {
    for (int i = 0; i < count; ++i) bits[i] = static_cast<std::uint32_t>(half_bits[i]) << 16;
  }
  std::uint32_t special = 0;
  for (int i = 0; i < count; ++i) {
    special |= (bits[i] & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
  }
  if (outer) {  // bits[k][line]
    for (int depth = 0; depth < depths; ++depth) {
      std::memcpy(numbers + depth * stride, bits + depth * lines, sizeof(float) * unsigned(lines));
    }
  } else if (in_piece == 8) {
    for (int depth = 0; depth < depths; depth += 8) {
      turn<8>(bits + depth * lines, lines, numbers + depth * stride, stride);
    }
  } else {
    for (int depth = 0; depth < depths; depth += 4) {
      turn<4>(bits + depth * lines, lines, numbers + depth * stride, stride);
    }
  }
  return special == 0;
}

// A tile of a small problem is mostly padding, so rows and columns that contain only zeros are
// skipped.
CONVSCOPE_COPIES
void multiply(const float* a, int a_stride, bool a_finite, int row, const float* b, int b_stride,
              bool b_finite, int depths, float* sums) {
  std::uint32_t in_row[16] = {};
  for (int depth = 0; depth < depths; ++depth) {
    for (int r = 0; r < 16; ++r) {
      in_row[r] |= std::bit_cast<std::uint32_t>(a[depth * a_stride + row + r]) << 1;
    }
  }
  for (int column = 0; column < b_stride; column += kColumnsAtOnce) {
    std::uint32_t in_columns = 0;
    for (int depth = 0; depth < depths; ++depth) {
      for (int c = 0; c < kColumnsAtOnce; ++c) {
        in_columns |= std::bit_cast<std::uint32_t>(b[depth * b_stride + column + c]) << 1;
      }
    }
    for (int r = 0; r < 16; ++r) {
      Vector sum = {};
      if ((in_row[r] != 0 || !b_finite) && (in_columns != 0 || !a_finite)) {
        for (int e = 0; e < 8; ++e) {
          Vector part = {};
          for (int depth = e; depth < depths; depth += 8) {
            Vector line;
            std::memcpy(&line, b + depth * b_stride + column, sizeof line);
            part += a[depth * a_stride + row + r] * line;
          }
          sum += part;
        }
      }
      std::memcpy(sums + r * b_stride + column, &sum, sizeof sum);
    }
  }
}

}  // namespace emulation
