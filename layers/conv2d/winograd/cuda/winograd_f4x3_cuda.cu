// SPDX-License-Identifier: Apache-2.0
// winograd_f4x3_cuda.cu: 3x3 convolution by Winograd's F(4x4,3x3): 16 outputs of a channel pair
// from 36 multiplications instead of 144, through transforms of inputs, kernels and outputs.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 4x4
//            outputs from the 6x6 inputs around them, 0 outside the image; winograd_matrices.h
//            defines A, B, G
// Textbook   for each tile, k:  m[6,6] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     The sum over c at each of the 36 points is a separate matrix product, [K, C] times [C,
//            tiles]: one batched call of cuBLAS computes all points and groups. Before this call,
//            one kernel makes V = B^T x B; after it, another makes y from M (winograd_passes.cuh).
//            U = G w G^T is made before the call of the algorithm (prepare_weights).
//            A thread transforms one tile of one channel in registers. The 32 tiles of a warp are
//            neighbours, so loads share cache lines, and V and M are read and written in whole
//            lines.
//            backward_weight: dy is transformed like x. For each point there is a product over the
//            tiles, with some slots of tiles at once. Then one kernel adds the slots and makes dw.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major, any alignment; V [36, C,
//            tiles], U [36, K, C/G], M [36, K, tiles]
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding and number of groups. A problem
//            in tf32 is computed in f32, because the transforms would lose the digits of tf32
// Cost       FLOPs = 2 * 36 tiles K C/G, a quarter of the textbook's; bytes = V and M written and
//            read, 2.25 times the bytes of x and y each way; workspace = V and M of one chunk of
//            tiles. Compute-bound from about 128 channels on; with fewer channels V and M take as
//            long
// Numerics   each transform adds and subtracts terms larger than their result: in one dimension a
//            rounding error may grow by ||A^T|| ||G|| ||B^T|| = 7.4 * 1.5 * 5.1 (largest row sums),
//            in two dimensions by the square of that. Errors of random sign stay far below that:
//            the relative L2 error is about twice that of direct sums, below 2e-6 (tests). Same
//            bits on each run on one GPU. Not exact on integers, because sqrt(2) is irrational. A
//            NaN spreads over its tile.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    kChunkBytes 400 MiB: size of V and M of a chunk. Smaller chunks would fit the L2
//            cache, but cost more in launches and partly filled waves than they save
//            kMaxSum 256 channels, slots of 128 to 512 tiles: sums in parts keep rounding errors
//            small, and the copies of the sums are a quarter of V
// Source     S. Winograd: Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray: Fast
//            Algorithms for Convolutional Neural Networks, 2015, arXiv 1509.09308; points: S. A.
//            Alam et al. 2022, arXiv 2201.10369, and ncnn
// Read next  winograd_transforms.cuh; winograd_f2x3_cuda.cu, with the small matrices
#include "layers/conv2d/winograd/cuda/winograd_passes.cuh"

namespace convscope {
namespace {

constexpr int kTile = 4;

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f4x3",
    .device = DeviceType::cuda,
    .idea = "4x4 outputs from 36 multiplications instead of 144, between transforms",
    .paper =
        "Lavin, Gray 2015: Fast Algorithms for Convolutional Neural Networks, arXiv 1509.09308",
    .supports = winograd::supports_3x3,
    .cost = winograd::cost_of<kTile>,
    .workspace_bytes = winograd::bytes_of<kTile>,
    .prepared_bytes = winograd::prepared_bytes_of<kTile>,
    .prepare_weights = winograd::prepare_weights<kTile>,
    .error_growth = 16,
    .one_chain = true,
    .exact_on_integers = false,
    .fuses_epilogue = true,
    .forward = winograd::forward<kTile>,
    .backward_data = winograd::backward_data<kTile>,
    .backward_weight = winograd::backward_weight<kTile>,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
