// SPDX-License-Identifier: Apache-2.0
// sparse_implicit_gemm_cuda.cu: sparse convolution as one matrix product whose rows are gathered.
// Sites with neighbours at the same taps share a tile, and a tile visits only the taps it needs.
//
// Formula    y[i,k] = b[k] + sum over taps t, c of w[k,c,t] x[j(i,t),c]        (problem.h)
// Textbook   a matrix with a row of 27 C numbers for each site, most of them 0, multiplied by w as
//            [27 C, K]
// Method     forward, dx   a block sums 64 to 256 sites x 16..128 channels. A step takes 64
//                          elements of the K dimension: asynchronous copies load them, from the
//                          neighbours' rows and from w, into shared memory. Meanwhile the tensor
//                          cores multiply the previous step. The K dimension is (tap, channel) in
//                          pieces of 8 channels: with 16 channels a step has 4 taps
//            dw            rows are (tap, channel), the K dimension is the sites. A block skips
//                          units of 64 sites that have no neighbour at the taps of the block.
//                          Partial results are added in a fixed order
// Shapes     x [n,C], w [K,C,(T,)R,S], y [m,K]; f32 (three products of scaled fp16), TF32, f16,
//            bf16; sums f32
// Supports   every kernel, dilation and kind of map; sm_80 and newer
// Cost       a tile multiplies 64 sites with each tap that one of the sites has: 1.0 (full grid,
//            ink) to 2.5 times the useful products. Loads from L2 limit the time: rows, and the
//            weights of each tile
// Numerics   as conv2d's implicit_gemm: bound 32 eps of the sum over magnitudes. Same bits on each
//            run. A NaN or infinite weight makes all sites of its tile NaN, because missing
//            neighbours are multiplied as 0. In the same way, an infinite or NaN dy of a site makes
//            dw NaN for taps at which the site has no neighbour
// Choices    sites are sorted by the mask of their taps, because in the order of keys a tile would
//            visit more taps. A missing neighbour is zeros in shared memory and takes no load from
//            memory
// Source     see the paper in the registration; B. Graham et al. 2018, arXiv 1711.10275
// Read next  layers/sparse_conv/shared/cuda/tile_table.h, then tile_products.cuh
#include "layers/sparse_conv/shared/cuda/tile_run.h"

namespace convscope {
namespace {

using sparse_cuda::run_sums;
constexpr bool kSplit = false;

const SparseConvAlgorithm kAlgorithm{
    .name = "implicit_gemm",
    .device = DeviceType::cuda,
    .idea =
        "sites sorted by which neighbours they have; tiles visit the taps that one of their sites "
        "has",
    .paper =
        "Yan et al.: spconv 2, github.com/traveller59/spconv; Tang et al. 2023: TorchSparse++, "
        "arXiv 2311.12862",
    .supports = [](const SparseConvProblem& z,
                   Direction direction) { return sparse_cuda::tile_support(z, direction, kSplit); },
    .cost = [](const SparseConvProblem& z,
               Direction direction) { return sparse_cuda::tile_cost(z, direction, kSplit); },
    .workspace_bytes =
        [](const SparseConvProblem& z, Direction direction) {
          return sparse_cuda::tile_workspace_bytes(z, direction, kSplit);
        },
    .error_growth = 32,
    .exact_on_integers = true,
    .forward =
        [](const SparseConvForwardArgs& a) {
          run_sums({a.problem, Direction::forward, a.x, a.w, a.b, a.y, a.workspace}, kSplit);
        },
    .backward_data =
        [](const SparseConvBackwardDataArgs& a) {
          run_sums({a.problem, Direction::backward_data, a.dy, a.w, nullptr, a.dx, a.workspace},
                   kSplit);
        },
    .backward_weight =
        [](const SparseConvBackwardWeightArgs& a) { sparse_cuda::run_weights(a, kSplit); },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_SPARSE_CONV_ALGORITHM(convscope::kAlgorithm)
