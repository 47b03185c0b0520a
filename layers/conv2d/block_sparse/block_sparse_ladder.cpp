// SPDX-License-Identifier: Apache-2.0
// block_sparse_ladder.cpp: the ladder from a plain loop over kept weights to register tiles.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "block_sparse",
    .device = DeviceType::cpu,
    .problem = "n=1,c=128,h=28,w=28,k=128,r=3,s=3,pad=1,weights=blocks16x1:922",
    .rungs =
        {
            {.algorithm = "block_sparse_lesson",
             .threads = 1,
             .sentence = "a list of the nonzero weights: the loop over weights is outermost and "
                         "skips nine in ten products of the dense loops"},
            {.algorithm = "block_sparse",
             .isa = "scalar",
             .threads = 1,
             .sentence = "the loop over pixels is outermost: 16 accumulators of a pixel stay in "
                         "registers while its loop reads the list"},
            {.algorithm = "block_sparse",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: the 16 weights of one (c,r,s) are two vectors, and six "
                         "pixels share each load of them"},
            {.algorithm = "block_sparse",
             .isa = "avx512",
             .threads = 1,
             .sentence = "the 16 weights are one vector, 28 pixels share each load of it, and the "
                         "next vector is loaded meanwhile"},
            {.algorithm = "block_sparse",
             .sentence = "all threads divide images, rows and output channels among them"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
