// SPDX-License-Identifier: Apache-2.0
// int8_ladder.cpp: the steps from one integer product at a time to four products in one
// instruction.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "int8",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1,dtype=u8,types=u8:i8:i32:u8,layout=nchw16c",
    .rungs =
        {
            {.algorithm = "int8_lesson",
             .threads = 1,
             .sentence = "the textbook: one product of integers after the other, and one rounding "
                         "for each y"},
            {.algorithm = "int8_direct",
             .isa = "scalar",
             .threads = 1,
             .sentence =
                 "a tile of 32-bit accumulators stays in registers over the whole K dimension"},
            {.algorithm = "int8_direct",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: 8 output channels; with VNNI one instruction adds four "
                         "products to each"},
            {.algorithm = "int8_direct",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, and 32 registers hold a larger tile"},
            {.algorithm = "int8_direct",
             .sentence = "all threads divide output channels, images and rows among them"},
        },
};

const Conv2dLadder kCuda{
    .name = "int8",
    .device = DeviceType::cuda,
    .problem = "n=64,c=64,h=28,w=28,k=64,r=3,s=3,pad=1,dtype=u8,types=u8:i8:i32:u8,layout=nchw16c",
    .rungs =
        {
            {.algorithm = "int8_lesson",
             .sentence = "one thread for each y: one product of integers after the other, each "
                         "with two loads through the caches"},
            {.algorithm = "int8_gemm",
             .sentence = "a block gathers tiles of bytes in shared memory while it multiplies the "
                         "previous tiles on the tensor cores"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
CONVSCOPE_CONV2D_LADDER(kCuda)
