// SPDX-License-Identifier: Apache-2.0
// fft_passes.cuh: Fourier transforms of real L x L tiles, L = 16, 32 or 64, each in one pass over
// memory: a kernel reads pixels, pads, transforms rows and columns in shared memory and writes the
// spectrum frequency by frequency; the other way round a second kernel.
//
// Two planes a and b are transformed at once as a + i b (their spectra part again because those of
// real numbers are symmetric: Z(-f) = conj A(f) + i conj B(f)). A block holds a few such pairs.
//
// A line of L = 8 B points (B = 2, 4, 8) is done by B lanes with 8 points each: a transform of 8
// points, factors exp(-2 pi i j k / L), an exchange among the B lanes through the line's own shared
// memory, then 8 / B transforms of B points. In between elements lie rotated and lines lie kPitch
// apart, so that no two lanes of a half warp meet in a bank, along rows and along columns.
// Read next  fft_cuda.cu, the card
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::fft {

using Index = std::int64_t;

// One axis of a set of planes: point j of tile t stands for position start + t * tile + j of the
// axis with `step` - 1 zeros between its elements (stride of dy, dilation of w), j < limit.
struct Axis {
  int size, step, start, tile, limit, tiles;

  __host__ __device__ int element(int t, int j) const {  // or -1: nothing there
    const int at = start + t * tile + j;
    if (j >= limit || at < 0) return -1;
    if (step == 1) return at < size ? at : -1;
    return at % step == 0 && at / step < size ? at / step : -1;
  }
};

// Plane (n, tile row, tile column, channel), channel fastest; numbers lie as
// [n][channel][rows][columns].
struct PlaneSet {
  Axis rows, columns;
  int channels;
  Index planes;  // n * tiles * channels

  __host__ __device__ Index images() const {
    return planes / (Index{rows.tiles} * columns.tiles * channels);
  }
};

struct Place {  // of one plane
  Index offset;
  int tile_row, tile_column, channel;
  bool real;  // there is such a plane
};
__device__ inline Place place_of(const PlaneSet& z, Index plane) {
  Place out;
  out.channel = static_cast<int>(plane % z.channels);
  const Index tile = plane / z.channels;
  out.tile_column = static_cast<int>(tile % z.columns.tiles);
  out.tile_row = static_cast<int>(tile / z.columns.tiles % z.rows.tiles);
  const Index n = tile / (Index{z.columns.tiles} * z.rows.tiles);
  out.offset = (n * z.channels + out.channel) * (Index{z.rows.size} * z.columns.size);
  out.real = true;
  return out;
}

constexpr int kBlockThreads = 256;
constexpr int frequencies(int length) { return length * (length / 2 + 1); }

template <int L>
struct Lines {
  static constexpr int kLanes = L / 8;                 // B
  static constexpr int kPitch = L == 16 ? 18 : L + 4;  // complex numbers from row to row
  static constexpr int kPairs = 128 / L;               // of planes in a block
  static constexpr int kPlanes = 2 * kPairs;
  // Threads of a half warp that take the same point of each pair meet different banks, too.
  static constexpr int kPlane = L * kPitch + 16 / kPairs;
  static constexpr std::size_t kSharedBytes = (kPairs * kPlane + L) * sizeof(float2);

  static __device__ int at(bool rows, int line, int point) {
    return rows ? line * kPitch + point : point * kPitch + line;
  }
  // Which line of the warp's 32 / B, and which j < B, a lane works on.
  static __device__ int line_of(bool rows, int lane) {
    if (rows) return L == 64 ? (lane / 8 % 2) * 2 + lane / 16 : lane / kLanes;
    return L == 16 ? lane % 16 : lane % 4 + (L == 32 ? lane / 16 * 4 : 0);
  }
  static __device__ int j_of(bool rows, int lane) {
    return rows ? lane % kLanes : lane / (L == 16 ? 16 : 4) % kLanes;
  }
};

__device__ inline float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ inline float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ inline float2 times(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
// -i a, or i a for the way back.
template <bool BACK>
__device__ inline float2 quarter(float2 a) {
  return BACK ? make_float2(-a.y, a.x) : make_float2(a.y, -a.x);
}

template <bool BACK>
__device__ inline void points_2(float2* v) {
  const float2 a = v[0];
  v[0] = a + v[1];
  v[1] = a - v[1];
}
template <bool BACK>
__device__ inline void points_4(float2& v0, float2& v1, float2& v2, float2& v3) {
  const float2 s = v0 + v2;
  const float2 d = v0 - v2;
  const float2 t = v1 + v3;
  const float2 e = quarter<BACK>(v1 - v3);
  v0 = s + t;
  v1 = d + e;
  v2 = s - t;
  v3 = d - e;
}
template <bool BACK>
__device__ inline void points_8(float2* v) {
  points_4<BACK>(v[0], v[2], v[4], v[6]);
  points_4<BACK>(v[1], v[3], v[5], v[7]);
  constexpr float kHalf = 0.70710678118654752f;
  const float2 odd[4] = {v[1], times(v[3], make_float2(kHalf, BACK ? kHalf : -kHalf)),
                         quarter<BACK>(v[5]),
                         times(v[7], make_float2(-kHalf, BACK ? kHalf : -kHalf))};
  const float2 even[4] = {v[0], v[2], v[4], v[6]};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    v[k] = even[k] + odd[k];
    v[k + 4] = even[k] - odd[k];
  }
}

// The B lanes of a line hold its points j + B i in v[i]; leaves the transform in order in `plane`.
// All lanes of the warp call it.
template <int L, bool BACK, bool ROWS>
__device__ inline void transform_line(float2* v, const float2* roots, float2* plane, int line,
                                      int j) {
  using Z = Lines<L>;
  constexpr int kB = Z::kLanes;
  points_8<BACK>(v);
#pragma unroll
  for (int i = 1; i < 8; ++i) {
    float2 root = roots[j * i];  // j i < L
    if (BACK) root.y = -root.y;
    v[i] = times(v[i], root);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) plane[Z::at(ROWS, line, kB * i + (j + i) % kB)] = v[i];
  __syncwarp();
#pragma unroll
  for (int m = 0; m < 8 / kB; ++m) {
    const int i = j + kB * m;
#pragma unroll
    for (int p = 0; p < kB; ++p) v[m * kB + p] = plane[Z::at(ROWS, line, kB * i + (p + i) % kB)];
  }
  __syncwarp();
#pragma unroll
  for (int m = 0; m < 8 / kB; ++m) {
    float2* const u = v + m * kB;
    if constexpr (kB == 2) points_2<BACK>(u);
    if constexpr (kB == 4) points_4<BACK>(u[0], u[1], u[2], u[3]);
    if constexpr (kB == 8) points_8<BACK>(u);
#pragma unroll
    for (int k = 0; k < kB; ++k) plane[Z::at(ROWS, line, j + kB * m + 8 * k)] = u[k];
  }
}

// All lines of all pairs in shared memory; of those along rows only the `count` from `first` on,
// around the end, when the warp has no other.
template <int L, bool BACK, bool ROWS>
__device__ inline void transform_lines(float2* shared, const float2* roots, int first = 0,
                                       int count = L) {
  using Z = Lines<L>;
  constexpr int kOfWarp = 32 / Z::kLanes;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int j = Z::j_of(ROWS, lane);
  const int warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int begin = 0; begin < 128; begin += kOfWarp * (kBlockThreads / 32)) {
    const int line = begin + warp * kOfWarp + Z::line_of(ROWS, lane);
    if (ROWS && count < L && __ballot_sync(kAllLanes, (line - first + L) % L < count) == 0) {
      continue;
    }
    float2* const plane = shared + line / L * Z::kPlane;
    float2 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = plane[Z::at(ROWS, line % L, j + Z::kLanes * i)];
    __syncwarp();
    transform_line<L, BACK, ROWS>(v, roots, plane, line % L, j);
  }
}

