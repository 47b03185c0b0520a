// SPDX-License-Identifier: Apache-2.0
// pointwise_op.h: an elementwise operation with at most one learned scalar, such as a fake
// quantiser. A chain may run the operation on parts of its value (pieces), in any layout, while
// these are in cache (conv2d/conv2d_chain.h).
#pragma once

#include <functional>

#include "framework/graph/emitter.h"

namespace convscope {

class CONVSCOPE_API PointwiseOp : public PlanOp {
 public:
  // Returns false if the operation must run on its whole value.
  virtual bool runs_on_pieces() const = 0;

  // A chain takes Forward and Backward instead of the calls that forward() and backward() would
  // emit. The functions of both structs run on the host while the step runs.
  struct Forward {
    std::function<void()> begin;  // once in each step, before the first piece
    // y = f(v); y may be v.
    std::function<void(const float* v, float* y, std::int64_t count)> run;
  };
  virtual Forward forward_pieces(Emitter& builder) = 0;

  struct Backward {
    // Assigns dv, if it is not null. dv and dy are different arrays. Returns the contribution of
    // this piece to the gradient of the learned scalar.
    std::function<double(const float* dy, const float* v, float* dv, std::int64_t count)> run;
    std::function<void(double sum)> end;  // with the sum over all pieces
  };
  virtual Backward backward_pieces(Emitter& builder) = 0;
};

}  // namespace convscope
