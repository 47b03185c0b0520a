// SPDX-License-Identifier: Apache-2.0
// nchw16c_tiles.cpp: the dispatch of the register tiles in NCHW16c by instruction set.
#include "layers/conv2d/shared/nchw16c_tiles.h"

namespace convscope {

constinit IsaTable<Nchw16cKernels> nchw16c_kernels;

}  // namespace convscope
