// SPDX-License-Identifier: Apache-2.0
// fft_simd.cpp: Fourier transforms of 12 to 64 numbers with channels in the lanes.
//
// A lane holds a channel, so a transform is arithmetic on whole vectors: no shuffles, and all tile
// sizes are equally efficient. A length T = A B is factored once, after Cooley and Tukey (1965):
// with n = B n1 + n2 and k = k1 + A k2
//   X[k] = sum over n2 of W_B^(n2 k2) ( W_T^(n2 k1) sum over n1 of W_A^(n1 k1) x[n] )
// with W_N = exp(-2 pi i / N). The terms are B transforms of length A, T twiddle factors and A
// transforms of length B. Lengths 2 to 8 are unrolled; 8 complex numbers take 16 of 32 registers.
// Two real rows a and b are one complex row a + ib, whose spectrum Z contains both spectra:
//   A[j] = (Z[j] + conj Z[T-j]) / 2,  B[j] = (Z[j] - conj Z[T-j]) / 2i     (here without the 1/2)
// The inverse is the same transform with real and imaginary parts exchanged before and after.
// Read next  fft_cpu.cpp, the algorithm; fft_depthwise.cpp
#include "framework/simd/simd.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/fft/cpu/fft_kernels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

struct Complex {
  Vec re, im;
};
CONVSCOPE_INLINE Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
CONVSCOPE_INLINE Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
// Returns a + f b and a - i f b for a real number f.
CONVSCOPE_INLINE Complex add_scaled(Complex a, float f, Complex b) {
  return {fma(broadcast(f), b.re, a.re), fma(broadcast(f), b.im, a.im)};
}
CONVSCOPE_INLINE Complex add_rotated(Complex a, float f, Complex b) {
  return {fma(broadcast(f), b.im, a.re), fma(broadcast(-f), b.re, a.im)};
}
// Prefetches two cache lines for each vector (more lines when a vector is smaller). The spectra of
// a block of tiles are scattered over L3 or memory, and the hardware does not predict the next
// access.
CONVSCOPE_INLINE void prefetch(const float* p) {
  __builtin_prefetch(p);
  __builtin_prefetch(p + kLanes);
}
CONVSCOPE_INLINE void prefetch_for_write(float* p) {
  __builtin_prefetch(p, 1);
  __builtin_prefetch(p + kLanes, 1);
}
CONVSCOPE_INLINE Complex load_complex(const float* p) { return {load(p), load(p + kLanes)}; }
CONVSCOPE_INLINE void store_complex(float* p, Complex a) {
  store(p, a.re);
  store(p + kLanes, a.im);
}

CONVSCOPE_INLINE Complex times(Complex a, Complex b) {
  return {fma(a.re, b.re, zero() - a.im * b.im), fma(a.re, b.im, a.im * b.re)};
}

// ---- exp(-2 pi i k / N) ------------------------------------------------------------------------

constexpr double kHalfPi = 1.57079632679489661923;

// Returns the sum of a Taylor series for x in [0, pi / 2]. For sin the first `term` is x and
// `power` is 1; for cos they are 1 and 0.
constexpr double series(double x, double term, int power) {
  double sum = 0;
  for (; power < 40; power += 2) {
    sum += term;
    term *= -x * x / ((power + 1) * (power + 2));
  }
  return sum;
}

template <int N>
struct Twiddles {
  float re[N], im[N];
  constexpr Twiddles() : re(), im() {
    for (int k = 0; k < N; ++k) {
      const double x = kHalfPi * (4 * k % N) / N;  // after the last quarter turn
      const double sine = series(x, x, 1);
      const double cosine = series(x, 1, 0);
      const int quarter = 4 * k / N;
      const double along[4] = {cosine, -sine, -cosine, sine};
      const double across[4] = {sine, cosine, -sine, -cosine};
      re[k] = static_cast<float>(along[quarter]);
      im[k] = static_cast<float>(-across[quarter]);
    }
  }
};
template <int N>
constexpr Twiddles<N> kTwiddles{};

CONVSCOPE_INLINE Complex rotated(Complex a, float re, float im) {
  const Vec c = broadcast(re);
  const Vec s = broadcast(im);
  return {fma(broadcast(-im), a.im, a.re * c), fma(a.re, s, a.im * c)};
}

// ---- transforms of 3 to 8 numbers, in place ----------------------------------------------------

template <int N>
CONVSCOPE_INLINE void transform(Complex* z);

