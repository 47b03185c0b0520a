// SPDX-License-Identifier: Apache-2.0
// winograd_fp16x3_transforms.cuh: the transforms of F(4x4,3x3) whose results are operands of fp16
// products: each result, scaled by a power of two, is stored as high + low.
//
// The scale brings the largest magnitude of the tensor to [2^13, 2^14) (half_pieces.h). A transform
// sums up to 36 elements of the tensor. The results are at most 26.2 (B), 2.2 (G) and 52.4 (A)
// times as large as these elements: the products of the largest row sums of the two matrices. So
// the scale is reduced by 3 bits for B and 4 bits for A, and all results stay below 2^16, the range
// of fp16.
// Read next  winograd_transforms.cuh; winograd_fp16x3_product.cuh
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_pack.cuh"
#include "layers/conv2d/winograd/cuda/winograd_kernels.cuh"

namespace convscope::winograd {

constexpr int kBitsOfB = 3, kBitsOfA = 4;

struct Fp16x3Transform {
  Planes planes;
  Index first = 0;  // first tile
  int pitch = 0;    // tiles of a row of V, a multiple of 32
  const float* x = nullptr;
  unsigned* v = nullptr;  // [2][36][channels][pitch] fp16, as pairs of tiles
  half_tiles::Maxima maxima = {}, other_maxima = {};
  int bits = 0, other_bits = 0;
  int* exponent = nullptr;  // exponent of the products' scale; written if not null
  // True if the middle four columns of each tile are inside the image and 16-byte aligned.
  bool aligned = false;
};

// Loads the pixels of a tile: rows of kSide pixels from `left` on, 0 outside. Bit s of `columns`
// says that column s is inside.
template <int kSide>
__device__ inline void load_tile(const Fp16x3Transform& z, const float* plane, int top, int left,
                                 unsigned columns, bool real, float (&d)[kSide * kSide]) {
  constexpr int kFirst = (kSide - 4) / 2;  // of the four
  if (z.aligned) {
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const bool inside = real && top + r >= 0 && top + r < z.planes.in_h;
      const float* const row = plane + Index{top + r} * z.planes.in_w + left;
      float4 four = make_float4(0, 0, 0, 0);
      if (inside) four = *reinterpret_cast<const float4*>(row + kFirst);
      d[r * kSide + kFirst] = four.x;
      d[r * kSide + kFirst + 1] = four.y;
      d[r * kSide + kFirst + 2] = four.z;
      d[r * kSide + kFirst + 3] = four.w;
      if constexpr (kFirst > 0) {
        d[r * kSide] = inside && (columns & 1u) != 0 ? row[0] : 0.0f;
        d[r * kSide + 5] = inside && (columns >> 5 & 1u) != 0 ? row[5] : 0.0f;
      }
    }
    return;
  }
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    const bool inside = real && top + r >= 0 && top + r < z.planes.in_h;
    const float* const row = plane + Index{top + r} * z.planes.in_w + left;
#pragma unroll
    for (int s = 0; s < kSide; ++s) {
      d[r * kSide + s] = inside && (columns >> s & 1u) != 0 ? row[s] : 0.0f;
    }
  }
}

// Exchanges a word of two elements between neighbouring lanes. Afterwards the even lane has the
// first elements of both lanes, the odd lane the second elements.
__device__ inline unsigned exchange_pairs(unsigned word, bool odd) {
  const unsigned other = __shfl_xor_sync(kAllLanes, word, 1);
  return odd ? (other >> 16 | (word & 0xffff0000u)) : ((word & 0xffffu) | other << 16);
}

