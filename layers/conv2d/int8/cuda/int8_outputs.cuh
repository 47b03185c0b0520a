// SPDX-License-Identifier: Apache-2.0
// int8_outputs.cuh: what turns exact sums into y, four channels of a pixel at a time.
//
// Formula    real = s_x s_w[k] sum + b[k] + s_r residual;  y = clip(round(real / s_y)), or real
// Numerics   double arithmetic, one rounding half to even: the codes are those of the lesson. A
//            multiprocessor of a data centre's GPU makes half as many products of doubles as of
//            floats, and there are six for each y beside the hundreds of its sum.
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"

namespace convscope::int8 {

enum class Beside : std::uint8_t { nothing, codes, signed_codes, floats };

// All pointers are on the device; scales are read when the kernel runs, so a recording stays right
// when they change. y and the residual lie in blocks of 16 channels.
struct CudaOutputs {
  const double* s_x = nullptr;
  const double* s_w = nullptr;  // [K]; null: 1
  const double* s_y = nullptr;
  const double* s_residual = nullptr;
  const double* b = nullptr;  // [K], or null
  const void* residual = nullptr;
  void* y = nullptr;
  float most = 0;  // of relu
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

// What the four channels from `channel` on need; once for all pixels of a thread.
struct FourChannels {
  double scale[4], shift[4];
  double beside = 0;  // the residual's factor
  double low, high;   // of real
  bool exists[4];     // lanes behind the last channel are 0
};

__device__ inline FourChannels four_channels(const CudaOutputs& z, int channel) {
  FourChannels out;
  const double inverse = z.codes ? 1 / scale_at(z.s_y, 0) : 1;
  const double of_x = scale_at(z.s_x, 0) * inverse;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int k = channel + i;
    out.exists[i] = k < z.channels;
    out.scale[i] = out.exists[i] ? of_x * scale_at(z.s_w, z.w_per_channel ? k : 0) : 0;
    out.shift[i] = out.exists[i] && z.b != nullptr ? z.b[k] * inverse : 0;
  }
  if (z.beside != Beside::nothing) {
    out.beside = (z.beside == Beside::floats ? 1 : scale_at(z.s_residual, 0)) * inverse;
  }
  out.low = z.codes ? z.low : 0;
  out.high = z.most * inverse;
  if (z.codes) out.high = z.relu ? fmin(z.high, rint(out.high)) : z.high;
  return out;
}

__device__ inline int byte_of(unsigned word, int i, bool is_signed) {
  const auto byte = static_cast<unsigned char>(word >> (8 * i));
  return is_signed ? static_cast<signed char>(byte) : byte;
}

// Stores y of four channels whose first one is element `at` of y and of the residual.
__device__ inline void store_four(const CudaOutputs& z, const FourChannels& by,
                                  const int (&sums)[4], std::int64_t at) {
  double real[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) real[i] = by.scale[i] * sums[i] + by.shift[i];
  if (z.beside == Beside::floats) {
    const float4 r = *reinterpret_cast<const float4*>(static_cast<const float*>(z.residual) + at);
    real[0] += by.beside * r.x;
    real[1] += by.beside * r.y;
    real[2] += by.beside * r.z;
    real[3] += by.beside * r.w;
  } else if (z.beside != Beside::nothing) {
    const unsigned word =
        *reinterpret_cast<const unsigned*>(static_cast<const unsigned char*>(z.residual) + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      real[i] += by.beside * byte_of(word, i, z.beside == Beside::signed_codes);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (!by.exists[i]) real[i] = 0;
  }
  if (!z.codes) {
    if (z.relu) {  // NaN stays
#pragma unroll
      for (double& one : real) one = one < by.low ? by.low : one > by.high ? by.high : one;
    }
    *reinterpret_cast<float4*>(static_cast<float*>(z.y) + at) =
        make_float4(static_cast<float>(real[0]), static_cast<float>(real[1]),
                    static_cast<float>(real[2]), static_cast<float>(real[3]));
    return;
  }
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // NaN becomes low
    const double clipped = by.exists[i] ? fmin(fmax(real[i], by.low), by.high) : 0;
    word |= (static_cast<unsigned>(static_cast<int>(rint(clipped))) & 0xffu) << (8 * i);
  }
  *reinterpret_cast<unsigned*>(static_cast<unsigned char*>(z.y) + at) = word;
}

}  // namespace convscope::int8