template <>
CONVSCOPE_INLINE void transform<3>(Complex* z) {
  constexpr float kSine = 0.866025403784438647f;  // sin(2 pi / 3)
  const Complex sum = z[1] + z[2];
  const Complex difference = z[1] - z[2];
  const Complex middle = add_scaled(z[0], -0.5f, sum);
  z[0] = z[0] + sum;
  z[1] = add_rotated(middle, kSine, difference);
  z[2] = add_rotated(middle, -kSine, difference);
}

template <>
CONVSCOPE_INLINE void transform<4>(Complex* z) {
  const Complex a = z[0] + z[2];
  const Complex b = z[0] - z[2];
  const Complex c = z[1] + z[3];
  const Complex d = z[1] - z[3];
  z[0] = a + c;
  z[1] = {b.re + d.im, b.im - d.re};
  z[2] = a - c;
  z[3] = {b.re - d.im, b.im + d.re};
}

template <>
CONVSCOPE_INLINE void transform<5>(Complex* z) {
  constexpr float kCosine1 = 0.309016994374947424f;   // cos(2 pi / 5)
  constexpr float kCosine2 = -0.809016994374947424f;  // cos(4 pi / 5)
  constexpr float kSine1 = 0.951056516295153572f;     // sin(2 pi / 5)
  constexpr float kSine2 = 0.587785252292473129f;     // sin(4 pi / 5)
  const Complex sum1 = z[1] + z[4];
  const Complex sum2 = z[2] + z[3];
  const Complex difference1 = z[1] - z[4];
  const Complex difference2 = z[2] - z[3];
  const Complex middle1 = add_scaled(add_scaled(z[0], kCosine1, sum1), kCosine2, sum2);
  const Complex middle2 = add_scaled(add_scaled(z[0], kCosine2, sum1), kCosine1, sum2);
  z[0] = z[0] + (sum1 + sum2);
  z[1] = add_rotated(add_rotated(middle1, kSine1, difference1), kSine2, difference2);
  z[4] = add_rotated(add_rotated(middle1, -kSine1, difference1), -kSine2, difference2);
  z[2] = add_rotated(add_rotated(middle2, kSine2, difference1), -kSine1, difference2);
  z[3] = add_rotated(add_rotated(middle2, -kSine2, difference1), kSine1, difference2);
}

// 6 = 2 x 3 without twiddle factors (Good 1958): n = 3 n1 + 2 n2, k = 3 k1 + 4 k2, both modulo 6.
template <>
CONVSCOPE_INLINE void transform<6>(Complex* z) {
  Complex even[3] = {z[0], z[2], z[4]};
  Complex odd[3] = {z[3], z[5], z[1]};
  transform<3>(even);
  transform<3>(odd);
  z[0] = even[0] + odd[0];
  z[4] = even[1] + odd[1];
  z[2] = even[2] + odd[2];
  z[3] = even[0] - odd[0];
  z[1] = even[1] - odd[1];
  z[5] = even[2] - odd[2];
}

template <>
CONVSCOPE_INLINE void transform<8>(Complex* z) {
  constexpr float kRoot = 0.707106781186547524f;  // sqrt(1/2)
  Complex even[4] = {z[0], z[2], z[4], z[6]};
  Complex odd[4] = {z[1], z[3], z[5], z[7]};
  transform<4>(even);
  transform<4>(odd);
  const Complex one{odd[1].re + odd[1].im, odd[1].im - odd[1].re};  // sqrt(2) W_8 odd[1]
  const Complex three{odd[3].im - odd[3].re,
                      odd[3].re + odd[3].im};  // sqrt(2) W_8^3 odd[3], im < 0
  z[0] = even[0] + odd[0];
  z[4] = even[0] - odd[0];
  z[1] = add_scaled(even[1], kRoot, one);
  z[5] = add_scaled(even[1], -kRoot, one);
  z[2] = {even[2].re + odd[2].im, even[2].im - odd[2].re};
  z[6] = {even[2].re - odd[2].im, even[2].im + odd[2].re};
  z[3] = {fma(broadcast(kRoot), three.re, even[3].re),
          fma(broadcast(-kRoot), three.im, even[3].im)};
  z[7] = {fma(broadcast(-kRoot), three.re, even[3].re),
          fma(broadcast(kRoot), three.im, even[3].im)};
}

// ---- transforms of 12 to 64 numbers ------------------------------------------------------------

