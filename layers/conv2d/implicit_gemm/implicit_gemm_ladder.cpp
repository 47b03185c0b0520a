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
            {.card = "implicit_gemm_lesson",
             .threads = 1,
             .sentence = "what a GPU does with tiles of 16 x 16, one thread of it after the other: "
                         "to be watched, not to be fast"},
            {.card = "im2col_gemm",
             .threads = 1,
             .sentence = "the tiles as a CPU wants them: columns packed in panels for its vectors, "
                         "sums in registers"},
        },
};

const Conv2dLadder kCuda{
    .name = "implicit_gemm",
    .device = DeviceType::cuda,
    .problem = "n=32,c=128,h=28,w=28,k=128,r=3,s=3,pad=1",
    .rungs =
        {
            {.card = "implicit_gemm_lesson",
             .sentence = "tiles of 16 x 16 gathered into shared memory, each number used 16 times, "
                         "one sum for each thread"},
            {.card = "im2col_gemm",
             .sentence = "the matrix of columns is stored after all, so that a library (cuBLAS) "
                         "can multiply with tiles of sums in registers"},
            {.card = "implicit_gemm",
             .sentence = "no stored matrix again: tiles are gathered by copies that run ahead, and "
                         "the tensor cores multiply three pairs of halves for each product"},
            {.card = "implicit_gemm",
             .math = MathMode::tf32,
             .sentence = "tf32: factors rounded to 10 bits of mantissa, one product of halves in "
                         "place of three"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
CONVSCOPE_CONV2D_LADDER(kCuda)
