// SPDX-License-Identifier: Apache-2.0
// stem.h: forward of a network's first layer: x as users pass it, [N,C,H,W] with few channels, and
// y in NCHW16c. direct_nchw16c_cpu.cpp calls these functions where layout=nchw:nchw16c.
//
// Method     Threads take (image, group, lines of y). The rows of x for those lines are copied
//            once, with zeros around them; with 3 channels the copy is small. So tiles need no
//            border cases. Each product of a tile's sum has an offset in the copy, and these
//            offsets are the same for all tiles. So one list of C R S offsets, in the order of (r,
//            s, c), serves the whole layer.
// Floor      2 K C R S P Q FLOPs for an image. y is written once. A 3x3 kernel on 3 channels has
//            only 27 FMAs for each float of y, so memory matters: at 160 GFLOP/s the FMAs take 0.34
//            ns a float, and at 15 GB/s storing 4 bytes takes 0.27 ns.
// Read next  stem_tiles_simd.cpp, the tiles; stem.cpp
#pragma once

#include "layers/conv2d/algorithm.h"

namespace convscope::direct_nchw16c {

inline bool is_stem(const Conv2dProblem& problem, Direction direction) {
  return direction == Direction::forward && problem.layout == kNchwToNchw16c;
}
std::size_t stem_workspace_bytes(const Conv2dProblem& problem);
std::size_t stem_prepared_bytes(const Conv2dProblem& problem);
void stem_prepare_weights(const Conv2dPrepareArgs& args);
void stem_forward(const Conv2dForwardArgs& args);

}  // namespace convscope::direct_nchw16c
