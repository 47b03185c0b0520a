// SPDX-License-Identifier: Apache-2.0
// gemm_1x1_ladder.cpp: the ladder from three plain loops to a matrix product with packed tiles.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "gemm_1x1",
    .device = DeviceType::cpu,
    .problem = "n=1,c=128,h=28,w=28,k=128",
    .rungs =
        {
            {.algorithm = "gemm_1x1_lesson",
             .threads = 1,
             .sentence =
                 "the image in memory already is the matrix: three loops, one output at a time"},
            {.algorithm = "gemm_1x1",
             .isa = "scalar",
             .threads = 1,
             .sentence = "a tile of accumulators stays in registers over all channels, and the "
                         "weights are packed in the order of reading"},
            {.algorithm = "gemm_1x1",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: one instruction multiplies and adds for 8 pixels"},
            {.algorithm = "gemm_1x1",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, and 32 registers hold a larger tile"},
            {.algorithm = "gemm_1x1", .sentence = "all threads take panels of pixels"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