// Kernel: a thread transforms one tile of one channel, and the 32 tiles of a warp are neighbours.
template <class Matrix>
__device__ inline void transform_fp16x3(const Fp16x3Transform& z) {
  constexpr int kSide = Matrix::kColumns;
  constexpr int kT = 6;
  const Planes& p = z.planes;
  const int lane = static_cast<int>(threadIdx.x);
  const int t = static_cast<int>(blockIdx.x * 32) + lane;
  const Index tile = z.first + t;
  const bool real = tile < p.tiles;
  const int image_tile = static_cast<int>(tile % (p.tiles_h * p.tiles_w));
  const Index n = tile / (p.tiles_h * p.tiles_w);
  const int top = image_tile / p.tiles_w * 4 + p.top;
  const int left = image_tile % p.tiles_w * 4 + p.left;
  unsigned columns = 0;  // bit s: column s is inside
#pragma unroll
  for (int s = 0; s < kSide; ++s) {
    if (left + s >= 0 && left + s < p.in_w) columns |= 1u << s;
  }
  const int exponent = half_tiles::read_exponent(z.maxima) - z.bits;
  if (z.exponent != nullptr && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.y == 0) {
    const bool both = z.other_maxima.bits != nullptr;
    const int other = both ? half_tiles::read_exponent(z.other_maxima) - z.other_bits : 0;
    if (lane == 0) *z.exponent = exponent + other;
  }
  const float scale = half_tiles::power_of_two(exponent);
  const bool odd = lane % 2 != 0;
  for (int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y); c < p.channels;
       c += static_cast<int>(gridDim.y * kChannelsOfBlock)) {
    const float* const plane = z.x + (n * p.channels + c) * (Index{p.in_h} * p.in_w);
    float d[kSide * kSide];
    load_tile<kSide>(z, plane, top, left, columns, real, d);
#pragma unroll
    for (int i = 0; i < kSide * kSide; ++i) d[i] *= scale;
    float half[kT * kSide];
#pragma unroll
    for (int j = 0; j < kSide; ++j) multiply<kT, Matrix, kSide, kSide>(d + j, half + j);
    // Computes and stores row by row, so that registers hold only one row of results.
    const Index point = Index{p.channels} * z.pitch / 2;  // distance of two points in words
    unsigned* to = z.v + (Index{c} * z.pitch + t) / 2 + (odd ? point : 0);
    const Index to_low = kT * kT * point;
#pragma unroll
    for (int i = 0; i < kT; ++i) {
      float out[kT];
      multiply<kT, Matrix, 1, 1>(half + i * kSide, out);
#pragma unroll
      for (int j = 0; j < kT; j += 2, to += 2 * point) {
        const unsigned high = pair_from_floats<Float16>(out[j], out[j + 1]);
        const float2 rounded = floats_from_pair<Float16>(high);
        const unsigned low = pair_from_floats<Float16>(out[j] - rounded.x, out[j + 1] - rounded.y);
        to[0] = exchange_pairs(high, odd);
        to[to_low] = exchange_pairs(low, odd);
      }
    }
  }
}

__global__ void __launch_bounds__(256, 2)
    transform_x_kernel(const __grid_constant__ Fp16x3Transform z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  transform_fp16x3<MatrixB<4>>(z);
}

// Transforms both operands of backward_weight.
__global__ void __launch_bounds__(256, 2)
    transform_both_kernel(const __grid_constant__ Fp16x3Transform x,
                          const __grid_constant__ Fp16x3Transform dy) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (blockIdx.z == 0) {
    transform_fp16x3<MatrixB<4>>(x);
  } else {
    transform_fp16x3<MatrixA<4>>(dy);
  }
}

struct Fp16x3Output {
  Planes planes;  // of y, with its channels
  Index first = 0;
  int pitch = 0;
  const float* m = nullptr;  // [36][channels][pitch]
  const float* bias = nullptr;
  const float* residual = nullptr;
  bool relu = false;
  bool aligned = false;  // rows of y are whole tiles on 16 bytes
  float* y = nullptr;
};

