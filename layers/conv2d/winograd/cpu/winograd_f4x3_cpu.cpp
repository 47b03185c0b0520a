// SPDX-License-Identifier: Apache-2.0
// winograd_f4x3_cpu.cpp: 3x3 convolution by Winograd's F(4x4,3x3): 16 outputs of a channel pair
// from 36 multiplications instead of 144, through transforms of inputs, kernels and outputs.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 4x4
//            outputs from the 6x6 inputs around them, 0 outside the image; winograd_matrices.h
//            defines A, B, G
// Textbook   for each tile, k:  m[6,6] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     The sum over c at each of the 36 points is a separate matrix product: [tiles, C] times
//            [C, K]. U = G w G^T is made before the call (prepare_weights). The call works on one
//            block of tiles at a time. It moves 16 channels of 6 rows into the lanes (panel, L1)
//            and transforms them to V (L2). 36 products of register tiles with U make M (L2). M is
//            transformed and moved back to rows of y. No intermediate has the size of a tensor.
//            In layout NCHW16c (layers/dispatch/activation_layout.h) nothing is moved: the
//            transforms read x in place and store finished pixels of y (PixelView). U, the products
//            and all bits are the same.
//            With U above 4 MiB, the call first makes V of up to 4 MiB, then computes 32 output
//            channels at a time. With more than 16 tiles, or when w is used for one call only, each
//            32 channels of U are made in the call, used for all tiles of V and discarded: they are
//            never written to memory.
//            backward_weight: x and dy are transformed for a block of tiles. Each point is a
//            product [C, tiles] [tiles, K], summed over the blocks and transformed back at the end.
//            With few tiles and many weights, all tiles are transformed at once, and some output
//            channels are computed at a time.
//            Threads take blocks of tiles, or panels of output channels, or in backward_weight
//            (point, output channels). The cuts depend on the problem only.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major or x and y in NCHW16c (groups
//            of a multiple of 16 channels), any alignment; V [36, C/L, tiles, L], U [36, K/2L, C,
//            2L], M [36, K/L, tiles, L], L lanes, 64-byte aligned
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding; groups of at
//            least 4 kernels' planes (C/G K/G >= 4)
// Cost       FLOPs = 2 * 36 tiles K C/G, plus about 400 cycles for each tile and 16 channels of x,
//            340 of y, a third less in NCHW16c; bytes = the three tensors once; workspace = U or V,
//            and V or U + M for each thread; compute-bound
// Numerics   each transform adds and subtracts terms larger than their result. In one dimension a
//            rounding error may grow by ||A^T|| ||G|| ||B^T|| = 7.4 * 1.5 * 5.1 (largest row sums),
//            in two dimensions by the square of that. Errors of random sign stay far below this
//            worst case: the largest error over 2,000 random problems is 5.9 (f2x3: 1.2) in units
//            of the tests' bound, so error_growth is 16. On any data an error grows by at most
//            14.6^2 = 214: the sum over j of the largest |A||G||B| of all pairs of a pixel and a
//            tap that are j apart. No pixel reaches the maximum in all pairs: on equal values 62
//            eps were measured, where worst_growth() allows 184. This growth is relative to the
//            largest of x times the sum over |w|, because products that belong to no output cancel
//            in A^T. Same bits on each run and for any number of threads. Not exact on integers,
//            because sqrt(2) is irrational. A NaN spreads over its tile.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    winograd_plan.h: V + M of a block are 640 KB of L2; at least 28 tiles = 2 register
//            tiles
// Source     S. Winograd: Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray: Fast
//            Algorithms for Convolutional Neural Networks, 2015, arXiv 1509.09308; points: S. A.
//            Alam et al. 2022, arXiv 2201.10369, and ncnn
// Read next  winograd_matrices.h, which derives the matrices; winograd_f2x3_cpu.cpp, the same with
//            small matrices; winograd.cpp, the passes; winograd_simd.cpp, the transforms
#include "layers/conv2d/winograd/cpu/winograd.h"

namespace convscope {
namespace {

constexpr int kTile = 4;

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f4x3",
    .device = DeviceType::cpu,
    .idea = "4x4 outputs from 36 multiplications instead of 144, between transforms",
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
