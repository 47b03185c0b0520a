// SPDX-License-Identifier: Apache-2.0
// int8_outputs.cuh: the epilogue from exact sums to y, four channels of a pixel at a time.
//
// Formula    real = s_x s_w[k] sum + b[k] + s_r residual;  y = clip(round(real / s_y)), or real
// Numerics   A sum has 31 bits and f32 has 24, so `real` in f32 is wrong by a few units in the last
//            place. A code is then right unless the fraction of `real` is very near 1/2. The codes
//            for which it is near, one in some thousands, are computed in double. So all codes
//            equal those of double arithmetic. Computing all codes in double would cost more than
//            the sums: an SM converts 16 numbers of 64 bits in the time of 128 float products.
// Read next  int8_gemm_tiles.cuh
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/int8/shared/cuda/int8_bytes.cuh"

namespace convscope::int8 {

enum class Beside : std::uint8_t { nothing, codes, signed_codes, floats };

// Arguments of the epilogue. All pointers are on the device. The kernel reads the scales when it
// runs, so a CUDA graph stays valid when the scales change. y and the residual are in NCHW16c.
struct CudaOutputs {
  const double* s_x = nullptr;
  const double* s_w = nullptr;  // [K]; null: 1
  const double* s_y = nullptr;
  const double* s_residual = nullptr;
  const double* b = nullptr;  // [K], or null
  const void* residual = nullptr;
  void* y = nullptr;
  float most = 0;  // upper bound, for relu
  int low = 0, high = 0, channels = 0;
  bool codes = false, relu = false, w_per_channel = true;
  Beside beside = Beside::nothing;
};

inline CudaOutputs cuda_outputs(const Conv2dForwardArgs& args) {
  const Conv2dEpilogue& behind = args.epilogue;
  const OperandViews& views = args.views;
  CudaOutputs out{.s_x = views.x.scales,
                  .s_w = views.w.scales,
                  .s_y = views.y.scales,
                  .s_residual = views.residual.scales,
                  .b = static_cast<const double*>(args.b),
                  .residual = behind.residual,
                  .y = args.y,
                  .most = behind.most,
                  .channels = static_cast<int>(args.problem.k),
                  .codes = args.problem.types->y != DType::f32,
                  .relu = behind.relu,
                  .w_per_channel = views.w.per_channel};
  const CodeRange range = code_range(args.problem.types->y, views.y);
  out.low = out.relu && range.low < 0 ? 0 : range.low;
  out.high = range.high;
  if (behind.residual != nullptr) {
    out.beside = behind.residual_type == DType::u8   ? Beside::codes
                 : behind.residual_type == DType::i8 ? Beside::signed_codes
                                                     : Beside::floats;
  }
  return out;
}

__device__ inline double scale_at(const double* scales, int at) {
  return scales == nullptr ? 1.0 : scales[at];
}

// The scales of a tile of kCount channels, in shared memory. Results are in units of y's step size.
template <int kCount>
struct Factors {
  // real = scale * sum + shift (+ beside * residual). Its code is the nearest integer. The code is
  // certain if `real` is at most `sure` away from it.
  alignas(16) float scale[kCount], shift[kCount], sure[kCount];
  alignas(16) double exact_scale[kCount], exact_shift[kCount];
  double exact_beside;
  float beside, low, high;
};

// Returns the largest distance of a result from the nearest integer at which this integer is
// certainly the right code: 1/2 minus a bound of the error. With u = 2^-24, f32 rounds the sum (by
// u |product|), the factor (u |product|), the shift (u |shift|), the residual's factor and the two
// sums (2 u |residual| + 2 u |real|). A code that is not clipped has |real| <= top = the largest
// code + 1, so |product| <= top + |shift| + |residual|. The bound is u (4 top + 3 |shift| + 4
// |residual|), plus 5 % for omitted terms. Where a sum could exceed the range of this bound, the
// result is -1: no code is certain.
__device__ inline float sure_fraction(double top, double scale, double shift, double beside) {
  const double wrong = 1.05 * 0x1p-24 * (4 * top + 3 * fabs(shift) + 4 * beside);
  const double largest = fabs(scale) * 0x1p31 + fabs(shift) + beside;
  return largest < 0x1p100 ? static_cast<float>(0.5 - wrong) : -1.0f;  // NaN: not sure
}

// Fills the scales. All threads of a block call it and synchronise before they read them.
template <int kCount>
__device__ inline void make_factors(const CudaOutputs& z, int first_channel, Factors<kCount>& to) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kCount) return;
  const double inverse = z.codes ? 1 / scale_at(z.s_y, 0) : 1;
  const double x_scale = scale_at(z.s_x, 0) * inverse;
  double beside = 0;
  if (z.beside != Beside::nothing) {
    beside = (z.beside == Beside::floats ? 1 : scale_at(z.s_residual, 0)) * inverse;
  }
  double low = z.codes ? z.low : 0, high = z.most * inverse;
  if (z.codes) high = z.relu ? fmin(z.high, rint(high)) : z.high;
  const double top = fmax(fabs(low), fabs(high)) + 1;
  for (int i = thread; i < kCount; i += static_cast<int>(blockDim.x)) {
    const int k = first_channel + i;
    const bool exists = k < z.channels;  // lanes after the last channel are 0
    const double scale = exists ? x_scale * scale_at(z.s_w, z.w_per_channel ? k : 0) : 0;
    const double shift = exists && z.b != nullptr ? z.b[k] * inverse : 0;
    to.exact_scale[i] = scale;
    to.exact_shift[i] = shift;
    to.scale[i] = static_cast<float>(scale);
    to.shift[i] = static_cast<float>(shift);
    to.sure[i] = !z.codes || z.beside == Beside::floats
                     ? -1
                     : sure_fraction(top, scale, shift, 255 * fabs(beside));
  }
  if (thread == 0) {
    to.exact_beside = beside;
    to.beside = static_cast<float>(beside);
    to.low = static_cast<float>(low);
    to.high = static_cast<float>(high);
  }
}