// Computes y from M, adds bias and residual, then applies relu, each if requested. A thread takes a
// tile of a channel.
__global__ void __launch_bounds__(256, 4)
    output_fp16x3_kernel(const __grid_constant__ Fp16x3Output z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Planes& p = z.planes;
  const int t = static_cast<int>(blockIdx.x * 32 + threadIdx.x);
  const int c = static_cast<int>(blockIdx.y * kChannelsOfBlock + threadIdx.y);
  const Index tile = z.first + t;
  if (tile >= p.tiles || c >= p.channels) return;
  const float* from = z.m + Index{c} * z.pitch + t;
  const Index point = Index{p.channels} * z.pitch;
  float points[36];
#pragma unroll
  for (int i = 0; i < 36; ++i, from += point) points[i] = *from;
  float out[16];
  transform_back<6, MatrixA<4>>(points, out);
  const int image_tile = static_cast<int>(tile % (p.tiles_h * p.tiles_w));
  const Index n = tile / (p.tiles_h * p.tiles_w);
  const int top = image_tile / p.tiles_w * 4;
  const int left = image_tile % p.tiles_w * 4;
  const float bias = z.bias == nullptr ? 0.0f : z.bias[c];
  Index at = (n * p.channels + c) * (Index{p.out_h} * p.out_w) + Index{top} * p.out_w + left;
#pragma unroll
  for (int r = 0; r < 4; ++r, at += p.out_w) {
    if (top + r >= p.out_h) break;
    float value[4];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      value[s] = out[r * 4 + s] + bias;
      value[s] = finished(value[s], left + s < p.out_w ? z.residual : nullptr, at + s, z.relu);
    }
    if (z.aligned) {
      *reinterpret_cast<float4*>(z.y + at) = make_float4(value[0], value[1], value[2], value[3]);
    } else {
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        if (left + s < p.out_w) z.y[at + s] = value[s];
      }
    }
  }
}

// Transforms w [K][C][3][3] to fp16 U [2][36][rows][width], a block of threads for each row. Rows
// are K and the reduction is C. With `across` (backward_data) K and C are exchanged and the taps
// are flipped. Each row has its own scale.
constexpr unsigned kWeightThreads = 128;
__global__ void __launch_bounds__(kWeightThreads)
    weights_fp16x3_kernel(const float* w, int depth, int width, bool across, int* exponents,
                          unsigned* u) {
  __shared__ unsigned scratch[kWeightThreads / 32];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int row = static_cast<int>(blockIdx.x);
  const int rows = static_cast<int>(gridDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const Index step = across ? Index{rows} * 9 : 9;
  const float* const from = w + (across ? Index{row} * 9 : Index{row} * depth * 9);
  unsigned largest = 0;
  for (int d = thread; d < depth; d += static_cast<int>(kWeightThreads)) {
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const unsigned bits = __float_as_uint(from[d * step + tap]) & 0x7fffffffu;
      if (bits > largest && bits < 0x7f800000u) largest = bits;
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned other = __shfl_xor_sync(kAllLanes, largest, offset);
    largest = other > largest ? other : largest;
  }
  if (thread % 32 == 0) scratch[thread / 32] = largest;
  __syncthreads();
#pragma unroll
  for (unsigned i = 0; i < kWeightThreads / 32; ++i) {
    largest = scratch[i] > largest ? scratch[i] : largest;
  }
  const int exponent = half_tiles::scale_exponent(largest);
  if (thread == 0) exponents[row] = exponent;
  const float scale = half_tiles::power_of_two(exponent);
  const Index point = Index{rows} * width / 2;
  for (int pair = thread; pair < width / 2; pair += static_cast<int>(kWeightThreads)) {
    float out[2][36];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int d = 2 * pair + e;
      float g[9];
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) {
        g[tap] = d < depth ? from[d * step + (across ? 8 - tap : tap)] * scale : 0.0f;
      }
      transform<6, MatrixG<4>>(g, out[e]);
    }
    unsigned* const to = u + Index{row} * (width / 2) + pair;
#pragma unroll
    for (int p = 0; p < 36; ++p) {
      const unsigned high = pair_from_floats<Float16>(out[0][p], out[1][p]);
      const float2 rounded = floats_from_pair<Float16>(high);
      to[p * point] = high;
      to[(36 + p) * point] =
          pair_from_floats<Float16>(out[0][p] - rounded.x, out[1][p] - rounded.y);
    }
  }
}

}  // namespace convscope::winograd