constexpr int first_factor(int length) { return length <= 32 ? 4 : length == 48 ? 6 : 8; }

// Computes X, the transform of x[n] = load(n), and calls store(k, X[k]) for each k, in the order in
// which the second step computes them.
template <int N, class Load, class Store>
CONVSCOPE_INLINE void transform_long(const Load& load, const Store& store) {
  constexpr int kA = first_factor(N);
  constexpr int kB = N / kA;
  Complex half[kA][kB];
  for (int n2 = 0; n2 < kB; ++n2) {
    Complex z[kA];
#pragma GCC unroll 8
    for (int n1 = 0; n1 < kA; ++n1) z[n1] = load(kB * n1 + n2);
    transform<kA>(z);
    half[0][n2] = z[0];
    if (n2 == 0) {
#pragma GCC unroll 8
      for (int k1 = 1; k1 < kA; ++k1) half[k1][0] = z[k1];
      continue;
    }
#pragma GCC unroll 8
    for (int k1 = 1; k1 < kA; ++k1) {
      half[k1][n2] = rotated(z[k1], kTwiddles<N>.re[n2 * k1], kTwiddles<N>.im[n2 * k1]);
    }
  }
  for (int k1 = 0; k1 < kA; ++k1) {
    Complex z[kB];
#pragma GCC unroll 8
    for (int n2 = 0; n2 < kB; ++n2) z[n2] = half[k1][n2];
    transform<kB>(z);
#pragma GCC unroll 8
    for (int k2 = 0; k2 < kB; ++k2) store(k1 + kA * k2, z[k2]);
  }
}

// ---- rows --------------------------------------------------------------------------------------

template <int N>
void rows(const FftRows& z) {
  const Vec scale = broadcast(z.scale);
  for (int row = 0; row < z.rows; row += 2) {
    const bool both = row + 1 < z.rows;
    const float* const from = z.from + row * z.from_row;
    Complex spectrum[N];
    transform_long<N>(
        [&](int n) -> Complex {
          prefetch_for_write(z.to + n / 2 * z.pair_step + (2 * row + n % 2 * 2) * kLanes);
          if (n >= z.columns) return {zero(), zero()};
          const float* const p = from + n * kLanes;
          return {load(p) * scale, both ? load(p + z.from_row) * scale : zero()};
        },
        [&](int k, Complex value) { spectrum[k] = value; });
    float* to = z.to + 2 * row * kLanes;
    const auto put = [&](Complex one, Complex two) {
      store_complex(to, one);
      if (both) store_complex(to + 2 * kLanes, two);
      to += z.pair_step;
    };
    const Complex ends[2] = {spectrum[0], spectrum[N / 2]};
    put({ends[0].re + ends[0].re, ends[1].re + ends[1].re},
        {ends[0].im + ends[0].im, ends[1].im + ends[1].im});
    for (int j = 1; j < N / 2; ++j) {
      const Complex low = spectrum[j];
      const Complex high = spectrum[N - j];
      put({low.re + high.re, low.im - high.im}, {low.im + high.im, high.re - low.re});
    }
  }
}

template <int N>
void rows_back(const FftRowsBack& z) {
  const Vec bias = z.bias == nullptr ? zero() : load_first(z.bias, z.lanes);
  for (int row = 0; row < z.rows; row += 2) {
    const bool both = row + 1 < z.rows;
    const float* const from = z.from + 2 * row * kLanes;
    const Index second = both ? 2 * kLanes : 0;
    Complex spectrum[N];  // of a + ib, real and imaginary parts exchanged
    {
      const Complex a = load_complex(from);
      const Complex b = load_complex(from + second);
      spectrum[0] = {b.re, a.re};
      spectrum[N / 2] = {b.im, a.im};
    }
    for (int j = 1; j < N / 2; ++j) {
      const Complex a = load_complex(from + j * z.pair_step);
      const Complex b = load_complex(from + j * z.pair_step + second);
      prefetch(from + j * z.pair_step + 4 * kLanes);
      prefetch(from + j * z.pair_step + 6 * kLanes);
      spectrum[j] = {a.im + b.re, a.re - b.im};
      spectrum[N - j] = {b.re - a.im, a.re + b.im};
    }
    float* const to = z.to + row * z.to_row;
    transform_long<N>([&](int n) { return spectrum[n]; },
                      [&](int k, Complex value) {
                        const int column = k - z.first;
                        if (column < 0 || column >= z.columns) return;
                        float* const p = to + column * kLanes;
                        const Vec one = value.im + bias;
                        store(p, z.accumulate ? one + load(p) : one);
                        if (!both) return;
                        const Vec two = value.re + bias;
                        store(p + z.to_row, z.accumulate ? two + load(p + z.to_row) : two);
                      });
  }
}