template <int L>
__device__ inline void make_roots(float2* roots) {
  for (int i = static_cast<int>(threadIdx.x); i < L; i += kBlockThreads) {
    sincospif(-2.0f * static_cast<float>(i) / L, &roots[i].y, &roots[i].x);
  }
}

// Of planes z.planes and more there is none: they are zeros.
__device__ inline void find_places(const PlaneSet& z, Index first, int count, Place* places) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= count) return;
  places[thread] = place_of(z, first + thread < z.planes ? first + thread : z.planes - 1);
  places[thread].real = first + thread < z.planes;
}

// Planes 2 i of the places are read from x and 2 i + 1 from x_odd, each by its own axes; rows
// padded and transformed. Barriers stand before (places, roots) and follow.
template <int L, class T>
__device__ inline void read_planes(const PlaneSet& even, const T* x_even, const PlaneSet& odd,
                                   const T* x_odd, const Place* places, const float2* roots,
                                   float2* shared) {
  using Z = Lines<L>;
  constexpr int kOfWarp = 32 / Z::kLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int j = Z::j_of(true, lane);
#pragma unroll
  for (int begin = 0; begin < 128; begin += kOfWarp * (kBlockThreads / 32)) {
    const int line = begin + thread / 32 * kOfWarp + Z::line_of(true, lane);
    float2 v[8];
    float* const numbers = reinterpret_cast<float*>(v);
    bool any = false;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const PlaneSet& z = part == 0 ? even : odd;
      const Place& place = places[line / L * 2 + part];
      const int row = z.rows.element(place.tile_row, line % L);
      const bool real = row >= 0 && place.real;
      any = any || real;
      const T* const from =
          (part == 0 ? x_even : x_odd) + place.offset + Index{row} * z.columns.size;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int column = z.columns.element(place.tile_column, j + Z::kLanes * i);
        numbers[2 * i + part] = real && column >= 0 ? to_float(from[column]) : 0.0f;
      }
    }
    float2* const plane = shared + line / L * Z::kPlane;
    if (__ballot_sync(kAllLanes, any) == 0) {  // rows of zeros, behind the taps of a kernel
#pragma unroll
      for (int i = 0; i < 8; ++i) plane[Z::at(true, line % L, j + Z::kLanes * i)] = v[i];
      continue;
    }
    transform_line<L, false, true>(v, roots, plane, line % L, j);
  }
}

