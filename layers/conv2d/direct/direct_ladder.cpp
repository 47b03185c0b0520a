// SPDX-License-Identifier: Apache-2.0
// direct_ladder.cpp: the ladder from the textbook's loops to register tiles.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "direct",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "direct_lesson",
             .threads = 1,
             .sentence =
                 "the textbook: each product loads two numbers and adds to a third in memory"},
            {.algorithm = "direct",
             .isa = "scalar",
             .threads = 1,
             .sentence = "a tile of accumulators stays in registers over all (c,r,s), and rows "
                         "padded with zeros need no test for the border"},
            {.algorithm = "direct",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: one instruction multiplies and adds in 8 accumulators"},
            {.algorithm = "direct",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, and 32 registers hold a larger tile, so that each load feeds "
                         "more products"},
            {.algorithm = "direct",
             .sentence = "all threads divide images, rows and output channels among them"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