// The residual of four channels: four int8 codes, or four floats.
struct Residual {
  unsigned bytes = 0;
  float4 floats = {0, 0, 0, 0};
};
__device__ inline Residual residual_at(const CudaOutputs& z, std::int64_t at) {
  Residual out;
  if (z.beside == Beside::floats) {
    out.floats = *reinterpret_cast<const float4*>(static_cast<const float*>(z.residual) + at);
  } else if (z.beside != Beside::nothing) {
    out.bytes =
        *reinterpret_cast<const unsigned*>(static_cast<const unsigned char*>(z.residual) + at);
  }
  return out;
}
__device__ inline float number_of(const CudaOutputs& z, const Residual& residual, int i) {
  if (z.beside == Beside::floats) {
    return i == 0   ? residual.floats.x
           : i == 1 ? residual.floats.y
           : i == 2 ? residual.floats.z
                    : residual.floats.w;
  }
  return static_cast<float>(byte_of(residual.bytes, i, z.beside == Beside::signed_codes));
}

// Returns the codes of four channels, computed in double. NaN becomes the lowest code.
template <int kCount>
__device__ __attribute__((noinline)) unsigned exact_codes(const CudaOutputs& z,
                                                          const Factors<kCount>& by, int local,
                                                          int4 sums, Residual residual) {
  const int four[4] = {sums.x, sums.y, sums.z, sums.w};
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) {
    double real = by.exact_scale[local + i] * four[i] + by.exact_shift[local + i];
    if (z.beside != Beside::nothing) real += by.exact_beside * number_of(z, residual, i);
    const int code = static_cast<int>(rint(fmin(fmax(real, by.low), by.high)));
    word |= (static_cast<unsigned>(code) & 0xffu) << (8 * i);
  }
  return word;
}

