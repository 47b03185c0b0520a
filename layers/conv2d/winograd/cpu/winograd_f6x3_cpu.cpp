// SPDX-License-Identifier: Apache-2.0
// winograd_f6x3_cpu.cpp: 3x3 convolution by Winograd's F(6x6,3x3): 36 outputs of a channel pair
// from 64 multiplications instead of 324.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 6x6
//            outputs from the 8x8 inputs around them
// Textbook   for each tile, k:  m[8,8] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     as in winograd_f4x3_cpu.cpp, with 64 points instead of 36
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major or x and y in NCHW16c (groups
//            of a multiple of 16 channels), any alignment; V [64, C/L, tiles, L], U [64, K/2L, C,
//            2L], M [64, K/L, tiles, L], L lanes, 64-byte aligned
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding; groups of at
//            least 4 kernels' planes (C/G K/G >= 4)
// Cost       FLOPs = 2 * 64 tiles K C/G; bytes = the three tensors once; workspace = U or V, and V
//            or U + M for each thread; compute-bound
// Numerics   in one dimension a rounding error may grow by ||A^T|| ||G|| ||B^T|| = 67 * 1.2 * 15
//            (largest row sums; A contains the fifth power of the point 2), in two dimensions by
//            the square of that. The largest measured errors, in units of the tests' bound: 51 with
//            one channel, 38 over 120 random problems, 15 with 64 channels, 6 to 10 times those of
//            winograd_f4x3. So error_growth is 128. On any data an error grows by at most 41.6^2 =
//            1730 (see winograd_f4x3_cpu.cpp); 24 eps were measured on equal values. Same bits on
//            each run and for any number of threads. A NaN spreads over its tile.
//            auto does not choose this algorithm: 64/36 products for an output, compared with
//            36/16, are 21 % less at best. Outputs beyond the image (60 rows for 56) and the larger
//            transforms reduce this gain. Only 64 channels on 224x224 gained more than 5 % (8 to 10
//            %).
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    winograd_plan.h
// Source     A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015, arXiv
//            1509.09308; B. Barabasz et al. 2018, arXiv 1803.10986, on the error of larger tiles
// Read next  winograd_f4x3_cpu.cpp, smaller tiles; winograd_matrices.h, the points
#include "layers/conv2d/winograd/cpu/winograd.h"

namespace convscope {
namespace {

constexpr int kTile = 6;

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f6x3",
    .device = DeviceType::cpu,
    .idea = "6x6 outputs from 64 multiplications instead of 324, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = winograd::supports,
    .cost = winograd::cost<kTile>,
    .workspace_bytes = winograd::workspace_bytes<kTile>,
    .prepared_bytes = winograd::prepared_bytes<kTile>,
    .prepare_weights = winograd::prepare_weights<kTile>,
    .prepares_for_one_call = winograd::prepares_for_one_call<kTile>,
    .error_growth = 128,
    .exact_on_integers = false,
    .auto_ok = false,  // at most a tenth faster than winograd_f4x3, with 6 to 10 times its error
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = winograd::forward<kTile>,
    .backward_data = winograd::backward_data<kTile>,
    .backward_weight = winograd::backward_weight<kTile>,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