// ---- columns -----------------------------------------------------------------------------------

// Stores the points of row k.
template <bool Kernel>
CONVSCOPE_INLINE void put_points(float* to, Index step, int k, Complex a, Vec sign) {
  if constexpr (Kernel) {
    store(to + 2 * k * step, a.re);
    store(to + (2 * k + 1) * step, a.im * sign);
  } else {
    store(to + 3 * k * step, a.re + a.im);
    store(to + (3 * k + 1) * step, a.re);
    store(to + (3 * k + 2) * step, a.im);
  }
}

template <int N, bool Kernel>
void columns(const FftColumns& z) {
  const Vec sign = broadcast(z.conjugate ? -1.0f : 1.0f);
  const float* from = z.from;
  float* to = z.to;
  for (Index i = 0; i < z.count; ++i, from += z.from_step, to += z.to_step) {
    const auto get = [&](int n) -> Complex {
      if (n >= z.rows) return {zero(), zero()};
      prefetch(from + 2 * z.from_step + 2 * n * kLanes);
      return load_complex(from + 2 * n * kLanes);
    };
    if (!z.two_real) {
      transform_long<N>(
          get, [&](int k, Complex value) { put_points<Kernel>(to, z.point_step, k, value, sign); });
      continue;
    }
    Complex spectrum[N];
    transform_long<N>(get, [&](int k, Complex value) { spectrum[k] = value; });
    for (int end = 0; end < N; end += N / 2) {
      float* const p = to + (Kernel ? 2 : 3) * end * z.point_step;
      store(p, spectrum[end].re);
      store(p + z.point_step, spectrum[end].im);
    }
    const Vec half = broadcast(0.5f);
    for (int k = 1; k < N / 2; ++k) {
      const Complex low = spectrum[k];
      const Complex high = spectrum[N - k];
      const Complex one{half * (low.re + high.re), half * (low.im - high.im)};
      const Complex two{half * (low.im + high.im), half * (high.re - low.re)};
      put_points<Kernel>(to, z.point_step, k, one, sign);
      put_points<Kernel>(to, z.point_step, N - k, two, sign);
    }
  }
}

template <int N>
void columns_back(const FftColumnsBack& z) {
  const float* from = z.from;
  float* to = z.to;
  for (Index i = 0; i < z.count; ++i, from += z.from_step, to += z.to_step) {
    const auto put = [&](int k, Complex value) {
      const int row = k - z.first;
      if (row < 0 || row >= z.rows) return;
      float* const p = to + 2 * row * kLanes;
      const Complex one{value.im, value.re};
      store_complex(p, z.accumulate ? one + load_complex(p) : one);
    };
    const auto get = [&](int n) -> Complex {  // real and imaginary parts exchanged
      const float* const p = from + 2 * n * z.point_step;
      return {load(p + z.point_step), load(p)};
    };
    if (!z.two_real) {
      transform_long<N>(get, put);
      continue;
    }
    Complex spectrum[N];  // of A + iB, exchanged; rows 0 and T / 2 are (A, B)
    spectrum[0] = get(0);
    spectrum[N / 2] = get(N / 2);
    for (int k = 1; k < N / 2; ++k) {
      const Complex a = get(k);
      const Complex b = get(N - k);
      spectrum[k] = {a.re + b.im, a.im - b.re};
      spectrum[N - k] = {b.im - a.re, a.im + b.re};
    }
    transform_long<N>([&](int n) { return spectrum[n]; }, put);
  }
}

// ---- products ----------------------------------------------------------------------------------

// kRows is the number of rows in a product, which has kRows x 3 accumulators and 3 registers for u.
// AVX-512 uses 9 x 3 + 3 of 32 registers, AVX2 4 x 3 + 3 of 16. Computing d - c and c + d takes no
// extra time, because these additions use execution ports that are otherwise idle.
constexpr int kRows = kManyRegisters ? 9 : kLanes > 1 ? 4 : 3;
constexpr int kSumRows = kManyRegisters ? 8 : kLanes > 1 ? 4 : 1;

