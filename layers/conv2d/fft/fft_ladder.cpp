// SPDX-License-Identifier: Apache-2.0
// fft_ladder.cpp: the ladder from transforms of whole images to small tiles with channels in the
// lanes.
#include "layers/conv2d/ladder.h"

namespace convscope {
namespace {

const Conv2dLadder kCpu{
    .name = "fft",
    .device = DeviceType::cpu,
    .problem = "n=1,c=32,h=28,w=28,k=32,r=7,s=7,pad=3",
    .rungs =
        {
            {.algorithm = "fft_lesson",
             .threads = 1,
             .sentence = "whole images: one complex product for each frequency; the spectra of all "
                         "kernels are stored"},
            {.algorithm = "fft",
             .isa = "scalar",
             .threads = 1,
             .sentence = "tiles instead of whole images, transforms of two real rows at a time, "
                         "and a register tile with three real products for a complex one"},
            {.algorithm = "fft",
             .isa = "avx2",
             .threads = 1,
             .sentence = "vector lanes: 8 channels go through a transform at once"},
            {.algorithm = "fft",
             .isa = "avx512",
             .threads = 1,
             .sentence = "16 lanes, and 32 registers hold a larger tile of products"},
            {.algorithm = "fft", .sentence = "all threads take tiles, then pairs of frequencies"},
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_LADDER(kCpu)
