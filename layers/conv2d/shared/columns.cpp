// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d/shared/columns.h"

namespace convscope {

constinit IsaTable<ColumnKernels> column_kernels;

}  // namespace convscope
