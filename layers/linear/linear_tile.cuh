// SPDX-License-Identifier: Apache-2.0
// linear_tile.cuh: copies a chunk of one operand of a product to shared memory, rounds the chunk,
// and defines how a lane reads it. Used by linear_fused_cuda.cu.
#pragma once

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/map.cuh"

namespace convscope::linear_tiles {

constexpr unsigned kWarps = 8;
static_assert(kWarps * 32 == kThreads);

enum class Order { rows, columns };

// An operand of a product. Element (m, k) of A is at data[m ld + k] (rows) or data[k ld + m]
// (columns). Elements count as 0 if m >= `extent` or if k is beyond its end. With `ones`, row m ==
// extent consists of ones. `mask`, if given, has the layout of data: only elements where mask > 0
// or is NaN count.
struct Factor {
  const float* data = nullptr;
  const float* mask = nullptr;
  int ld = 0;
  int extent = 0;
  bool ones = false;
  DType type = DType::f32;  // half precision: elements are rounded to it
};

// kSize rows of the operand times kChunk of k, padded so that the lanes of a warp use different
// banks.
template <Order kOrder, int kSize, int kChunk>
struct Tile {
  static constexpr int kLd = kOrder == Order::rows ? kChunk + 4 : kSize;
  static constexpr int kFloats = kOrder == Order::rows ? kSize * kLd : kChunk * kLd;

  // Copies the chunk that begins at m0 and k0, by all threads together. It is complete after
  // async_copy_wait<0>() and finish(). kWidth 4 requires that data, ld and extents allow accesses
  // of 16 bytes.
  template <int kWidth, bool kRolled>
  static __device__ void load(float* tile, float* tile_of_mask, const Factor& f, int m0, int k0,
                              int k_end) {
    each<kWidth, kRolled>(f, m0, k0, k_end, [&](int at, std::int64_t place, bool inside, int m) {
      if (f.ones && m == f.extent) {
#pragma unroll
        for (int l = 0; l < kWidth; ++l) tile[at + l] = l == 0 ? 1.0f : 0.0f;
        return;
      }
      async_copy<4 * kWidth>(tile + at, f.data + place, inside);
      if (f.mask != nullptr) async_copy<4 * kWidth>(tile_of_mask + at, f.mask + place, inside);
    });
  }
  // Applies the mask to the elements that this thread has copied, adds the elements to `sums`, and
  // rounds them. In columns order these elements have only kWidth different m, from own_column()
  // on.
  template <int kWidth, bool kRolled>
  static __device__ void finish(float* tile, const float* tile_of_mask, const Factor& f, int m0,
                                int k0, int k_end, float (&sums)[kWidth]) {
    if (f.mask == nullptr && f.type == DType::f32) return;
    using P = Pack<float, kWidth>;
    each<kWidth, kRolled>(f, m0, k0, k_end, [&](int at, std::int64_t, bool, int) {
      P p = *reinterpret_cast<const P*>(tile + at);
      if (f.mask != nullptr) {
        const P mask = *reinterpret_cast<const P*>(tile_of_mask + at);
#pragma unroll
        for (int l = 0; l < kWidth; ++l) p.v[l] = mask.v[l] <= 0.0f ? 0.0f : p.v[l];
      }
      if (f.type != DType::f32) {
#pragma unroll
        for (int l = 0; l < kWidth; ++l) {
          sums[l] += p.v[l];
          p.v[l] = rounded_to(f.type, p.v[l]);
        }
      }
      *reinterpret_cast<P*>(tile + at) = p;
    });
  }
  template <int kWidth>
  static __device__ int own_column() {
    static_assert(kOrder == Order::columns && kThreads % (kSize / kWidth) == 0);
    return static_cast<int>(threadIdx.x) % (kSize / kWidth) * kWidth;
  }

  // Calls body(offset in the tile, offset in memory, inside, m) for the pieces of this thread.
  // kRolled keeps the loop rolled, for kernels whose blocks run this code only once: there loading
  // the instructions of an unrolled loop would take longer.
  template <int kWidth, bool kRolled, class Body>
  static __device__ void each(const Factor& f, int m0, int k0, int k_end, const Body& body) {
    const int depth = k_end - k0;
    const auto piece = [&](int line, int at) {
      const int m = m0 + (kOrder == Order::rows ? line : at);
      const int k = kOrder == Order::rows ? at : line;
      const bool inside = m < f.extent && k < depth;
      const std::int64_t place = kOrder == Order::rows
                                     ? static_cast<std::int64_t>(m) * f.ld + k0 + k
                                     : static_cast<std::int64_t>(k0 + k) * f.ld + m;
      body(line * kLd + at, inside ? place : 0, inside, m);
    };
    if constexpr (kOrder == Order::rows && kChunk > 128) {
      const int across = (depth + 3) / 4 * 4 / kWidth;
      for (int index = static_cast<int>(threadIdx.x); index < kSize * across;
           index += static_cast<int>(kThreads)) {
        const int line = index / across;
        piece(line, (index - line * across) * kWidth);
      }
    } else if constexpr (kOrder == Order::rows) {  // short lines: a warp has one, no division
      const int end = (depth + 3) / 4 * 4;
      for (int line = static_cast<int>(threadIdx.x / 32); line < kSize;
           line += static_cast<int>(kWarps)) {
        for (int at = static_cast<int>(threadIdx.x % 32) * kWidth; at < end; at += 32 * kWidth) {
          piece(line, at);
        }
      }
    } else {
      constexpr int kAcross = kSize / kWidth;
      const auto one = [&](int index) { piece(index / kAcross, index % kAcross * kWidth); };
      const int end = depth * kAcross;
      const int step = static_cast<int>(kThreads);
      if constexpr (kRolled) {
#pragma unroll 1
        for (int index = static_cast<int>(threadIdx.x); index < end; index += step) one(index);
      } else {
        for (int index = static_cast<int>(threadIdx.x); index < end; index += step) one(index);
      }
    }
  }

  // Loads elements k to k + 3 of kCount rows into out[i][0..3]. The rows of the tile are divided
  // among kPlaces lanes; these are the rows of lane `place`.
  template <int kCount, int kPlaces>
  static __device__ void take(const float* tile, int place, int k, float (&out)[kCount][4]) {
    if constexpr (kOrder == Order::rows) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const auto p =
            *reinterpret_cast<const Pack<float, 4>*>(tile + (place + i * kPlaces) * kLd + k);
#pragma unroll
        for (int l = 0; l < 4; ++l) out[i][l] = p.v[l];
      }
    } else {
#pragma unroll
      for (int l = 0; l < 4; ++l) {
        const auto p =
            *reinterpret_cast<const Pack<float, kCount>*>(tile + (k + l) * kLd + place * kCount);
#pragma unroll
        for (int i = 0; i < kCount; ++i) out[i][l] = p.v[i];
      }
    }
  }
  // Returns the tile from row `first` on.
  static __device__ const float* line(const float* tile, int first) {
    return tile + (kOrder == Order::rows ? first * kLd : first);
  }
  // Returns which row of the tile out[i] is.
  template <int kCount, int kPlaces>
  static __device__ int row(int place, int i) {
    return kOrder == Order::rows ? place + i * kPlaces : place * kCount + i;
  }
};

}  // namespace convscope::linear_tiles
