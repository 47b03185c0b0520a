// SPDX-License-Identifier: Apache-2.0
// winograd_simd.cpp: Winograd's transforms with channels in the lanes, written once for all tile
// sizes from the tables of winograd_matrices.h, and for both layouts. Pixels are in a panel, or in
// an NCHW16c tensor with L adjacent channels (PixelView).
//
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// a tile has an unroll pragma. Templates walk over the matrices and omit zeros and ones.
// Read next  winograd_matrices.h; winograd_cpu.cpp, which calls it
#include "framework/simd/simd.h"
#include "layers/conv2d/winograd/cpu/winograd_kernels.h"
#include "layers/conv2d/winograd/winograd_matrices.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
using winograd::Matrices;

// ---- a matrix of constants times a column of vectors -------------------------------------------

// Returns sum + matrix[Row][j] in[j] over j = From, From + Step, .. < Columns.
template <const auto& matrix, int Row, int From, int Step, int Columns>
CONVSCOPE_INLINE Vec add_terms(const Vec* in, Vec sum) {
  if constexpr (From >= Columns) {
    return sum;
  } else {
    constexpr float kFactor = matrix[Row][From];
    if constexpr (kFactor == 1.0f) {
      sum = sum + in[From];
    } else if constexpr (kFactor == -1.0f) {
      sum = sum - in[From];
    } else if constexpr (kFactor != 0.0f) {
      sum = fma(broadcast(kFactor), in[From], sum);
    }
    return add_terms<matrix, Row, From + Step, Step, Columns>(in, sum);
  }
}

// Returns the sum of add_terms(), started with the first nonzero term. Each half of each row of a
// matrix has such a term.
template <const auto& matrix, int Row, int From, int Step, int Columns>
CONVSCOPE_INLINE Vec terms(const Vec* in) {
  static_assert(From < Columns);
  constexpr float kFactor = matrix[Row][From];
  if constexpr (kFactor == 0.0f) {
    return terms<matrix, Row, From + Step, Step, Columns>(in);
  } else {
    const Vec first = kFactor == 1.0f ? in[From] : broadcast(kFactor) * in[From];
    return add_terms<matrix, Row, From + Step, Step, Columns>(in, first);
  }
}

// Computes out[T] = matrix[T, Columns] in[Columns].
template <const auto& matrix, int T, int Columns>
CONVSCOPE_INLINE void multiply(const Vec* in, Vec* out) {
  out[0] = terms<matrix, 0, 0, 1, Columns>(in);
  {
    const Vec even = terms<matrix, 1, 0, 2, Columns>(in);
    const Vec odd = terms<matrix, 1, 1, 2, Columns>(in);
    out[1] = even + odd;
    out[2] = even - odd;
  }
  if constexpr (T >= 6) {
    const Vec even = terms<matrix, 3, 0, 2, Columns>(in);
    const Vec odd = terms<matrix, 3, 1, 2, Columns>(in);
    out[3] = even + odd;
    out[4] = even - odd;
  }
  if constexpr (T == 8) {
    const Vec even = terms<matrix, 5, 0, 2, Columns>(in);
    const Vec odd = terms<matrix, 5, 1, 2, Columns>(in);
    out[5] = even + odd;
    out[6] = even - odd;
  }
  out[T - 1] = terms<matrix, T - 1, 0, 1, Columns>(in);
}

// Returns c in + sum for a constant c.
template <const auto& matrix, int Row, int Column>
CONVSCOPE_INLINE Vec add_term(Vec in, Vec sum) {
  constexpr float kFactor = matrix[Row][Column];
  if constexpr (kFactor == 0.0f) return sum;
  if constexpr (kFactor == 1.0f) return sum + in;
  return fma(broadcast(kFactor), in, sum);
}

// Computes out[Column] .. out[Columns - 1] of matrix^T in.
template <const auto& matrix, int T, int Columns, int Column = 0>
CONVSCOPE_INLINE void multiply_transposed(const Vec* in, Vec* out) {
  if constexpr (Column < Columns) {
    // Rows 2 i - 1 and 2 i differ in the sign of odd columns.
    const Vec first = Column % 2 == 0 ? in[1] + in[2] : in[1] - in[2];
    constexpr float kFactor = matrix[1][Column];
    Vec sum = kFactor == 1.0f ? first : broadcast(kFactor) * first;
    if constexpr (T >= 6) {
      const Vec second = Column % 2 == 0 ? in[3] + in[4] : in[3] - in[4];
      sum = add_term<matrix, 3, Column>(second, sum);
    }
    if constexpr (T == 8) {
      const Vec third = Column % 2 == 0 ? in[5] + in[6] : in[5] - in[6];
      sum = add_term<matrix, 5, Column>(third, sum);
    }
    sum = add_term<matrix, 0, Column>(in[0], sum);
    out[Column] = add_term<matrix, T - 1, Column>(in[T - 1], sum);
    multiply_transposed<matrix, T, Columns, Column + 1>(in, out);
  }
}

