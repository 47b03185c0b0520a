// SPDX-License-Identifier: Apache-2.0
// fft_lesson_cpu.cpp: convolution by Fourier transforms of whole images. A sum over all taps in the
// image becomes one complex product for each frequency.
//
// Formula    y[k] = F^-1 [ sum over c of F(x[c]) . conj F(w[k,c]) ] + b[k]; x with its padding and
//            w followed by zeros are both [L,M]; "." multiplies frequency by frequency
// Textbook   for each k, c:  W[k,c] = fft2(w[k,c])
//            for each image:
//              for each c:   X[c] = fft2(x[c])
//              for each k:   Y = sum over c of X[c] . conj W[k,c]
//                            y[k] = real(ifft2(Y))[0:P, 0:Q] + b[k]
//
//              x [L,M]        w [L,M]        y [L,M]
//             0 + + + 0      # # 0 0 0      o o o o ~     F treats every plane as periodic: the
//              0 + + + 0      # # 0 0 0      o o o o ~     window that begins at ~ wraps around
//              0 0 0 0 0      0 0 0 0 0      ~ ~ ~ ~ ~     the edge. Those outputs are not used.
//
// Method     L and M are the next powers of two that hold the padded image. fft2 transforms every
//            row, then every column. A line of L numbers takes log2 L rounds of L/2 products
//            (fft_lesson.h).
// Shapes     x [N,C,H,W], w [K,C/G,R,S], b [K], y [N,K,P,Q], row-major, f32; spectra [..,L,M,2],
//            real part first; f32 accumulators
// Supports   f32; stride 1; every kernel, dilation, padding and number of groups; spectra
//            of w of at most 2^28 numbers
// Cost       FLOPs = 8 N K C/G L M in products and 5 L M log2(L M) for the transform of a plane,
//            independent of R S; bytes = workspace = the spectra; the fast algorithms work tile by
//            tile
// Numerics   a transform of L M numbers has an error of 0.3 eps sqrt(log2 L M) of their rms
//            (Gentleman, Sande 1966). Small outputs have the same absolute error as large outputs.
//            A NaN spreads over its image. Same bits on each run; not exact on integers
// Backward   dx = F^-1 [ sum over k of F(dy) . F(w) ] less the padding, assigned;
//            dw = F^-1 [ sum over n of F(x) . conj F(dy) ] at the taps, added to
// Choices    only F: real F^-1(Y) = real F(conj Y) / (L M), and F(w) = conj F(w rotated by 180 deg)
// Source     M. Mathieu, M. Henaff, Y. LeCun: Fast Training of Convolutional Networks through FFTs,
//            2014, arXiv 1312.5851; J. Cooley, J. Tukey 1965
// Read next  winograd_lesson_cpu.cpp, a similar transform with real numbers; fft_cpu.cpp, with
//            tiles
#include <cmath>

#include "layers/conv2d/fft/fft_lesson.h"

namespace convscope {
namespace {

using fft_lesson::Fourier;
using fft_lesson::Index;
using fft_lesson::length_of;

struct Lesson {
  static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board) {
    const Fourier<decltype(y)> f(z, board);
    const Index depth = z.c_per_group();
    const auto kernels = board.complex_array("W", z.k * depth, f.rows, f.columns);
    const auto images = board.complex_array("X", z.c, f.rows, f.columns);
    const auto sum = board.complex_array("Y", f.rows, f.columns);
    board.step("W = F(w)");
    f.spectra(kernels, w.as(z.k * depth, z.r, z.s), 0, 0, z.dilation_h, z.dilation_w);
    for (Index n = 0; n < z.n; ++n) {
      board.step("X = F(x)");
      f.spectra(images, x[n], z.pad_top, z.pad_left, 1, 1);
      for (Index k = 0; k < z.k; ++k) {
        board.step("Y = sum of conj X . W");
        sum.fill(0);
        for (Index i = k * depth; i < (k + 1) * depth; ++i) {
          f.add(sum, images[k / z.k_per_group() * depth + i % depth], kernels[i]);
        }
        board.step("y = F(Y) / L M + b");
        f.fft2(sum);
        for (Index p = 0; p < z.p(); ++p) {
          for (Index q = 0; q < z.q(); ++q) y(n, k, p, q) = sum(p, q, 0) * f.scale + b.or_zero(k);
        }
      }
    }
  }

