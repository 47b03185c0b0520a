// SPDX-License-Identifier: Apache-2.0
// fft_passes.cuh: Fourier transforms of real L x L tiles, L = 16, 32 or 64, in one pass over
// memory. One kernel reads pixels, pads, transforms rows and columns in shared memory and writes
// the spectrum frequency by frequency. A second kernel computes the inverse.
//
// Two planes a and b are transformed together as a + i b. Their spectra A and B can be separated,
// because the spectrum of a real plane is symmetric: Z(-f) = conj A(f) + i conj B(f). A block holds
// a few such pairs of planes.
//
// A line of L = 8 B points (B = 2, 4, 8) is transformed by B lanes with 8 points each: a transform
// of 8 points, twiddle factors exp(-2 pi i j k / L), an exchange among the B lanes through the
// line's shared memory, then 8 / B transforms of B points. In shared memory elements are rotated
// and lines are kPitch apart, so that along rows and along columns two lanes of a half warp always
// use different banks.
// Read next  fft_cuda.cu, the algorithm
#pragma once

#include <algorithm>
#include <cstddef>

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/direction.h"

namespace convscope::fft {

using Index = std::int64_t;

// One axis of a set of planes. Point j < limit of tile t is position start + t * tile + j of the
// axis. Between elements of the axis there are `step` - 1 zeros (from the stride of dy or the
// dilation of w).
struct Axis {
  int size, step, start, tile, limit, tiles;
};

// The points of one tile that are elements of the image: every step-th point among the `count`
// points from `low` on.
struct Points {
  int low, count;

  __device__ bool hold(int point) const {
    return static_cast<unsigned>(point - low) < static_cast<unsigned>(count);
  }
};
// Returns the points of tile t, and writes the index of the element at `low` to `first`.
__device__ inline Points points_of(const Axis& axis, int t, int* first) {
  const int start = axis.start + t * axis.tile;
  int low = start < 0 ? -start : 0;
  const int behind = (start + low) % axis.step;
  if (behind != 0) low += axis.step - behind;
  *first = (start + low) / axis.step;
  const int end = (axis.size - 1) * axis.step + 1 - start;  // position after the last element
  return {low, max(0, min(axis.limit, end) - low)};
}

// A set of planes (n, tile row, tile column, channel) with the channel as the fastest index. The
// memory layout is [n][channel][rows][columns].
struct PlaneSet {
  Axis rows, columns;
  int channels;
  Index planes;  // n * tiles * channels

  __host__ __device__ Index images() const {
    return planes / (Index{rows.tiles} * columns.tiles * channels);
  }
  // Tells whether there are no zeros between elements.
  __device__ bool dense() const { return rows.step == 1 && columns.step == 1; }
};

struct Place {   // position of one plane
  Index offset;  // offset of the element at its first point
  Points rows, columns;
  int channel;
};
// Returns the position of a plane. A plane that does not exist is read as zeros and not stored.
__device__ inline Place place_of(const PlaneSet& z, Index image, int channel, int tile_row,
                                 int tile_column, bool real) {
  Place out;
  out.channel = channel;
  int row = 0, column = 0;
  out.rows = points_of(z.rows, tile_row, &row);
  out.columns = points_of(z.columns, tile_column, &column);
  if (!real) out.rows.count = 0;
  out.offset = ((image * z.channels + channel) * z.rows.size + row) * z.columns.size + column;
  return out;
}
// `Number` has 32 bits if the number of planes allows it, because a GPU divides 32 bits in a fifth
// of the time of 64 bits.
template <class Number>
__device__ inline Place place_of(const PlaneSet& z, Number plane, bool real) {
  const auto channels = static_cast<Number>(z.channels);
  const auto wide = static_cast<Number>(z.columns.tiles);
  const auto high = static_cast<Number>(z.rows.tiles);
  const Number tile = plane / channels;
  const Number line = tile / wide;
  const Number image = line / high;
  return place_of(z, static_cast<Index>(image), static_cast<int>(plane - tile * channels),
                  static_cast<int>(line - image * high), static_cast<int>(tile - line * wide),
                  real);
}

constexpr int kBlockThreads = 256;
constexpr int frequencies(int length) { return length * (length / 2 + 1); }

template <int L>
struct Lines {
  static constexpr int kLanes = L / 8;                 // B
  static constexpr int kPitch = L == 16 ? 18 : L + 4;  // complex numbers from one row to the next
  static constexpr int kPairs = 128 / L;               // pairs of planes in a block
  static constexpr int kPlanes = 2 * kPairs;
  // Floats after each plane, so that threads of a half warp that read the same point of different
  // pairs use different banks.
  static constexpr int kPlane = L * kPitch + 16 / kPairs;
  static constexpr std::size_t kSharedBytes = (kPairs * kPlane + L) * sizeof(float2);

