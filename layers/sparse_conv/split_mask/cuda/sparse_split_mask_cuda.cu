// SPDX-License-Identifier: Apache-2.0
// sparse_split_mask_cuda.cu: implicit_gemm with the taps cut into two parts. Each part has a
// separate order of the sites, sorted by 13 or 14 taps instead of 27. So more sites of a tile have
// the same taps, and fewer products are wasted where sites have few neighbours (lidar).
//
// Method     the first half of the taps leaves f32 results in the workspace, the second half adds
//            these results and writes y; dw has one product for each half
// Shapes, supports, numerics   as implicit_gemm
// Cost       for each site 8 K bytes more than implicit_gemm, and a map of 44 bytes instead of 36
// Choices    `auto` never takes this algorithm. On an H100 y and dx took 1.03 to 1.7 times as long
//            as by implicit_gemm, and dw 0.96 to 2.0 times, in all 76 cases (19 clouds: shells,
//            rooms, lidar, ink, random; f32 and f16). split_mask saves products, but gathered rows
//            limit the time, and their number does not change
// Read next  implicit_gemm/cuda/sparse_implicit_gemm_cuda.cu, which explains the rest
#include "layers/sparse_conv/shared/cuda/tile_run.h"

namespace convscope {
namespace {

using sparse_cuda::run_sums;
constexpr bool kSplit = true;

const SparseConvAlgorithm kAlgorithm{
    .name = "split_mask",
    .device = DeviceType::cuda,
    .idea = "as implicit_gemm, with the taps in two halves, each with its own row order",
    .paper = "Yan et al.: spconv 2, github.com/traveller59/spconv (split mask)",
    .supports = [](const SparseConvProblem& z, Direction direction) -> Support {
      if (z.taps() < 2) return Support::no("expects a kernel of at least two taps, got one");
      return sparse_cuda::tile_support(z, direction, kSplit);
    },
    .cost = [](const SparseConvProblem& z,
               Direction direction) { return sparse_cuda::tile_cost(z, direction, kSplit); },
    .workspace_bytes =
        [](const SparseConvProblem& z, Direction direction) {
          return sparse_cuda::tile_workspace_bytes(z, direction, kSplit);
        },
    .error_growth = 32,
    .exact_on_integers = true,
    .auto_ok = false,  // see Choices
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