  static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board) {
    const Fourier<decltype(dx)> f(z, board);
    const Index depth = z.c_per_group();
    const auto kernels = board.complex_array("W", z.k * depth, f.rows, f.columns);
    const auto gradients = board.complex_array("D", z.k, f.rows, f.columns);
    const auto sum = board.complex_array("DX", f.rows, f.columns);
    board.step("W = F(w flipped)");
    f.spectra(kernels, w.as(z.k * depth, z.r, z.s), 0, 0, -z.dilation_h, -z.dilation_w);
    for (Index n = 0; n < z.n; ++n) {
      board.step("D = F(dy)");
      f.spectra(gradients, dy[n], 0, 0, 1, 1);
      for (Index c = 0; c < z.c; ++c) {
        board.step("DX = sum of conj D . W");
        sum.fill(0);
        for (Index i = 0; i < z.k_per_group(); ++i) {
          const Index k = c / depth * z.k_per_group() + i;
          f.add(sum, gradients[k], kernels[k * depth + c % depth]);
        }
        board.step("dx = F(DX) / L M");
        f.fft2(sum);
        for (Index h = 0; h < z.h; ++h) {
          for (Index v = 0; v < z.w; ++v)
            dx(n, c, h, v) = sum(h + z.pad_top, v + z.pad_left, 0) * f.scale;
        }
      }
    }
  }

  static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board) {
    const Fourier<decltype(dw)> f(z, board);
    const Index depth = z.c_per_group();
    const auto sums = board.complex_array("DW", z.k * depth, f.rows, f.columns);
    const auto images = board.complex_array("X", z.c, f.rows, f.columns);
    const auto gradients = board.complex_array("D", z.k, f.rows, f.columns);
    sums.fill(0);
    for (Index n = 0; n < z.n; ++n) {
      board.step("X = F(x), D = F(dy)");
      f.spectra(images, x[n], z.pad_top, z.pad_left, 1, 1);
      f.spectra(gradients, dy[n], 0, 0, 1, 1);
      board.step("DW += conj X . D");
      for (Index i = 0; i < z.k * depth; ++i) {
        const Index k = i / depth;
        f.add(sums[i], images[k / z.k_per_group() * depth + i % depth], gradients[k]);
      }
    }
    board.step("dw += F(DW) / L M");
    for (Index i = 0; i < z.k * depth; ++i) {
      f.fft2(sums[i]);
      for (Index r = 0; r < z.r; ++r) {
        for (Index s = 0; s < z.s; ++s) {
          const auto taps = sums[i];
          dw(i / depth, i % depth, r, s) += taps(r * z.dilation_h, s * z.dilation_w, 0) * f.scale;
        }
      }
    }
  }
};

// Returns how many numbers the spectra of `planes` planes have.
double numbers_of(const Conv2dProblem& z, double planes) {
  const Index rows = length_of(z.h, z.pad_top + z.pad_bottom);
  const Index columns = length_of(z.w, z.pad_left + z.pad_right);
  return 2 * planes * static_cast<double>(rows * columns);
}

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const auto no = [](const auto&... words) { return Conv2dSupport::no(cat(words...)); };
  if (z.dtype != DType::f32) return lesson_takes(z.dtype);
  if (z.stride_h != 1 || z.stride_w != 1) {
    return no("expects stride 1, got ", z.stride_h, "x", z.stride_w);
  }
  const double numbers = numbers_of(z, static_cast<double>(z.k * z.c_per_group()));
  if (numbers <= 0x1p28) return {};
  return no("expects spectra of w of at most 2^28 numbers, because it keeps all of them, got ",
            numbers);
}

Conv2dCost cost(const Conv2dProblem& z, Direction) {
  const auto kernels = static_cast<double>(z.k * z.c_per_group());
  const double planes = kernels + static_cast<double>(z.n * (z.c + z.k));
  const double products = 4 * numbers_of(z, kernels * static_cast<double>(z.n));
  const double transforms = 2.5 * numbers_of(z, planes) * std::log2(numbers_of(z, 1));
  return {.flops = products + transforms,
          .bytes =
              z.nominal_bytes() + 2 * numbers_of(z, planes) * static_cast<double>(size_of(z.dtype)),
          .issued = products + transforms};
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction) {
  const Index longer =
      std::max(length_of(z.h, z.pad_top + z.pad_bottom), length_of(z.w, z.pad_left + z.pad_right));
  const auto planes = static_cast<double>(z.k * z.c_per_group() + z.c + z.k + 1);
  return static_cast<std::size_t>(numbers_of(z, planes) + 4.0 * static_cast<double>(longer)) *
         size_of(z.dtype);
}

const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({
    .name = "fft_lesson",
    .idea = "lesson: Fourier transforms of whole images: one complex product for each frequency",
    .paper = "Mathieu, Henaff, LeCun 2014: Fast Training of CNNs through FFTs, arXiv 1312.5851",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
});

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
CONVSCOPE_CONV2D_LESSON(convscope::kAlgorithm, convscope::Lesson, "n=1,c=2,h=4,w=4,k=2,r=3,s=3")
