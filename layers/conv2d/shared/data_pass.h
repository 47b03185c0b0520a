// SPDX-License-Identifier: Apache-2.0
// data_pass.h: the tensors that forward and backward_data read and write, under common names. Both
// directions multiply an image by weights, so the same code computes either of them.
//
//   forward         in = x  [N,C,H,W], out = y  [N,K,P,Q], with a bias and an epilogue
//   backward_data   in = dy [N,K,P,Q], out = dx [N,C,H,W]
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.h"

namespace convscope {

// Operands of a pass in f32.
struct DataPass {
  explicit DataPass(const Conv2dForwardArgs& args)
      : in(static_cast<const float*>(args.x)),
        w(static_cast<const float*>(args.w)),
        prepared(static_cast<const float*>(args.prepared)),
        b(static_cast<const float*>(args.b)),
        out(static_cast<float*>(args.y)),
        workspace(static_cast<float*>(args.workspace)),
        epilogue(args) {}
  explicit DataPass(const Conv2dBackwardDataArgs& args)
      : in(static_cast<const float*>(args.dy)),
        w(static_cast<const float*>(args.w)),
        prepared(static_cast<const float*>(args.prepared)),
        out(static_cast<float*>(args.dx)),
        workspace(static_cast<float*>(args.workspace)) {}

  const float* in;
  const float* w;            // not read when there are prepared weights
  const float* prepared;     // null: this pass reads w
  const float* b = nullptr;  // null: no bias
  float* out;
  float* workspace;
  FusedEpilogue epilogue = {};
};

}  // namespace convscope
