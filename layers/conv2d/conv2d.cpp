// SPDX-License-Identifier: Apache-2.0
// conv2d.cpp: the convolution as a differentiable operation and as a layer.
#include "layers/conv2d/conv2d.h"

#include "framework/graph/apply.h"
#include "layers/conv2d/conv2d_op.h"

namespace convscope {
Conv2dProblem conv2d_problem(const Shape& x, const Shape& w, const Conv2dParams& params,
                             DType dtype, const char* operation) {
  CONVSCOPE_CHECK(x.rank() == 4, operation, "expected x of rank 4 [N,C,H,W], got ", x);
  CONVSCOPE_CHECK(w.rank() == 4, operation, "expected w of rank 4 [K,C/G,R,S], got ", w);
  CONVSCOPE_CHECK(params.groups >= 1, operation, "expected groups of at least 1, got ",
                  params.groups);
  CONVSCOPE_CHECK(x[1] == w[1] * params.groups, operation, "expected x with ", w[1] * params.groups,
                  " channels because w is ", w, " with groups ", params.groups, ", got x ", x);
  const Conv2dProblem problem{.n = x[0],
                              .c = x[1],
                              .h = x[2],
                              .w = x[3],
                              .k = w[0],
                              .r = w[2],
                              .s = w[3],
                              .stride_h = params.stride_h,
                              .stride_w = params.stride_w,
                              .pad_top = params.padding.top,
                              .pad_bottom = params.padding.bottom,
                              .pad_left = params.padding.left,
                              .pad_right = params.padding.right,
                              .dilation_h = params.dilation_h,
                              .dilation_w = params.dilation_w,
                              .groups = params.groups,
                              .dtype = dtype == DType::f32 ? factor_type(params.precision) : dtype,
                              .math = math_mode(params.precision)};
  problem.check();
  return problem;
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Conv2dPolicy& policy) {
  return conv2d(x, w, b, params, make_ref<Conv2dChoices>(policy));
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Ref<Conv2dChoices>& choices, const Ref<SparseWeights>& sparse) {
  return apply(std::make_unique<Conv2dOp>(params, b.defined(), choices, sparse), {x, w, b});
}

}  // namespace convscope