  static __device__ int at(bool rows, int line, int point) {
    return rows ? line * kPitch + point : point * kPitch + line;
  }
  // Returns which of the warp's 32 / B lines a lane works on. The next function returns j < B, the
  // lane's index in that line.
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
// Returns -i a, or i a for the inverse.
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

// Transforms a line. Lane j of the line's B lanes holds the points j + B i in v[i]. The result is
// stored in order in `plane`. All lanes of the warp must call the function.
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

// Transforms all lines of all pairs in shared memory. Along rows, only the `count` rows from
// `first` on (modulo L) are needed, and a warp without such a row does nothing.
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

// Computes the positions of `count` planes; planes from z.planes on are zeros.
__device__ inline void find_places(const PlaneSet& z, Index first, int count, Place* places) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= count) return;
  const bool real = first + thread < z.planes;
  const Index plane = real ? first + thread : z.planes - 1;
  places[thread] = z.planes <= 0xffffffffLL ? place_of(z, static_cast<unsigned>(plane), real)
                                            : place_of(z, plane, real);
}

// Reads points j, j + B, .. of row `row` of a tile into v[2 i].
template <int L, bool kDense, class T>
__device__ inline bool read_row(const PlaneSet& z, const Place& place, const T* x, int row, int j,
                                float* v) {
  int r = row - place.rows.low;
  bool any = place.rows.hold(row);
  if (!kDense) {
    any = any && r % z.rows.step == 0;
    r /= z.rows.step;
  }
  const unsigned count = any ? static_cast<unsigned>(place.columns.count) : 0;
  const int first = j - place.columns.low;
  const T* const from = x + place.offset + static_cast<Index>(any ? r : 0) * z.columns.size;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int c = first + Lines<L>::kLanes * i;
    bool here = static_cast<unsigned>(c) < count;
    if (!kDense) here = here && c % z.columns.step == 0;
    v[2 * i] = here ? to_float(from[kDense ? c : c / z.columns.step]) : 0.0f;
  }
  return any;
}

// Reads planes 2 i from x_even and planes 2 i + 1 from x_odd, each with separate axes, pads the
// rows and transforms them. Barriers are needed before the call (after writing places and roots)
// and after it.
template <int L, class T>
__device__ inline void read_planes(const PlaneSet& even, const T* x_even, const PlaneSet& odd,
                                   const T* x_odd, const Place* places, const float2* roots,
                                   float2* shared) {
  using Z = Lines<L>;
  constexpr int kOfWarp = 32 / Z::kLanes;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int j = Z::j_of(true, lane);
  const bool dense = even.dense() && odd.dense();
#pragma unroll
  for (int begin = 0; begin < 128; begin += kOfWarp * (kBlockThreads / 32)) {
    const int line = begin + thread / 32 * kOfWarp + Z::line_of(true, lane);
    float2 v[8];
    float* const numbers = reinterpret_cast<float*>(v);
    bool any = false;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const PlaneSet& z = part == 0 ? even : odd;
      const T* const x = part == 0 ? x_even : x_odd;
      const Place& place = places[line / L * 2 + part];
      const bool own = dense ? read_row<L, true>(z, place, x, line % L, j, numbers + part)
                             : read_row<L, false>(z, place, x, line % L, j, numbers + part);
      any = any || own;
    }
    float2* const plane = shared + line / L * Z::kPlane;
    if (__ballot_sync(kAllLanes, any) == 0) {  // skips rows of zeros, after the taps of a kernel
#pragma unroll
      for (int i = 0; i < 8; ++i) plane[Z::at(true, line % L, j + Z::kLanes * i)] = v[i];
      continue;
    }
    transform_line<L, false, true>(v, roots, plane, line % L, j);
  }
}

