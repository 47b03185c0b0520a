// SPDX-License-Identifier: Apache-2.0
// winograd_f2x3_cpu.cpp: 3x3 convolution by Winograd's F(2x2,3x3): 4 outputs of a channel pair from
// 16 multiplications instead of 36. It is the small version of winograd_f4x3, easy to read and to
// check by hand.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 2x2
//            outputs from the 4x4 inputs around them, 0 outside the image. In one dimension,
//            in full:
//              m1 = (d0 - d2) g0                     y0 = m1 + m2 + m3
//              m2 = (d1 + d2) (g0 + g1 + g2) / 2     y1 = m2 - m3 + m4
//              m3 = (d2 - d1) (g0 - g1 + g2) / 2     4 multiplications, where
//              m4 = (d3 - d1) g2                     y0 = d0 g0 + d1 g1 + d2 g2,
//                                                    y1 = d1 g0 + d2 g1 + d3 g2 take 6
// Textbook   for each tile, k:  m[4,4] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     as winograd_f4x3_cpu.cpp, with 16 points instead of 36
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major or x and y in NCHW16c (groups
//            of a multiple of 16 channels), any alignment; V [16, C/L, tiles, L], U [16, K/2L, C,
//            2L], M [16, K/L, tiles, L], L lanes, 64-byte aligned
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding; groups of at
//            least 4 kernels' planes (C/G K/G >= 4)
// Cost       FLOPs = 2 * 16 tiles K C/G, plus the transforms; bytes = the three tensors once;
//            workspace = U or V, and V or U + M for each thread; compute-bound
// Numerics   sums and differences of 2 or 3 values, and constants 1/2. In one dimension an error
//            grows by at most ||A^T|| ||G|| ||B^T|| = 3 * 1.5 * 2; measured errors are near those
//            of the direct sum. The bound of chains, 8 (framework/simd/sum_chain.h), is doubled,
//            because 7.9 was measured where roundings have random signs. On any data an error may
//            grow by 25 (see winograd_f4x3_cpu.cpp); 15 eps were measured on equal values. Same
//            bits on each run and for any number of threads. Results are exact on integers while
//            all sums of quarters are, but the algorithm does not promise exact integers.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    as in winograd_plan.h
// Source     A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv
//            1509.09308, section 4.1
// Read next  direct_cpu.cpp, the same sums one by one; winograd_f4x3_cpu.cpp, the larger tile
#include "layers/conv2d/winograd/cpu/winograd.h"

namespace convscope {
namespace {

constexpr int kTile = 2;

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f2x3",
    .device = DeviceType::cpu,
    .idea = "2x2 outputs from 16 multiplications instead of 36, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = winograd::supports,
    .cost = winograd::cost<kTile>,
    .workspace_bytes = winograd::workspace_bytes<kTile>,
    .prepared_bytes = winograd::prepared_bytes<kTile>,
    .prepare_weights = winograd::prepare_weights<kTile>,
    .prepares_for_one_call = winograd::prepares_for_one_call<kTile>,
    .error_growth = 16,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = winograd::forward<kTile>,
    .backward_data = winograd::backward_data<kTile>,
    .backward_weight = winograd::backward_weight<kTile>,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
