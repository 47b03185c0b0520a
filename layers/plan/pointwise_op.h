// SPDX-License-Identifier: Apache-2.0
// pointwise_op.h: an elementwise operation with at most one learned scalar, such as a fake
// quantiser. A chain may run the operation on parts of its value (pieces), in any layout, while
// these are in cache (conv2d/fusions/conv2d_chain.h).
#pragma once

#include <functional>

#include "framework/graph/simple_operation.h"

namespace convscope {

class CONVSCOPE_API PointwiseOp : public SimpleOperation {
 public:
  using SimpleOperation::SimpleOperation;

  // A chain takes the calls of one piece instead of those that forward() and backward() would emit.
  // The functions of both structs run on the host while the step runs.
  struct ForwardPieces {
    std::function<void()> begin;  // once in each step, before the first piece
    // y = f(v); y may be v.
    std::function<void(const float* v, float* y, std::int64_t count)> run;
  };
  virtual ForwardPieces forward_pieces(Emitter& emitter) = 0;

  struct BackwardPieces {
    // Assigns dv, if it is not null. dv and dy are different arrays. Returns the contribution of
    // this piece to the gradient of the learned scalar.
    std::function<double(const float* dy, const float* v, float* dv, std::int64_t count)> run;
    std::function<void(double sum)> end;  // with the sum over all pieces
  };
  virtual BackwardPieces backward_pieces(Emitter& emitter) = 0;
};

}  // namespace convscope