// Arguments: planes of pixels, and their spectra [frequency][stride]. The index of a frequency is
// row * (L/2 + 1) + column.
struct ToSpectra {
  PlaneSet planes = {};
  const float* x = nullptr;
  float2* spectra = nullptr;
  Index stride = 0;
};
// Two sets of planes in one launch, so that blocks of the second set overlap the last blocks of the
// first.
struct TwoToSpectra {
  ToSpectra set[2];
  int blocks = 0;  // blocks of set[0]
};

template <int L>
__global__ void __launch_bounds__(kBlockThreads, 3)
    spectrum_kernel(const __grid_constant__ TwoToSpectra sets) {
  using Z = Lines<L>;
  constexpr int kTogether = kBlockThreads / Z::kPairs;  // frequencies that are stored at a time
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  __shared__ Place places[Z::kPlanes];
  const int block = static_cast<int>(blockIdx.x);
  const bool second = block >= sets.blocks;
  const ToSpectra& z = sets.set[second ? 1 : 0];
  const Index first = static_cast<Index>(second ? block - sets.blocks : block) * Z::kPlanes;
  const int thread = static_cast<int>(threadIdx.x);
  find_places(z.planes, first, Z::kPlanes, places);
  make_roots<L>(roots);
  __syncthreads();
  read_planes<L>(z.planes, z.x, z.planes, z.x, places, roots, shared);
  __syncthreads();
  transform_lines<L, false, false>(shared, roots);
  __syncthreads();
  const int pair = thread % Z::kPairs;
  if (first + 2 * pair >= z.planes.planes) return;
  const float2* const plane = shared + pair * Z::kPlane;
  float2* to = z.spectra + thread / Z::kPairs * z.stride + first + 2 * pair;
#pragma unroll 3
  for (int f = thread / Z::kPairs; f < frequencies(L); f += kTogether, to += kTogether * z.stride) {
    const int row = f / (L / 2 + 1);
    const int column = f - row * (L / 2 + 1);
    const float2 here = plane[row * Z::kPitch + column];
    const float2 there = plane[(-row & (L - 1)) * Z::kPitch + (-column & (L - 1))];
    // A = (Z(f) + conj Z(-f)) / 2, B = (Z(f) - conj Z(-f)) / 2i
    *reinterpret_cast<float4*>(to) =
        make_float4(0.5f * (here.x + there.x), 0.5f * (here.y - there.y), 0.5f * (here.y + there.y),
                    0.5f * (there.x - here.x));
  }
}

// How to store a result: out += value if `accumulate`, else out = relu(value + bias + residual).
template <class T>
struct Finish {
  const T* bias;
  const T* residual;
  bool relu, accumulate;
};

// Writes planes 2 i and 2 i + 1. After the inverse transform they are the real and the imaginary
// parts of the points of pair i. Position p of a tile's axis is at point (p + shift) % L. kPlain
// means: no residual, y is not accumulated, and elements have no zeros between them.
template <int L, bool kPlain, class T>
__device__ inline void write_pixels_as(const PlaneSet& z, const Place* places, int shift_rows,
                                       int shift_columns, const Finish<T>& finish,
                                       const float2* shared, T* y) {
  using Z = Lines<L>;
  // A group of 2^width_log2 threads writes one row of both planes of a pair. Its size is the
  // smallest power of two, from 4 to 32, that covers a row; 32 threads also write longer rows.
  int width_log2 = 2;
  while ((1 << width_log2) < z.columns.limit && width_log2 < 5) ++width_log2;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread >> width_log2;
  const int rows_apart = (kBlockThreads / Z::kPairs) >> width_log2;  // groups of a pair
  static_assert(kBlockThreads / Z::kPairs >= 32);                    // at least one group for each
                                                                     // pair
  const int pair = group / rows_apart;
  const float2* const plane = shared + pair * Z::kPlane;
  const Place own[2] = {places[2 * pair], places[2 * pair + 1]};
  float bias[2] = {};
  if (finish.bias != nullptr) {
    bias[0] = to_float(finish.bias[own[0].channel]);
    bias[1] = to_float(finish.bias[own[1].channel]);
  }
  const int first = group % rows_apart;
  for (int c = thread & ((1 << width_log2) - 1); c < z.columns.limit; c += 1 << width_log2) {
    const float2* const column = plane + ((c + shift_columns) & (L - 1));
    Index at[2];  // index in y of column c: in row r if kPlain, else in the first row
    Points rows[2];
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const Place& place = own[part];
      const int from = c - place.columns.low;
      rows[part] = place.rows;
      if (!place.columns.hold(c) || (!kPlain && from % z.columns.step != 0)) rows[part].count = 0;
      at[part] = place.offset + (kPlain ? from : from / z.columns.step) +
                 (kPlain ? Index{first - place.rows.low} * z.columns.size : 0);
    }
#pragma unroll(kPlain ? 4 : 1)
    for (int r = first; r < z.rows.limit; r += rows_apart) {
      const float2 both = column[((r + shift_rows) & (L - 1)) * Z::kPitch];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        float value = (part == 0 ? both.x : both.y) * (1.0f / (L * L)) + bias[part];
        if constexpr (kPlain) {
          if (rows[part].hold(r)) y[at[part]] = from_float<T>(finished(value, finish.relu));
          at[part] += rows_apart * z.columns.size;
        } else {
          const int row = r - rows[part].low;
          if (!rows[part].hold(r) || row % z.rows.step != 0) continue;
          const Index to = at[part] + Index{row / z.rows.step} * z.columns.size;
          // Rounds y to its type before the residual is added. A separate kernel for the addition
          // would also read the rounded y, so both give the same bits.
          if (finish.residual != nullptr) value = to_float(from_float<T>(value));
          value = finished(value, finish.residual, to, finish.relu);
          y[to] = from_float<T>(finish.accumulate ? to_float(y[to]) + value : value);
        }
      }
    }
  }
}