template <int Rows>
struct Sums {
  Vec m[Rows][3];
  CONVSCOPE_INLINE Sums() {
#pragma GCC unroll 9
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 3
      for (int part = 0; part < 3; ++part) m[i][part] = zero();
    }
  }
  // v has three points, `step` apart.
  CONVSCOPE_INLINE void add(const float* v, Index v_point, Index step, const float* u,
                            Index u_point) {
    const Vec c = load(u);
    const Vec d = load(u + u_point);
    const Vec parts[3] = {c, d - c, c + d};
#pragma GCC unroll 9
    for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 3
      for (int part = 0; part < 3; ++part) {
        m[i][part] = fma(broadcast(v[part * v_point + i * step]), parts[part], m[i][part]);
      }
    }
  }
  // Stores the results, or adds them to the output with `add`.
  CONVSCOPE_INLINE void put(float* out, Index out_point, bool add) const {
#pragma GCC unroll 9
    for (int i = 0; i < Rows; ++i) {
      float* const re = out + i * kLanes;
      float* const im = out + out_point + i * kLanes;
      const Vec product_re = m[i][0] - m[i][2];
      const Vec product_im = m[i][0] + m[i][1];
      store(re, add ? load(re) + product_re : product_re);
      store(im, add ? load(im) + product_im : product_im);
    }
  }
};

// Splits sums into chains of at most kSumChain products (framework/simd/sum_chain.h).

template <int Rows>
void product_rows(const FftProduct& z) {
  if constexpr (Rows > 1) {
    if (z.rows < Rows) return product_rows<Rows - 1>(z);
  }
  static_assert(kSumChain % kLanes == 0, "a chain is whole blocks of channels");
  const float* u = z.u;
  const float* block = z.v;
  Index first = 0;
  do {
    Sums<Rows> sums;
    const Index end = first + kSumChain < z.depth ? first + kSumChain : z.depth;
    for (Index left = end - first; left > 0; left -= kLanes, block += z.block_step) {
      const Index count = left < kLanes ? left : kLanes;
      for (Index c = 0; c < count; ++c, u += kLanes) {
        sums.add(block + c, z.v_point, kLanes, u, z.u_point);
      }
    }
    sums.put(z.out, z.out_point, first > 0);
    first = end;
  } while (first < z.depth);
}

void product(const FftProduct& z) { product_rows<kRows>(z); }

void tile_sum(const FftProduct& z) {
  Index first = 0;
  do {
    Sums<kSumRows> sums;
    const Index end = first + kSumChain < z.depth ? first + kSumChain : z.depth;
    for (Index t = first; t < end; ++t) {
      sums.add(z.v + t * kLanes, z.v_point, 1, z.u + t * kLanes, z.u_point);
    }
    sums.put(z.out, z.out_point, first > 0);
    first = end;
  } while (first < z.depth);
}

template <int N>
constexpr FftLength kLength{.length = N,
                            .rows = rows<N>,
                            .rows_back = rows_back<N>,
                            .data_columns = columns<N, false>,
                            .kernel_columns = columns<N, true>,
                            .columns_back = columns_back<N>};

void points(const FftPoints& z) {
  for (int row = 0; row < z.length; ++row) {
    const Complex a = load_complex(z.v + 2 * row * kLanes);
    const Complex b = load_complex(z.u + 2 * row * kLanes);
    const bool real = z.two_real && (row == 0 || 2 * row == z.length);
    Complex product = real ? Complex{a.re * b.re, a.im * b.im} : times(a, b);
    float* const out = z.out + 2 * row * kLanes;
    if (z.accumulate) product = product + load_complex(out);
    store_complex(out, product);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(fft_kernels,
                       (FftKernels{
                           .lengths = {CONVSCOPE_ISA::kLength<12>, CONVSCOPE_ISA::kLength<16>,
                                       CONVSCOPE_ISA::kLength<20>, CONVSCOPE_ISA::kLength<24>,
                                       CONVSCOPE_ISA::kLength<32>, CONVSCOPE_ISA::kLength<48>,
                                       CONVSCOPE_ISA::kLength<64>},
                           .rows = CONVSCOPE_ISA::kRows,
                           .sum_rows = CONVSCOPE_ISA::kSumRows,
                           .product = CONVSCOPE_ISA::product,
                           .sum = CONVSCOPE_ISA::tile_sum,
                           .points = CONVSCOPE_ISA::points}))
