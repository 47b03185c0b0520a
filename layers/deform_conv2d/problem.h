// SPDX-License-Identifier: Apache-2.0
// problem.h: one struct that says everything about a deformable 2-d convolution except its numbers.
//
//   y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u),   g = k / (K/G)
//   v = p stride_h - pad_top + r dilation_h + offset[n, 2 j, p,q]
//   u = q stride_w - pad_left + s dilation_w + offset[n, 2 j + 1, p,q]
//   j = o R S + r S + s,   o = the offset group of channel g C/G + c: its number / (C/O)
//
// sample() is bilinear: of the four pixels around (v,u) each one counts by its own, with 0 where it
// lies outside of the image; the whole is 0 outside of (-1,H) x (-1,W), infinite places included. A
// place that is NaN gives NaN. Without a mask (version 1 of the paper) it is 1.
//
// v and u are rounded to f32 (of f64: to f64), which is a part of the definition: all algorithms
// see the same places.
//
// Sources: J. Dai et al.: Deformable Convolutional Networks, ICCV 2017, arXiv 1703.06211; X. Zhu et
// al.: Deformable ConvNets v2, CVPR 2019, arXiv 1811.11168. Offsets lie as in torchvision: (v, u)
// of one tap side by side.
#pragma once

#include "layers/conv2d/problem.h"

namespace convscope {

// x [N,C,H,W], w [K,C/G,R,S], b [K], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q]. What
// it shares with a convolution stands in its base: sizes, types, layout.
struct CONVSCOPE_API DeformConv2dProblem : Conv2dProblem {
  std::int64_t offset_groups = 1;  // O: neighbouring C/O channels share their places
  bool mask = true;

  DeformConv2dProblem() = default;
  DeformConv2dProblem(const Conv2dProblem& sizes, std::int64_t groups_of_offsets, bool masked)
      : Conv2dProblem(sizes), offset_groups(groups_of_offsets), mask(masked) {}

  std::int64_t taps() const { return r * s; }
  std::int64_t c_per_offset_group() const { return c / offset_groups; }
  Shape offset_shape() const { return {n, 2 * offset_groups * taps(), p(), q()}; }
  Shape mask_shape() const { return {n, offset_groups * taps(), p(), q()}; }

  // forward reads x, w, offset, mask; backward_data reads dy, w, x, offset, mask and writes dx,
  // doffset, dmask; backward_weight reads x, dy, offset, mask and writes dw.
  OperandSpecs operands(Direction direction) const;
  // The largest number of products that are added to one element of the direction's output; of dx
  // where about as many samples fall on each pixel as without offsets, four pixels for a sample.
  std::int64_t sum_length(Direction direction) const {
    return direction == Direction::forward         ? c / groups * taps()
           : direction == Direction::backward_data ? 4 * (k / groups) * taps()
                                                   : n * p() * q();
  }
  // Every tensor of the direction once. nominal_flops() is that of the convolution: sampling is not
  // counted.
  double nominal_bytes() const;
  void check() const;

  // As of a convolution, with two keys more: "...,offset_groups=1,mask=1".
  std::string text() const;
  static DeformConv2dProblem parse(std::string_view text);

  bool operator==(const DeformConv2dProblem&) const = default;
};

}  // namespace convscope
