// SPDX-License-Identifier: Apache-2.0
// implicit_gemm_ladder.cpp: the steps from a tile of 16 x 16 to tensor cores, and how a CPU uses
// the tiles.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "implicit_gemm",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "implicit_gemm_lesson",
             .threads = 1,
             .sentence = "the GPU's loops over tiles of 16 x 16, one GPU thread after the other: "
                         "made to be watched, not to be fast"},
            {.algorithm = "im2col_gemm",
             .threads = 1,
             .sentence = "the tiles that suit a CPU: columns packed in panels for its vectors, "
                         "accumulators in registers"},
        },
};

const Conv2dLadder kCuda{
    .name = "implicit_gemm",
    .device = DeviceType::cuda,
    .problem = "n=32,c=128,h=28,w=28,k=128,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "implicit_gemm_lesson",
             .sentence = "tiles of 16 x 16 gathered into shared memory: each number is used 16 "
                         "times, and each thread has one accumulator"},
            {.algorithm = "im2col_gemm",
             .sentence = "the matrix of columns is stored, so that a library (cuBLAS) can multiply "
                         "it with tiles of accumulators in registers"},
            {.algorithm = "implicit_gemm",
             .sentence = "no stored matrix: asynchronous copies gather the next tiles, and tensor "
                         "cores compute three fp16 products for each f32 product"},
            {.algorithm = "implicit_gemm",
             .math = MathMode::tf32,
             .sentence = "tf32: operands rounded to 10 bits of mantissa, one product on the tensor "
                         "cores instead of three"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
CONVSCOPE_CONV2D_LADDER(kCuda)