// Pixels of `planes` planes to spectra [frequency][stride], frequency = row (L/2 + 1) + column.
template <int L>
__global__ void __launch_bounds__(kBlockThreads, 3)
    spectrum_kernel(PlaneSet z, const float* x, float2* spectra, Index stride) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place places[Z::kPlanes];
  const Index first = static_cast<Index>(blockIdx.x) * Z::kPlanes;
  const int thread = static_cast<int>(threadIdx.x);
  find_places(z, first, Z::kPlanes, places);
  make_roots<L>(roots);
  __syncthreads();
  read_planes<L>(z, x, z, x, places, roots, shared);
  __syncthreads();
  transform_lines<L, false, false>(shared, roots);
  __syncthreads();
  for (int i = thread; i < frequencies(L) * Z::kPairs; i += kBlockThreads) {
    const int pair = i % Z::kPairs;
    const int f = i / Z::kPairs;
    const int row = f / (L / 2 + 1);
    const int column = f % (L / 2 + 1);
    if (first + 2 * pair >= z.planes) continue;
    const float2* const plane = shared + pair * Z::kPlane;
    const float2 here = plane[row * Z::kPitch + column];
    const float2 there = plane[(L - row) % L * Z::kPitch + (L - column) % L];
    // A = (Z(f) + conj Z(-f)) / 2, B = (Z(f) - conj Z(-f)) / 2i
    *reinterpret_cast<float4*>(spectra + f * stride + first + 2 * pair) =
        make_float4(0.5f * (here.x + there.x), 0.5f * (here.y - there.y), 0.5f * (here.y + there.y),
                    0.5f * (there.x - here.x));
  }
}

// What becomes of the numbers: out = relu(value + bias + residual), or added to out.
template <class T>
struct Finish {
  const T* bias;
  const T* residual;
  bool relu, accumulate;
};