// Kinds of epilogue as template arguments, because a branch for each element would take longer than
// the element. `any` decides at run time.
enum class Kind : std::uint8_t { codes, codes_beside_codes, any };
template <Kind kKind>
struct KindOf {
  static constexpr Kind kind = kKind;
};
template <class F>
__device__ inline void with_kind(const CudaOutputs& z, const F& f) {
  if (z.codes && z.beside == Beside::nothing) {
    f(KindOf<Kind::codes>{});
  } else if (z.codes && z.beside != Beside::floats) {
    f(KindOf<Kind::codes_beside_codes>{});
  } else {
    f(KindOf<Kind::any>{});
  }
}

// Stores y of four channels. The first one has index `local` in the scales and is channel
// first_channel + local of y. Its element in y and in the residual is `at`.
template <Kind kKind, int kCount>
__device__ inline void store_four(const CudaOutputs& z, const Factors<kCount>& by,
                                  int first_channel, int local, const int (&sums)[4],
                                  std::int64_t at) {
  const float4 scale = *reinterpret_cast<const float4*>(by.scale + local);
  const float4 shift = *reinterpret_cast<const float4*>(by.shift + local);
  Residual residual;
  if constexpr (kKind != Kind::codes) residual = residual_at(z, at);
  float real[4] = {__fmaf_rn(static_cast<float>(sums[0]), scale.x, shift.x),
                   __fmaf_rn(static_cast<float>(sums[1]), scale.y, shift.y),
                   __fmaf_rn(static_cast<float>(sums[2]), scale.z, shift.z),
                   __fmaf_rn(static_cast<float>(sums[3]), scale.w, shift.w)};
  if constexpr (kKind == Kind::codes_beside_codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int code = byte_of(residual.bytes, i, z.beside == Beside::signed_codes);
      real[i] = __fmaf_rn(static_cast<float>(code), by.beside, real[i]);
    }
  } else if constexpr (kKind == Kind::any) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (z.beside == Beside::nothing) break;
      real[i] = __fmaf_rn(number_of(z, residual, i), by.beside, real[i]);
    }
  }
  const int left = z.channels - first_channel - local;
  if (kKind == Kind::any && !z.codes) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (z.relu) real[i] = real[i] < by.low ? by.low : real[i] > by.high ? by.high : real[i];
      if (i >= left) real[i] = 0;
    }
    *reinterpret_cast<float4*>(static_cast<float*>(z.y) + at) =
        make_float4(real[0], real[1], real[2], real[3]);
    return;
  }
  const float4 sure = *reinterpret_cast<const float4*>(by.sure + local);
  const float sures[4] = {sure.x, sure.y, sure.z, sure.w};
  constexpr float kShift = 12582912;  // 1.5 * 2^23: pushes the fraction out
  unsigned bits[4];
  bool all_sure = true;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Clipped values are sure, because `low` and `high` are integers.
    const float clipped = fminf(fmaxf(real[i], by.low), by.high);
    const float pushed = __fadd_rn(clipped, kShift);
    const float fraction = __fsub_rn(clipped, __fsub_rn(pushed, kShift));
    all_sure = all_sure && fabsf(fraction) <= sures[i];
    bits[i] = __float_as_uint(pushed);
  }
  unsigned word = __byte_perm(__byte_perm(bits[0], bits[1], 0x0040),
                              __byte_perm(bits[2], bits[3], 0x0040), 0x5410);
  if (!all_sure) {
    word = exact_codes(z, by, local, make_int4(sums[0], sums[1], sums[2], sums[3]), residual);
  }
  if (left < 4) word &= left <= 0 ? 0u : 0xffffffffu >> (8 * (4 - left));
  *reinterpret_cast<unsigned*>(static_cast<unsigned char*>(z.y) + at) = word;
}

}  // namespace convscope::int8
