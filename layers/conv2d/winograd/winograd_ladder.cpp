// SPDX-License-Identifier: Apache-2.0
// winograd_ladder.cpp: the steps from one tile at a time to batches of points.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "winograd",
    .device = DeviceType::cpu,
    .problem = "n=1,c=64,h=28,w=28,k=64,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "winograd_lesson",
             .threads = 1,
             .sentence = "one tile of 2x2 outputs after the other: 16 products for each pair of "
                         "channels instead of 36"},
            {.algorithm = "winograd_f2x3",
             .isa = "scalar",
             .threads = 1,
             .prepare_each_call = true,
             .sentence = "all tiles are transformed first; then each of the 16 points is a "
                         "separate matrix product with accumulators in registers"},
            {.algorithm = "winograd_f2x3",
             .isa = "avx2",
             .threads = 1,
             .prepare_each_call = true,
             .sentence = "vector lanes: 8 channels go through a transform and a product at once"},
            {.algorithm = "winograd_f2x3",
             .isa = "avx512",
             .threads = 1,
             .prepare_each_call = true,
             .sentence = "16 lanes, and 32 registers hold a larger tile of products"},
            {.algorithm = "winograd_f4x3",
             .isa = "avx512",
             .threads = 1,
             .prepare_each_call = true,
             .sentence = "larger tiles: 16 outputs from 36 products, 4 times fewer than the "
                         "textbook; F(2x2,3x3) needs 2.25 times fewer"},
            {.algorithm = "winograd_f4x3",
             .isa = "avx512",
             .threads = 1,
             .sentence = "weights transformed once, before the call, as in inference"},
            {.algorithm = "winograd_f6x3",
             .isa = "avx512",
             .threads = 1,
             .sentence = "36 outputs from 64 products, 5.06 times fewer than the textbook; the "
                         "transforms cost more and lose more digits"},
            {.algorithm = "winograd_f4x3", .sentence = "all threads take strips of tiles"},
        },
};

const Conv2dLadder kCuda{
    .name = "winograd",
    .device = DeviceType::cuda,
    .problem = "n=32,c=128,h=28,w=28,k=128,r=3,s=3,pad=1",
    .rungs =
        {
            {.algorithm = "winograd_lesson",
             .sentence = "one thread computes one tile of one output channel from start to end, so "
                         "each input tile is transformed K times"},
            {.algorithm = "winograd_f2x3",
             .sentence = "each tile and each kernel is transformed once, and cuBLAS computes one "
                         "matrix product for each of the 16 points"},
            {.algorithm = "winograd_f4x3",
             .sentence = "larger tiles: 16 outputs from 36 products, and less memory for the "
                         "transformed tiles of each output"},
            {.algorithm = "winograd_f4x3_fp16x3",
             .sentence = "tensor cores compute three fp16 products for each f32 product, and TMA "
                         "loads their operands"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
CONVSCOPE_CONV2D_LADDER(kCuda)
