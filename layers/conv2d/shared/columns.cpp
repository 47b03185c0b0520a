// SPDX-License-Identifier: Apache-2.0
// columns.cpp: columns of inputs: the dispatch of copying image rows into column panels, summing
// columns back into the image, and the product along pixels.
#include "layers/conv2d/shared/columns.h"

namespace convscope {

constinit IsaTable<ColumnKernels> column_kernels;

}  // namespace convscope
