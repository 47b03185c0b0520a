// SPDX-License-Identifier: Apache-2.0
// int8_outputs.h: the epilogue from a vector of sums to y (Int8Outputs in int8_tiles.h); for
// *_int8_simd.cpp files.
//
// Numerics   Codes are computed in f32 with 16 bits after the binary point (int8_tiles.h). Where
//            f32 is too close to a tie, a function that is not inlined computes the code in double.
//
// Choices    16 sums take 6.5 instructions: convert to f32, multiply, add, convert to integers, a
//            minimum of low halves, and a quarter of the ten instructions that turn four vectors
//            into bytes. (Rounding first takes 11 instructions: it needs the distance between the
//            code and `real`.) One branch for some pixels of a vector detects the few lanes that
//            f32 cannot decide.
#pragma once

#include "framework/simd/int8_vector.h"
#include "layers/conv2d/int8/shared/cpu/int8_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Returns the code of one sum, computed in double. `residual` is the residual of this sum.
inline std::uint8_t exact_code(const Int8Outputs& o, std::int64_t channel, std::int32_t sum,
                               double residual) {
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: pushes the fraction out
  double real = o.exact_scale[channel] * sum + o.exact_shift[channel];
  if (o.residual_type != Int8Outputs::Residual::none) real += o.exact_residual_scale * residual;
  if (!(real > o.low)) real = o.low;  // also true for NaN
  if (real > o.high) real = o.high;
  return static_cast<std::uint8_t>(static_cast<int>((real + kShift) - kShift));
}

// Converts codes to bytes, clipped to bounds that all channels share. `bias` shifts codes so that
// `high` becomes 255. Then high_halves() clips codes above `high`, and a saturating difference
// clips codes below `low`.
class CodeBytes {
 public:
  CONVSCOPE_INLINE explicit CodeBytes(const Int8Outputs& o)
      : floor_(set_bytes(o.low + o.bias)), low_(set_bytes(o.low)) {}
  CONVSCOPE_INLINE Bytes operator()(const Ints (&fixed)[4]) const {
    return less_down_to_zero(high_halves(fixed), floor_) + low_;
  }

 private:
  const Bytes floor_, low_;
};

// The kinds of y and of the residual as template arguments.
template <bool Codes, Int8Outputs::Residual Beside>
struct OutputKind {
  static constexpr bool kCodes = Codes;
  static constexpr Int8Outputs::Residual kResidual = Beside;
};

// The epilogue of one vector of channels; `channel` is the channel of lane 0.
template <class Kind>
class ChannelOutputs {
 public:
  using Beside = Int8Outputs::Residual;
  CONVSCOPE_INLINE ChannelOutputs(const Int8Outputs& o, std::int64_t channel)
      : o_(o),
        channel_(channel),
        scale_(load(o.scale + channel)),
        shift_(load(o.shift + channel)),
        bytes_(o) {}

  // Computes y of `count` pixels from their sums and stores it, pixels `step` elements apart. y and
  // the residual begin at element `at`.
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

  // Computes in double the codes that f32 could not decide.
  [[gnu::noinline]] void correct(const std::int32_t* sums, int count, const void* residual,
                                 std::uint8_t* y, std::int64_t at, std::int64_t step) const {
    for (int j = 0; j < count; ++j, at += step, sums += kLanes) {
      int bound = o_.unsure;
      if (is_large(residual, at)) bound = 0xffff;
      unsigned lanes = lanes_up_to(round_to_ints(real_of(load_ints(sums), residual, at)), bound);
      for (; lanes != 0; lanes &= lanes - 1) {
        const int l = __builtin_ctz(lanes);
        y[j * step + l] = exact_code(o_, channel_ + l, sums[l], exact_residual(residual, at + l));
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

  // Returns whether one of a vector's residuals is too large for f32, so that the vector is
  // computed in double.
  CONVSCOPE_INLINE bool is_large(const void* residual, std::int64_t at) const {
    if constexpr (Kind::kResidual != Beside::floats) return false;
    return any_beyond(load(static_cast<const float*>(residual) + at), broadcast(o_.residual_sure));
  }

  static double exact_residual(const void* residual, std::int64_t at) {
    if constexpr (Kind::kResidual == Beside::codes) {
      return static_cast<const std::uint8_t*>(residual)[at];
    } else if constexpr (Kind::kResidual == Beside::signed_codes) {
      return static_cast<const std::int8_t*>(residual)[at];
    } else if constexpr (Kind::kResidual == Beside::floats) {
      return static_cast<double>(static_cast<const float*>(residual)[at]);
    } else {
      return 0;
    }
  }

  CONVSCOPE_INLINE void store_codes(const std::int32_t* sums, int count, const void* residual,
                                    std::uint8_t* y, std::int64_t at, std::int64_t step) const {
    Ints least = set_ints(-1);
    bool sure = true;
    for (int begin = 0; begin < count; begin += 4) {
      const int rest = count - begin;
      Ints fixed[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        if (j >= rest) {
          fixed[j] = fixed[0];
          continue;
        }
        const std::int64_t from = at + (begin + j) * step;
        fixed[j] = round_to_ints(real_of(load_ints(sums + (begin + j) * kLanes), residual, from));
        least = least_low_halves(least, fixed[j]);
        if (is_large(residual, from)) sure = false;
      }
      store_bytes(y + begin * step, step, bytes_(fixed), rest < 4 ? rest : 4);
    }
    if (__builtin_expect(!sure || lanes_up_to(least, o_.unsure) != 0, 0)) {
      correct(sums, count, residual, y, at, step);
    }
  }

  const Int8Outputs& o_;
  const std::int64_t channel_;
  const Vec scale_, shift_;
  const CodeBytes bytes_;
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
