// SPDX-License-Identifier: Apache-2.0
// fft_lesson.h: the Fourier transform of a line and of a plane, for the lesson fft_lesson_cpu.cpp.
//
//   F_f = sum over i < n of x_i e^(-2 pi sqrt(-1) f i / n)                         n^2 products
// Cooley and Tukey, 1965: E and O are the transforms of the even and of the odd elements, n/2
// numbers each. Then
//   F_f       = E_f + e^(-2 pi sqrt(-1) f / n) O_f
//   F_(f+n/2) = E_f - e^(-2 pi sqrt(-1) f / n) O_f                                 f < n/2
// E and O are computed in the same way, so there are log2 n rounds of n/2 products.
//
//   x0 x1 x2 x3 x4 x5 x6 x7       even: x0 x2 x4 x6      of these even: x0 x4
//                                 odd:  x1 x3 x5 x7                odd: x2 x6   and so on
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <numbers>

#include "layers/conv2d/shared/lesson.h"

namespace convscope::fft_lesson {

using Index = std::int64_t;

// Returns element i of [.., 2] as a complex number, real part first. First is the type of an index.
// In a watched run it also records the source line that calls get() or put().
inline auto get(auto from, typename decltype(from)::First i) {
  return std::complex<typename decltype(from)::Value>(from(i, 0), from(i, 1));
}
inline void put(auto to, typename decltype(to)::First i, auto value) {
  to(i, 0) = value.real();
  to(i, 1) = value.imag();
}

// Returns the next power of two that holds the padded image.
inline Index length_of(Index size, Index pads) {
  return static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(size + pads)));
}

// Transforms planes [L,M,2]. Array is a view, or a watched view, which records accesses.
template <class Array>
struct Fourier {
  Fourier(const Conv2dProblem& z, auto& board)
      : rows(length_of(z.h, z.pad_top + z.pad_bottom)),
        columns(length_of(z.w, z.pad_left + z.pad_right)),
        line(board.complex_array("line", std::max(rows, columns))),
        roots(board.complex_array("roots", std::max(rows, columns))) {
    for (Index i = 0; i < roots.size(0); ++i) {
      const double turn = static_cast<double>(i) / static_cast<double>(roots.size(0));
      const auto root = std::polar(1.0, -2 * std::numbers::pi * turn);
      put(roots, i, std::complex<typename Array::Value>(root));
    }
  }

  // Writes to line[to .. to + n) the transform of the n elements in[first], in[first + step], ...
  void fft(auto in, Index first, Index step, Index to, Index n) const {
    if (n == 1) return put(line, to, get(in, first));
    fft(in, first, 2 * step, to, n / 2);                 // the even elements
    fft(in, first + step, 2 * step, to + n / 2, n / 2);  // the odd elements
    for (Index i = to; i < to + n / 2; ++i) {
      const auto even = get(line, i);
      const auto odd = get(roots, (i - to) * (roots.size(0) / n)) * get(line, i + n / 2);
      put(line, i, even + odd);
      put(line, i + n / 2, even - odd);
    }
  }

  // Transforms plane [L,M,2] in place.
  void fft2(auto plane) const {
    const auto all = plane.as(rows * columns, 2);
    for (Index i = 0; i < rows + columns; ++i) {  // every row, then every column
      const bool row = i < rows;
      const Index first = row ? i * columns : i - rows, step = row ? 1 : columns;
      const Index n = row ? columns : rows;
      fft(all, first, step, 0, n);
      for (Index j = 0; j < n; ++j) put(all, first + j * step, get(line, j));
    }
  }

  // Computes out[i], the transform of plane i of `in`. Pixel (h, v) goes to row top + h * down and
  // column left + v * right. Rows before row 0 wrap to the end, because F treats planes as
  // periodic.
  void spectra(auto out, auto in, Index top, Index left, Index down, Index right) const {
    out.fill(0);
    for (Index i = 0; i < out.size(0); ++i) {
      for (Index h = 0; h < in.size(1); ++h) {
        for (Index v = 0; v < in.size(2); ++v) {
          out(i, (top + h * down + rows) % rows, (left + v * right + columns) % columns, 0) =
              in(i, h, v);
        }
      }
      fft2(out[i]);
    }
  }

  // Adds conj(a) times b to sum, frequency by frequency.
  void add(auto sum, auto a, auto b) const {
    const Index n = rows * columns;
    for (Index i = 0; i < n; ++i) {
      put(sum.as(n, 2), i,
          get(sum.as(n, 2), i) + std::conj(get(a.as(n, 2), i)) * get(b.as(n, 2), i));
    }
  }

  const Index rows, columns;  // L, M
  const Array line, roots;    // roots of unity, for the longer axis
  const typename Array::Value scale = 1 / static_cast<typename Array::Value>(rows * columns);
};

}  // namespace convscope::fft_lesson
