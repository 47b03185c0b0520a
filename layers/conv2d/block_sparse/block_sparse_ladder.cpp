// SPDX-License-Identifier: Apache-2.0
// block_sparse_ladder.cpp: the steps from a list of weights to register tiles that read it.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "block_sparse",
    .device = DeviceType::cpu,
    .problem = "n=1,c=128,h=28,w=28,k=128,r=3,s=3,pad=1,weights=blocks16x1:922",
    .rungs =
        {
            {.card = "block_sparse_lesson",
             .threads = 1,
             .sentence = "a list of the weights: for each of them all pixels; nine in ten products "
                         "of the dense loops are not made"},
            {.card = "block_sparse",
             .isa = "scalar",
             .threads = 1,
             .sentence = "the loops change places: the sums of a pixel stay in registers and walk "
                         "along the list of 16 output channels"},
            {.card = "block_sparse",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: 16 weights that share one (c,r,s) are two vectors, and six "
                         "pixels share their load"},
            {.card = "block_sparse",
             .isa = "avx512",
             .threads = 1,
             .sentence = "they are one vector, and 28 pixels share its load; the next one is "
                         "loaded meanwhile"},
            {.card = "block_sparse",
             .sentence = "all threads share out images, rows and output channels"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
