// SPDX-License-Identifier: Apache-2.0
// problem.h: the description of a transposed 2-d convolution: its sizes and types.
//
//   y[n,k,p,q] = b[k] + sum of x[n,c,h,w] w[c,k,r,s] over all (c, h, w, r, s) of the group with
//                h stride_h - pad_top + r dilation_h = p,  w stride_w - pad_left + s dilation_w = q
//   P = (H - 1) stride_h - pad_top - pad_bottom + dilation_h (R - 1) + output_pad_h + 1; Q likewise
//
// It is the backward_data of the convolution from y to x, which convolution() returns.
#pragma once

#include "layers/conv2d/problem.h"

namespace convscope {

// x [N,C,H,W], w [C,K/G,R,S], b [K], y [N,K,P,Q]. The base class holds sizes, types and layout.
struct CONVSCOPE_API ConvTranspose2dProblem : Conv2dProblem {
  std::int64_t output_pad_h = 0,
               output_pad_w = 0;  // rows and columns added at the bottom and right

  ConvTranspose2dProblem() = default;
  ConvTranspose2dProblem(const Conv2dProblem& sizes, std::int64_t more_h, std::int64_t more_w)
      : Conv2dProblem(sizes), output_pad_h(more_h), output_pad_w(more_w) {}

  std::int64_t p() const {
    return (h - 1) * stride_h - pad_top - pad_bottom + dilation_h * (r - 1) + output_pad_h + 1;
  }
  std::int64_t q() const {
    return (w - 1) * stride_w - pad_left - pad_right + dilation_w * (s - 1) + output_pad_w + 1;
  }
  Shape w_shape() const { return {c, k_per_group(), r, s}; }
  Shape y_shape() const { return {n, k, p(), q()}; }
  // Returns the convolution from y to x with the same weights.
  Conv2dProblem convolution() const;

  OperandSpecs operands(Direction direction) const;
  // Returns 2 N C H W (K/G) R S, the FLOPs of each direction.
  double nominal_flops() const { return convolution().nominal_flops(); }
  double nominal_bytes() const { return convolution().nominal_bytes(); }
  std::int64_t sum_length(Direction direction) const;
  // Throws an error that names the invalid size.
  void check() const;

  // Returns the text of a convolution's problem with one more key, "...,opad=1" or "...,opad=1x0".
  std::string text() const;
  static ConvTranspose2dProblem parse(std::string_view text);

  bool operator==(const ConvTranspose2dProblem&) const = default;
};

// Returns the direction of the convolution that computes `direction` of the transposed one.
constexpr Direction exchanged(Direction direction) {
  return direction == Direction::forward         ? Direction::backward_data
         : direction == Direction::backward_data ? Direction::forward
                                                 : direction;
}

}  // namespace convscope
