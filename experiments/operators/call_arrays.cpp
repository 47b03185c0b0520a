// SPDX-License-Identifier: Apache-2.0
// call_arrays.cpp: the arrays of one call of an operator, by name.
#include "experiments/operators/call_arrays.h"

#include "layers/conv2d/bias_gradient.h"
#include "layers/sparse_rows/row_sums.h"

namespace convscope {

Tensor bias_gradient(const Tensor& dy) {
  const DType type = dy.dtype() == DType::f64 ? DType::f64 : DType::f32;
  if (dy.rank() == 2) {
    const Tensor sums = Tensor::empty({dy.dim(1)}, DType::f64, dy.device());
    row_sums(dy.to(type), sums);
    return sums.to(Device{}).to(dy.dtype()).to(dy.device());
  }
  const Tensor db = Tensor::empty({dy.dim(1)}, type, dy.device());
  conv2d_bias_gradient_kernel.get(dy.device())(dy.to(type), db, /*accumulate=*/false);
  return db.to(dy.dtype());
}

}  // namespace convscope