// Planes 2 i and 2 i + 1 of the places are the real and imaginary parts of points back from the
// transform; position i of a tile is found at point (i + shift) % L.
template <int L, class T>
__device__ inline void write_pixels(const PlaneSet& z, const Place* places, int shift_rows,
                                    int shift_columns, const Finish<T>& finish,
                                    const float2* shared, T* y) {
  using Z = Lines<L>;
  const int thread = static_cast<int>(threadIdx.x);
  // Rows of pixels to groups of threads, as wide as the least power of two that holds a row.
  int width = 4;
  while (width < z.columns.limit && width < 32) width *= 2;
  for (int i = thread / width; i < Z::kPlanes * z.rows.limit; i += kBlockThreads / width) {
    const int part = i / z.rows.limit;
    const int r = i % z.rows.limit;
    const Place& place = places[part];
    if (!place.real) continue;
    const int row = z.rows.element(place.tile_row, r);
    if (row < 0) continue;
    const auto* const points = reinterpret_cast<const float*>(shared + part / 2 * Z::kPlane +
                                                              (r + shift_rows) % L * Z::kPitch);
    const float bias = finish.bias == nullptr ? 0.0f : to_float(finish.bias[place.channel]);
    for (int c = thread % width; c < z.columns.limit; c += width) {
      const int column = z.columns.element(place.tile_column, c);
      if (column < 0) continue;
      float value = points[2 * ((c + shift_columns) % L) + part % 2] * (1.0f / (L * L)) + bias;
      const Index at = place.offset + Index{row} * z.columns.size + column;
      // The residual is added to y as it would be stored: the bits of a separate pass.
      if (finish.residual != nullptr) value = to_float(from_float<T>(value));
      value = finished(value, finish.residual, at, finish.relu);
      y[at] = from_float<T>(finish.accumulate ? to_float(y[at]) + value : value);
    }
  }
}

// Spectra back to pixels.
template <int L>
__global__ void __launch_bounds__(kBlockThreads, 3)
    pixels_kernel(PlaneSet z, const float2* spectra, Index stride, int shift_rows,
                  int shift_columns, Finish<float> finish, float* y) {
  using Z = Lines<L>;
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  const Index first = static_cast<Index>(blockIdx.x) * Z::kPlanes;
  const int thread = static_cast<int>(threadIdx.x);
  __shared__ Place places[Z::kPlanes];
  find_places(z, first, Z::kPlanes, places);
  make_roots<L>(roots);
  constexpr int kAtOnce = 4;  // loads under way of each thread
  constexpr int kCount = frequencies(L) * Z::kPairs;
  for (int begin = thread; begin < kCount; begin += kAtOnce * kBlockThreads) {
    float4 loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * kBlockThreads;
      const Index plane = first + i % Z::kPairs * 2;
      loaded[u] = make_float4(0, 0, 0, 0);
      if (i < kCount && plane < z.planes) {
        loaded[u] = *reinterpret_cast<const float4*>(spectra + i / Z::kPairs * stride + plane);
        if (plane + 1 >= z.planes) loaded[u].z = loaded[u].w = 0;
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * kBlockThreads;
      if (i >= kCount) break;
      const int f = i / Z::kPairs;
      const int row = f / (L / 2 + 1);
      const int column = f % (L / 2 + 1);
      const float4 ab = loaded[u];
      float2* const plane = shared + i % Z::kPairs * Z::kPlane;
      plane[row * Z::kPitch + column] = make_float2(ab.x - ab.w, ab.y + ab.z);
      if (column != 0 && column != L / 2) {  // else -f is in this half and has its own thread
        plane[(L - row) % L * Z::kPitch + L - column] = make_float2(ab.x + ab.w, ab.z - ab.y);
      }
    }
  }
  __syncthreads();
  transform_lines<L, true, false>(shared, roots);
  __syncthreads();
  transform_lines<L, true, true>(shared, roots, shift_rows % L, z.rows.limit);
  __syncthreads();
  write_pixels<L>(z, places, shift_rows, shift_columns, finish, shared, y);
}

}  // namespace convscope::fft
