// SPDX-License-Identifier: Apache-2.0
// int8_outputs.h: what turns a vector of sums into y (Int8Outputs in int8_tiles.h); for
// *_int8_simd.cpp files.
//
// Numerics   A sum has 31 bits and f32 has 24, so `real` is wrong by a few units in the last place.
//            A code is then right unless the fraction of `real` is very near 1/2. Those pixels,
//            one in a few hundred, are computed in double, by a function that is not inlined.
#pragma once

#include "framework/simd/int8_vector.h"
#include "layers/conv2d/int8/cpu/int8_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// One vector of codes in double.
[[gnu::noinline]] void store_exactly(const Int8Outputs& o, const std::int32_t* sums,
                                     std::int64_t channel, const void* residual,
                                     std::uint8_t* out) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: pushes the fraction out
  for (int l = 0; l < kLanes; ++l) {
    double real = o.exact_scale[channel + l] * sums[l] + o.exact_shift[channel + l];
    if (o.residual_type == Int8Outputs::Residual::codes) {
      real += o.exact_residual_scale * static_cast<const std::uint8_t*>(residual)[l];
    } else if (o.residual_type == Int8Outputs::Residual::signed_codes) {
      real += o.exact_residual_scale * static_cast<const std::int8_t*>(residual)[l];
    } else if (o.residual_type == Int8Outputs::Residual::floats) {
      real += o.exact_residual_scale * static_cast<double>(static_cast<const float*>(residual)[l]);
    }
    if (!(real > o.low)) real = o.low;  // NaN too
    if (real > o.high) real = o.high;
    out[l] = static_cast<std::uint8_t>(static_cast<int>((real + kShift) - kShift));
  }
}

// Which kind of y and of residual there is, known to the compiler.
template <bool Codes, Int8Outputs::Residual Beside>
struct OutputKind {
  static constexpr bool kCodes = Codes;
  static constexpr Int8Outputs::Residual kResidual = Beside;
};

// One vector of channels; `channel` is that of lane 0.
template <class Kind>
class ChannelOutputs {
 public:
  using Beside = Int8Outputs::Residual;
  CONVSCOPE_INLINE ChannelOutputs(const Int8Outputs& o, std::int64_t channel)
      : o_(o),
        channel_(channel),
        scale_(load(o.scale + channel)),
        shift_(load(o.shift + channel)),
        sure_(broadcast(o.sure)),
        low_(set_bytes(o.low)),
        high_(set_bytes(o.high)),
        is_signed_(o.low < 0) {}

  // y of up to four pixels, `step` elements apart, from their sums. y and the residual begin at
  // element `at`.
  CONVSCOPE_INLINE void store(const std::int32_t* sums, int count, const void* residual, void* y,
                              std::int64_t at, std::int64_t step) const {
    if constexpr (Kind::kCodes) {
      store_codes(sums, count, residual, static_cast<std::uint8_t*>(y) + at, at, step);
    } else {
      for (int j = 0; j < count; ++j, at += step) {
        const Vec real = real_of(load_ints(sums + j * kLanes), residual, at);
        convscope::CONVSCOPE_ISA::store(static_cast<float*>(y) + at,
                                        min(max(real, broadcast(o_.least)), broadcast(o_.most)));
      }
    }
  }

 private:
  CONVSCOPE_INLINE Vec real_of(Ints sums, const void* residual, std::int64_t at) const {
    const Vec real = fma(to_floats(sums), scale_, shift_);
    if constexpr (Kind::kResidual == Beside::codes) {
      const Vec beside = load_codes(static_cast<const std::uint8_t*>(residual) + at);
      return fma(beside, broadcast(o_.residual_scale), real);
    } else if constexpr (Kind::kResidual == Beside::signed_codes) {
      const Vec beside = load_signed_codes(static_cast<const std::int8_t*>(residual) + at);
      return fma(beside, broadcast(o_.residual_scale), real);
    } else if constexpr (Kind::kResidual == Beside::floats) {
      return fma(load(static_cast<const float*>(residual) + at), broadcast(o_.residual_scale),
                 real);
    } else {
      return real;
    }
  }

  CONVSCOPE_INLINE void store_codes(const std::int32_t* sums, int count, const void* residual,
                                    std::uint8_t* y, std::int64_t at, std::int64_t step) const {
    Ints codes[4];
    Vec farthest = zero();
    bool sure = true;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      if (j >= count) {
        codes[j] = codes[0];
        continue;
      }
      const Vec real = real_of(load_ints(sums + j * kLanes), residual, at + j * step);
      codes[j] = round_to_ints(real);
      farthest = larger_size(farthest, distance_to_integer(real, codes[j]));
      if constexpr (Kind::kResidual == Beside::floats) {
        const Vec beside = load(static_cast<const float*>(residual) + at + j * step);
        sure = sure && !any_beyond(beside, broadcast(o_.residual_sure));
      }
    }
    if (__builtin_expect(!sure || any_beyond(farthest, sure_), 0)) {
      for (int j = 0; j < count; ++j) {
        const std::int64_t from = (at + j * step) * (Kind::kResidual == Beside::floats ? 4 : 1);
        const auto* const beside = static_cast<const std::uint8_t*>(residual);
        store_exactly(o_, sums + j * kLanes, channel_,
                      residual == nullptr ? nullptr : beside + from, y + j * step);
      }
      return;
    }
    const Bytes bytes =
        is_signed_ ? to_signed_bytes(codes, low_, high_) : to_bytes(codes, low_, high_);
    store_bytes(y, step, bytes, count);
  }

  const Int8Outputs& o_;
  const std::int64_t channel_;
  const Vec scale_, shift_, sure_;
  const Bytes low_, high_;
  const bool is_signed_;
};

// Calls f with the kind of `o`.
template <class F>
CONVSCOPE_INLINE void with_output_kind(const Int8Outputs& o, const F& f) {
  using enum Int8Outputs::Residual;
  if (o.codes) {
    if (o.residual_type == none) return f(OutputKind<true, none>{});
    if (o.residual_type == codes) return f(OutputKind<true, codes>{});
    if (o.residual_type == signed_codes) return f(OutputKind<true, signed_codes>{});
    return f(OutputKind<true, floats>{});
  }
  if (o.residual_type == none) return f(OutputKind<false, none>{});
  if (o.residual_type == codes) return f(OutputKind<false, codes>{});
  if (o.residual_type == signed_codes) return f(OutputKind<false, signed_codes>{});
  f(OutputKind<false, floats>{});
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA
