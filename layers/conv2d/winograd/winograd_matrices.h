// SPDX-License-Identifier: Apache-2.0
// winograd_matrices.h: the matrices of Winograd's convolution, and their derivation.
//
// A tile of M outputs of a kernel of 3 taps reads T = M + 2 inputs. Take the taps g as the
// coefficients of a polynomial of degree 2. Give each output a weight, and take these weights u as
// the coefficients of a polynomial of degree M - 1. The product of the two polynomials has T
// coefficients. Values at T points determine a polynomial of degree T - 1, and the value of a
// product is the product of the values. So T multiplications replace the 3 M of the textbook's
// sums. The last "point" is infinity, which stands for the highest coefficient. Evaluation at a
// point a is the row
//   A_a = (1, a, .., a^(M-1))        G_a = (1, a, a^2) / N_a       at infinity (0, .., 0, 1).
// Interpolation assigns each point its Lagrange polynomial. Row a of B^T has the coefficients of
//   product over points b != a of (z - b),     N_a = product over b != a of (a - b).
// At infinity, the row has those of the product over all points b of (z - b). The sum to compute is
//   sum over i, j of u_i g_j d_(i+j) = sum over points of (A u)(G g)(B^T d).
// The equation holds for all u, g and d, so the sum can be solved for y or dg (Winograd 1980):
//   y  = A^T [(G g) . (B^T d)]    forward; for dx the same with flipped, transposed weights
//   dg = G^T [(A dy) . (B^T d)]   the gradient of the weights: F(3, M), with the very same matrices
// In two dimensions each matrix is applied to columns and then to rows. Lavin & Gray, and the
// lessons, negate the last row of A and of B^T. The two signs cancel.
//
// Points. M = 2: 0, 1, -1, infinity (Lavin & Gray 2015, arXiv 1509.09308): all constants are 1 or
// 1/2. M = 4: 0, +-sqrt(1/2), +-sqrt(2), infinity instead of 0, +-1, +-2: pairs of reciprocal
// points keep the powers in A and the products in B^T near 1, so that less of each float is lost
// (S. A. Alam et al. 2022, arXiv 2201.10369, on points c, -c, 1/c, -1/c; the inference library
// ncnn uses the same points).
//
// M = 6: 0, +-1, +-2, +-1/2, infinity. Ten choices of the three pairs were tried. The points above
// had the smallest errors, four times those of M = 4.
//
// Points come in pairs a, -a, in rows 2 i - 1 and 2 i. The two rows differ only in the sign of the
// odd columns, so the sums over even and over odd columns are computed once for each pair.
#pragma once