// ---- transforms --------------------------------------------------------------------------------

// Transforms Size x Size pixels u to matrix u matrix^T. Reads from[i from_row + j from_step],
// writes to[(i T + j) point_step].
template <const auto& matrix, int T, int Size>
CONVSCOPE_INLINE void expand(const float* from, Index from_row, Index from_step, float* to,
                             Index point_step) {
  Vec half[T][Size];  // matrix u
#pragma GCC unroll 8
  for (int j = 0; j < Size; ++j) {
    Vec in[Size];
    Vec out[T];
#pragma GCC unroll 8
    for (int i = 0; i < Size; ++i) in[i] = load(from + i * from_row + j * from_step);
    multiply<matrix, T, Size>(in, out);
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < T; ++i) {
    Vec out[T];
    multiply<matrix, T, Size>(half[i], out);
#pragma GCC unroll 8
    for (int j = 0; j < T; ++j) store(to + (i * T + j) * point_step, out[j]);
  }
}

// Transforms T x T points m to matrix^T m matrix, Size x Size. Calls result(i, j, value).
template <const auto& matrix, int T, int Size, class Result>
CONVSCOPE_INLINE void contract(const float* from, Index point_step, const Result& result) {
  Vec half[Size][T];  // matrix^T m
#pragma GCC unroll 8
  for (int j = 0; j < T; ++j) {
    Vec in[T];
    Vec out[Size];
#pragma GCC unroll 8
    for (int i = 0; i < T; ++i) in[i] = load(from + (i * T + j) * point_step);
    multiply_transposed<matrix, T, Size>(in, out);
#pragma GCC unroll 8
    for (int i = 0; i < Size; ++i) half[i][j] = out[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < Size; ++i) {
    Vec out[Size];
    multiply_transposed<matrix, T, Size>(half[i], out);
#pragma GCC unroll 8
    for (int j = 0; j < Size; ++j) result(i, j, out[j]);
  }
}

// Returns value clamped to [0, most].
CONVSCOPE_INLINE Index clamped(Index value, Index most) {
  return value < 0 ? 0 : value > most ? most : value;
}

constexpr int kMaxStep = 16;                       // largest step of a PixelView
constexpr float kZeros[kMaxColumns * kMaxStep]{};  // a row outside the image

// Transforms inputs. Neighbouring tiles share two columns. So the columns are transformed first,
// from the image to the panel, then each tile's rows.
template <int M>
void input(const PixelView<const float>& x, const WinogradPoints& z, float* panel) {
  constexpr int kT = M + 2;
  const Index columns = z.tiles * M + 2;
  const Index panel_row = columns * kLanes;
  // The image covers the columns [begin, end) of the view.
  const Index begin = clamped(-x.column, columns);
  const Index end = begin + clamped(x.w - x.column - begin, columns - begin);
  const float* rows[kT];
#pragma GCC unroll 8
  for (int i = 0; i < kT; ++i) {
    const bool inside = x.row + i >= 0 && x.row + i < x.h && begin < end;
    rows[i] = inside ? x.image + ((x.row + i) * x.w + x.column + begin) * x.step : kZeros;
  }
  const auto clear = [&](Index from, Index to) {
    for (int i = 0; i < kT; ++i) {
      for (Index j = from; j < to; ++j) store(panel + i * panel_row + j * kLanes, zero());
    }
  };
  clear(0, begin);
  for (Index j = begin, at = 0; j < end; ++j, at += x.step) {
    Vec in[kT];
    Vec out[kT];
#pragma GCC unroll 8
    for (int i = 0; i < kT; ++i) in[i] = load(rows[i] + at);
    multiply<Matrices<M>::kBt, kT, kT>(in, out);
#pragma GCC unroll 8
    for (int i = 0; i < kT; ++i) store(panel + i * panel_row + j * kLanes, out[i]);
  }
  clear(end, columns);
  for (int tile = 0; tile < z.tiles; ++tile) {
    const float* const from = panel + tile * M * kLanes;
    float* const to = z.at + tile * kLanes;
#pragma GCC unroll 8
    for (int i = 0; i < kT; ++i) {
      Vec in[kT];
      Vec out[kT];
#pragma GCC unroll 8
      for (int j = 0; j < kT; ++j) in[j] = load(from + i * panel_row + j * kLanes);
      multiply<Matrices<M>::kBt, kT, kT>(in, out);
#pragma GCC unroll 8
      for (int j = 0; j < kT; ++j) store(to + (i * kT + j) * z.step, out[j]);
    }
  }
}

// Transforms dy. A tile whose first pixel is in the image is whole, or is cut by the lower and
// right edge. A cut tile is filled up with zeros first.
template <int M>
void gradient(const PixelView<const float>& dy, const WinogradPoints& z) {
  alignas(64) float cut[M * M * kLanes];
  const Index rows = clamped(dy.h - dy.row, M);
  for (int tile = 0; tile < z.tiles; ++tile) {
    const Index column = dy.column + tile * M;
    const Index columns = clamped(dy.w - column, M);
    const bool whole = rows == M && columns == M;
    const Index first = (dy.row * dy.w + column) * dy.step;
    if (!whole) {
      for (int i = 0; i < M; ++i) {
        for (int j = 0; j < M; ++j) {
          const Index at = first + (i * dy.w + j) * dy.step;
          store(cut + (i * M + j) * kLanes, i < rows && j < columns ? load(dy.image + at) : zero());
        }
      }
    }
    expand<Matrices<M>::kA, M + 2, M>(whole ? dy.image + first : cut,
                                      whole ? dy.w * dy.step : M * kLanes, whole ? dy.step : kLanes,
                                      z.at + tile * kLanes, z.step);
  }
}

// Transforms outputs and applies the epilogue in registers. Drops pixels beyond the edge of the
// image.
template <int M>
void output(const WinogradPoints& z, const PixelView<float>& y, const WinogradFinish& finish) {
  const Vec start = finish.bias == nullptr ? zero() : load_first(finish.bias, finish.lanes);
  const Index row_step = y.w * y.step, step = y.step;
  const bool relu = finish.relu;
  const Vec most = broadcast(finish.most);
  const Index rows = clamped(y.h - y.row, M);
  for (int tile = 0; tile < z.tiles; ++tile) {
    const Index column = y.column + tile * M;
    const Index columns = clamped(y.w - column, M);
    if (columns == 0) break;
    const Index first = y.row * row_step + column * step;
    float* const to = y.image + first;
    const float* const residual = finish.residual == nullptr ? nullptr : finish.residual + first;
    const auto put = [=](int i, int j, Vec value) {
      const Index at = i * row_step + j * step;
      Vec sum = value + start;
      if (residual != nullptr) sum = sum + load(residual + at);
      // NaN stays NaN, -0 becomes 0.
      if (relu) sum = bounded_relu(sum, most);
      store(to + at, sum);
    };
    const float* const from = z.at + tile * kLanes;
    if (rows == M && columns == M) {
      contract<Matrices<M>::kA, M + 2, M>(from, z.step, put);
    } else {
      contract<Matrices<M>::kA, M + 2, M>(from, z.step, [&](int i, int j, Vec value) {
        if (i < rows && j < columns) put(i, j, value);
      });
    }
  }
}

template <int M>
void weights(const float* taps, bool reversed, Index count, float* to, Index step,
             Index point_step) {
  for (Index i = 0; i < count; ++i, taps += 9 * kLanes, to += step) {
    if (!reversed) {
      expand<Matrices<M>::kG, M + 2, 3>(taps, 3 * kLanes, kLanes, to, point_step);
      continue;
    }
    alignas(64) float rotated[9 * kLanes];
#pragma GCC unroll 9
    for (int t = 0; t < 9; ++t) store(rotated + t * kLanes, load(taps + (8 - t) * kLanes));
    expand<Matrices<M>::kG, M + 2, 3>(rotated, 3 * kLanes, kLanes, to, point_step);
  }
}

template <int M>
void weight_sums(const float* from, Index step, Index point_step, Index count, bool accumulate,
                 float* taps) {
  for (Index n = 0; n < count; ++n, from += step, taps += 9 * kLanes) {
    contract<Matrices<M>::kG, M + 2, 3>(from, point_step, [&](int i, int j, Vec value) {
      float* const to = taps + (3 * i + j) * kLanes;
      store(to, accumulate ? value + load(to) : value);
    });
  }
}

template <int M>
constexpr WinogradTransforms kTransforms{.input = input<M>,
                                         .gradient = gradient<M>,
                                         .output = output<M>,
                                         .weights = weights<M>,
                                         .weight_sums = weight_sums<M>};

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(winograd_kernels, (WinogradKernels{.two = CONVSCOPE_ISA::kTransforms<2>,
                                                          .four = CONVSCOPE_ISA::kTransforms<4>,
                                                          .six = CONVSCOPE_ISA::kTransforms<6>}))