template <int L, class T>
__device__ inline void write_pixels(const PlaneSet& z, const Place* places, int shift_rows,
                                    int shift_columns, const Finish<T>& finish,
                                    const float2* shared, T* y) {
  if (z.dense() && finish.residual == nullptr && !finish.accumulate) {
    write_pixels_as<L, true>(z, places, shift_rows, shift_columns, finish, shared, y);
  } else {
    write_pixels_as<L, false>(z, places, shift_rows, shift_columns, finish, shared, y);
  }
}

// Transforms spectra back to pixels.
template <int L>
__global__ void __launch_bounds__(kBlockThreads, 3)
    pixels_kernel(PlaneSet z, const float2* spectra, Index stride, int shift_rows,
                  int shift_columns, Finish<float> finish, float* y) {
  using Z = Lines<L>;
  constexpr int kTogether = kBlockThreads / Z::kPairs;  // frequencies that are loaded at a time
  auto* const shared = dynamic_shared<float2>();
  float2* const roots = shared + Z::kPairs * Z::kPlane;
  const Index first = static_cast<Index>(blockIdx.x) * Z::kPlanes;
  const int thread = static_cast<int>(threadIdx.x);
  __shared__ Place places[Z::kPlanes];
  find_places(z, first, Z::kPlanes, places);
  make_roots<L>(roots);
  constexpr int kAtOnce = 5;  // loads in flight of each thread
  const int pair = thread % Z::kPairs;
  const Index left = z.planes - (first + 2 * pair);  // planes from the pair's first plane on
  float2* const plane = shared + pair * Z::kPlane;
  const float2* from = spectra + thread / Z::kPairs * stride + first + 2 * pair;
  for (int begin = thread / Z::kPairs; begin < frequencies(L); begin += kAtOnce * kTogether) {
    float4 loaded[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u, from += kTogether * stride) {
      loaded[u] = make_float4(0, 0, 0, 0);
      if (begin + u * kTogether < frequencies(L) && left > 0) {
        loaded[u] = *reinterpret_cast<const float4*>(from);
        if (left == 1) loaded[u].z = loaded[u].w = 0;
      }
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int f = begin + u * kTogether;
      if (f >= frequencies(L)) break;
      const int row = f / (L / 2 + 1);
      const int column = f - row * (L / 2 + 1);
      const float4 ab = loaded[u];
      plane[row * Z::kPitch + column] = make_float2(ab.x - ab.w, ab.y + ab.z);
      // The point of frequency -f follows from frequency f. In columns 0 and L / 2, -f is stored
      // separately, and another thread computes its point.
      if (column != 0 && column != L / 2) {
        plane[(-row & (L - 1)) * Z::kPitch + L - column] = make_float2(ab.x + ab.w, ab.z - ab.y);
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

// ---- spans: the tiling of one axis, and the axes of the planes ----------------------------------

inline constexpr int kLengths[] = {16, 32, 64};
inline constexpr Index kLargestKernel = 33;

// One axis of a convolution: `in` inputs, `out` outputs, and `taps` taps including dilation. `pad`
// positions of padding precede the first input. in_step - 1 zeros are between inputs (dx of a
// strided convolution), and only every out_step-th output is needed.
struct Span {
  Index in = 1, in_step = 1, out = 1, out_step = 1, taps = 1, pad = 0;

  // Returns the span from x to y, or from dy to dx.
  static Span of(Index in, Index out, Index stride, Index taps, Index pad, bool forward) {
    if (forward) return {in, 1, out, stride, taps, pad};
    return {out, stride, in, 1, taps, taps - 1 - pad};
  }
  static Span rows(const Conv2dProblem& z, bool forward) {
    return of(z.h, z.p(), z.stride_h, (z.r - 1) * z.dilation_h + 1, z.pad_top, forward);
  }
  static Span columns(const Conv2dProblem& z, bool forward) {
    return of(z.w, z.q(), z.stride_w, (z.s - 1) * z.dilation_w + 1, z.pad_left, forward);
  }
  Index virtual_out() const { return (out - 1) * out_step + 1; }
  Index virtual_in() const { return (in - 1) * in_step + 1; }

  // Returns how many outputs a tile has for transforms of this length, or 0 when the length is too
  // short. All outputs read the positions [0, window), and only [a, b) of them contain elements.
  // One tile has all outputs if only padding wraps around.
  Index outputs(Index transform) const {
    const Index all = virtual_out();
    const Index window = all + taps - 1;
    const Index a = std::clamp<Index>(pad, 0, window);
    const Index b = std::clamp<Index>(pad + virtual_in(), a, window);
    if (transform >= std::max({b, window - a, all, taps})) return all;
    const Index most = transform - taps + 1;
    if (most < transform / 4) return 0;
    const Index count = ceil_div(all, most);
    return ceil_div(all, count);
  }
  // Returns the axis that a transform reads, for tiles with `tile` outputs.
  Axis read(Index tile) const {
    return {int(in),   int(in_step),         int(-pad),
            int(tile), int(tile + taps - 1), int(ceil_div(virtual_out(), tile))};
  }
  Axis made(Index tile) const {
    return {int(out), int(out_step), 0, int(tile), int(tile), int(ceil_div(virtual_out(), tile))};
  }
};

// Returns the taps of `planes` kernels as a set of planes.
inline PlaneSet kernel_planes(const Conv2dProblem& z, Index planes) {
  const auto taps = [](Index size, Index dilation) {
    return Axis{int(size), int(dilation), 0, 0, int((size - 1) * dilation + 1), 1};
  };
  return {taps(z.r, z.dilation_h), taps(z.s, z.dilation_w), int(planes), planes};
}

// Calls body with the length as a compile-time constant.
template <class Body>
void with_length(int length, Body&& body) {
  if (length == 16) body(std::integral_constant<int, 16>{});
  if (length == 32) body(std::integral_constant<int, 32>{});
  if (length == 64) body(std::integral_constant<int, 64>{});
}

template <int L>
LaunchShape blocks_of(Index planes) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(planes, Lines<L>::kPlanes))),
          .block = dim3(kBlockThreads),
          .shared_bytes = Lines<L>::kSharedBytes};
}

// ---- depthwise convolution (fft_depthwise_cuda.cu), called by fft_cuda.cu -----------------------

// Tells whether each group has one channel and one kernel.
bool is_depthwise(const Conv2dProblem& problem);

Conv2dCost depthwise_cost(const Conv2dProblem& problem, Direction direction);
std::size_t depthwise_workspace_bytes(const Conv2dProblem& problem, Direction direction);
// Returns the bytes of the spectra of all kernels.
std::size_t depthwise_prepared_bytes(const Conv2dProblem& problem, Direction direction);
void depthwise_prepare(const Conv2dPrepareArgs& args);
void depthwise_forward(const Conv2dForwardArgs& args);
void depthwise_backward_data(const Conv2dBackwardDataArgs& args);
void depthwise_backward_weight(const Conv2dBackwardWeightArgs& args);

}  // namespace convscope::fft