namespace convscope::winograd {

template <int M>
struct Matrices;

template <>
struct Matrices<2> {  // rows: 0, 1, -1, infinity
  static constexpr float kA[4][2] = {
      {1, 0},
      {1, 1},
      {1, -1},
      {0, 1},
  };
  static constexpr float kG[4][3] = {
      {1, 0, 0},  // row 0 of G and of B^T are both negated: N_0 = -1
      {0.5f, 0.5f, 0.5f},
      {0.5f, -0.5f, 0.5f},
      {0, 0, 1},
  };
  static constexpr float kBt[4][4] = {
      {1, 0, -1, 0},  // -(z - 1)(z + 1)
      {0, 1, 1, 0},   // z (z + 1)
      {0, -1, 1, 0},  // z (z - 1)
      {0, -1, 0, 1},  // z (z - 1)(z + 1)
  };
};

template <>
struct Matrices<4> {                                  // rows: 0, p, -p, q, -q, infinity
  static constexpr float kP = 0.707106781186547524f;  // sqrt(1/2)
  static constexpr float kQ = 1.414213562373095049f;  // sqrt(2)
  static constexpr float kA[6][4] = {
      {1, 0, 0, 0},       {1, kP, 0.5f, kP / 2}, {1, -kP, 0.5f, -kP / 2},
      {1, kQ, 2, 2 * kQ}, {1, -kQ, 2, -2 * kQ},  {0, 0, 0, 1},
  };
  static constexpr float kG[6][3] = {
      {1, 0, 0},                               // N_0 = p^2 q^2 = 1
      {-2.0f / 3, -2.0f / 3 * kP, -1.0f / 3},  // N_p = 2 p^2 (p^2 - q^2) = -3/2
      {-2.0f / 3, 2.0f / 3 * kP, -1.0f / 3},
      {1.0f / 6, kQ / 6, 1.0f / 3},  // N_q = 2 q^2 (q^2 - p^2) = 6
      {1.0f / 6, -kQ / 6, 1.0f / 3},
      {0, 0, 1},
  };
  static constexpr float kBt[6][6] = {
      {1, 0, -2.5f, 0, 1, 0},     // (z^2 - 1/2)(z^2 - 2)
      {0, -kQ, -2, kP, 1, 0},     // z (z + p)(z^2 - 2)
      {0, kQ, -2, -kP, 1, 0},     // z (z - p)(z^2 - 2)
      {0, -kP, -0.5f, kQ, 1, 0},  // z (z + q)(z^2 - 1/2)
      {0, kP, -0.5f, -kQ, 1, 0},  // z (z - q)(z^2 - 1/2)
      {0, 1, 0, -2.5f, 0, 1},     // z (z^2 - 1/2)(z^2 - 2)
  };
};

template <>
struct Matrices<6> {  // rows: 0, 1, -1, 2, -2, 1/2, -1/2, infinity
  static constexpr float kA[8][6] = {
      {1, 0, 0, 0, 0, 0},
      {1, 1, 1, 1, 1, 1},
      {1, -1, 1, -1, 1, -1},
      {1, 2, 4, 8, 16, 32},
      {1, -2, 4, -8, 16, -32},
      {1, 0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f},
      {1, -0.5f, 0.25f, -0.125f, 0.0625f, -0.03125f},
      {0, 0, 0, 0, 0, 1},
  };
  static constexpr float kG[8][3] = {
      {1, 0, 0},                          // N_0 = -1: row 0 of G and of B^T are both negated
      {-2.0f / 9, -2.0f / 9, -2.0f / 9},  // N_1 = -9/2
      {-2.0f / 9, 2.0f / 9, -2.0f / 9},
      {1.0f / 90, 1.0f / 45, 2.0f / 45},  // N_2 = 90
      {1.0f / 90, -1.0f / 45, 2.0f / 45},
      {32.0f / 45, 16.0f / 45, 8.0f / 45},  // N_(1/2) = 45/32
      {32.0f / 45, -16.0f / 45, 8.0f / 45},
      {0, 0, 1},
  };
  static constexpr float kBt[8][8] = {
      {1, 0, -5.25f, 0, 5.25f, 0, -1, 0},        // -(z^2 - 1)(z^2 - 4)(z^2 - 1/4)
      {0, 1, 1, -4.25f, -4.25f, 1, 1, 0},        // z (z + 1)(z^2 - 4)(z^2 - 1/4)
      {0, -1, 1, 4.25f, -4.25f, -1, 1, 0},       // z (z - 1)(z^2 - 4)(z^2 - 1/4)
      {0, 0.5f, 0.25f, -2.5f, -1.25f, 2, 1, 0},  // z (z + 2)(z^2 - 1)(z^2 - 1/4)
      {0, -0.5f, 0.25f, 2.5f, -1.25f, -2, 1, 0},
      {0, 2, 4, -2.5f, -5, 0.5f, 1, 0},  // z (z + 1/2)(z^2 - 1)(z^2 - 4)
      {0, -2, 4, 2.5f, -5, -0.5f, 1, 0},
      {0, -1, 0, 5.25f, 0, -5.25f, 0, 1},  // z (z^2 - 1)(z^2 - 4)(z^2 - 1/4)
  };
};

}  // namespace convscope::winograd
