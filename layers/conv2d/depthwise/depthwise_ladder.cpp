// SPDX-License-Identifier: Apache-2.0
// depthwise_ladder.cpp: the ladder from one output at a time to rows in registers.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "depthwise",
    .device = DeviceType::cpu,
    .problem = "n=1,c=128,h=56,w=56,k=128,r=3,s=3,pad=1,groups=128",
    .rungs =
        {
            {.algorithm = "depthwise_lesson",
             .threads = 1,
             .sentence = "one output after the other, with a test of the border for each product"},
            {.algorithm = "depthwise",
             .isa = "scalar",
             .threads = 1,
             .sentence = "several rows of y at once: each element of x is loaded once for each "
                         "column of the kernel, and the border needs no test"},
            {.algorithm = "depthwise",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes along a row: 8 outputs at once"},
            {.algorithm = "depthwise",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, 32 registers for 7 rows of accumulators, and a row is shifted "
                         "in registers"},
            {.algorithm = "depthwise", .sentence = "all threads take planes"},
        },
};

const Conv2dLadder kCuda{
    .name = "depthwise",
    .device = DeviceType::cuda,
    .problem = "n=64,c=128,h=56,w=56,k=128,r=3,s=3,pad=1,groups=128",
    .rungs =
        {
            {.algorithm = "depthwise_lesson",
             .sentence = "a block loads its part of a plane into shared memory once, and each "
                         "thread sums one output"},
            {.algorithm = "depthwise",
             .sentence = "a thread keeps several accumulators in registers and reuses each load "
                         "from shared memory; asynchronous copies load the next tile"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
CONVSCOPE_CONV2D_LADDER(kCuda)
