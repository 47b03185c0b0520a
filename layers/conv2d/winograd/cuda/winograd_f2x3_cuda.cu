// SPDX-License-Identifier: Apache-2.0
// winograd_f2x3_cuda.cu: 3x3 convolution by Winograd's F(2x2,3x3): 4 outputs of a channel pair from
// 16 multiplications instead of 36, through transforms of inputs, kernels and outputs.
//
// Formula    y[k] = A^T [ sum over c of (G w[k,c] G^T) . (B^T x[c] B) ] A, tile by tile: 2x2
//            outputs from the 4x4 inputs around them, 0 outside the image; winograd_matrices.h
//            defines A, B, G
// Textbook   for each tile, k:  m[4,4] = 0
//              for each c:      m += (G * w[k,c] * G^T) . (B^T * x_tile[c] * B)   # elementwise
//              y_tile[k] = A^T * m * A + b[k]
// Method     The sum over c at each of the 16 points is a separate matrix product, [K, C] times [C,
//            tiles]: one batched call of cuBLAS computes all points and groups. Before this call,
//            one kernel makes U = G w G^T and another makes V = B^T x B; after it, a kernel makes y
//            from M (winograd_passes.cuh).
//            A thread transforms one tile of one channel in registers. The 32 tiles of a warp are
//            neighbours, so loads share cache lines, and V and M are read and written in whole
//            lines.
//            backward_weight: dy is transformed like x. For each point there is a product over the
//            tiles, with some slots of tiles at once. Then one kernel adds the slots and makes dw.
// Shapes     x [N,C,H,W], w [K,C/G,3,3], y [N,K,P,Q], f32 row-major, any alignment; V [16, C,
//            tiles], U [16, K, C/G], M [16, K, tiles]
// Supports   f32; kernel 3x3, stride 1, dilation 1; every padding and number of groups. A problem
//            in tf32 is computed in f32, because the transforms would lose the digits of tf32
// Cost       FLOPs = 2 * 16 tiles K C/G, 4/9 of the textbook's; bytes = V and M written and read, 4
//            times the bytes of x and y each way; workspace = U, V and M of one chunk of tiles.
//            Compute-bound from about 256 channels on; with fewer channels V and M take longer
// Numerics   sums and differences of 2 or 3 numbers and constants 1/2: ||A^T|| ||G|| ||B^T|| = 3 *
//            1.5 * 2 in one dimension (largest row sums), its square in two; errors of random sign
//            stay near those of direct sums. Same bits on each run on one GPU. Not exact on
//            integers in general: 1/4 of large sums may round. A NaN spreads over its tile.
// Backward   dx = the same with dy, padding 2 - pad and w flipped and transposed, assigned;
//            dw = G^T [sum over tiles of (A dy A^T) . (B^T x B)] G, assigned or added to
// Choices    kChunkBytes 400 MiB: size of V and M of a chunk. Smaller chunks would fit the L2
//            cache, but cost more in launches and partly filled waves than they save
//            kMaxSum 256 channels, slots of 128 to 512 tiles: sums in parts keep rounding errors
//            small, and the copies of the sums are a quarter of V
// Source     S. Winograd: Arithmetic Complexity of Computations, 1980; A. Lavin, S. Gray: Fast
//            Algorithms for Convolutional Neural Networks, 2015, arXiv 1509.09308
// Read next  winograd_transforms.cuh; winograd_f4x3_cuda.cu, with larger tiles
#include "layers/conv2d/winograd/cuda/winograd_passes.cuh"

namespace convscope {
namespace {

constexpr int kTile = 2;

const Conv2dAlgorithm kAlgorithm{
    .name = "winograd_f2x3",
    .device = DeviceType::cuda,
    .idea = "2x2 outputs from 16 multiplications instead of 36, between transforms",
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
