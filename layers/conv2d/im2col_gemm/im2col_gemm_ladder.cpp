// SPDX-License-Identifier: Apache-2.0
// im2col_gemm_ladder.cpp: the steps from a whole matrix of columns to packed panels.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "im2col_gemm",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "im2col_gemm_lesson",
             .threads = 1,
             .sentence = "the whole matrix of columns of an image, and three loops that multiply"},
            {.algorithm = "im2col_gemm_eigen",
             .threads = 1,
             .sentence = "columns are made for a few pixels at a time and stay in L2; a library "
                         "(Eigen, 4 lanes) multiplies the matrices"},
            {.algorithm = "im2col_gemm",
             .isa = "avx2",
             .threads = 1,
             .sentence = "a custom product with 8 lanes: weights packed in tiles, columns in "
                         "panels, accumulators in registers"},
            {.algorithm = "im2col_gemm",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, and 32 registers hold a larger tile of accumulators"},
            {.algorithm = "im2col_gemm", .sentence = "all threads take panels of pixels"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
