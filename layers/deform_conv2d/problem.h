// SPDX-License-Identifier: Apache-2.0
// problem.h: the description of a deformable 2-d convolution: sizes, types and layout.
//
//   y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u),   g = k / (K/G)
//   v = p stride_h - pad_top + r dilation_h + offset[n, 2 j, p,q]
//   u = q stride_w - pad_left + s dilation_w + offset[n, 2 j + 1, p,q]
//   j = o R S + r S + s,   o = the offset group of channel g C/G + c: its number / (C/O)
//
// sample() is bilinear: it weighs the four pixels around (v,u), and takes 0 for a pixel outside of
// the image. It is 0 for positions outside of (-1,H) x (-1,W), also infinite ones. If v or u is
// NaN, the sample is NaN. Without a mask (version 1 of the paper), the mask counts as 1.
//
// v and u are rounded to f32 (f64 problems: to f64). The rounding is a part of the definition, so
// all algorithms sample at the same positions.
//
// Sources: J. Dai et al.: Deformable Convolutional Networks, ICCV 2017, arXiv 1703.06211; X. Zhu et
// al.: Deformable ConvNets v2, CVPR 2019, arXiv 1811.11168. The order of offsets is that of
// torchvision: (v, u) of one tap are neighbours.
#pragma once

#include "layers/conv2d/problem.h"

namespace convscope {

// x [N,C,H,W], w [K,C/G,R,S], b [K], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q]. The
// base class holds sizes, types and layout, as for a convolution.
struct CONVSCOPE_API DeformConv2dProblem : Conv2dProblem {
  std::int64_t offset_groups = 1;  // O: neighbouring C/O channels share sampling positions
  bool mask = true;

  DeformConv2dProblem() = default;
  DeformConv2dProblem(const Conv2dProblem& sizes, std::int64_t groups_of_offsets, bool masked)
      : Conv2dProblem(sizes), offset_groups(groups_of_offsets), mask(masked) {}

  std::int64_t taps() const { return r * s; }
  std::int64_t c_per_offset_group() const { return c / offset_groups; }
  Shape offset_shape() const { return {n, 2 * offset_groups * taps(), p(), q()}; }
  Shape mask_shape() const { return {n, offset_groups * taps(), p(), q()}; }

  // Returns the operands in order. forward reads x, w, offset, mask. backward_data reads dy, w, x,
  // offset, mask and writes dx, doffset, dmask. backward_weight reads x, dy, offset, mask, writes
  // dw.
  OperandSpecs operands(Direction direction) const;
  // Returns the largest number of products in one element of the output. For dx this assumes that
  // offsets do not change how many samples use a pixel, and that each sample uses four pixels.
  std::int64_t sum_length(Direction direction) const {
    return direction == Direction::forward         ? c / groups * taps()
           : direction == Direction::backward_data ? 4 * (k / groups) * taps()
                                                   : n * p() * q();
  }
  // Counts every tensor of the direction once. nominal_flops() counts the convolution only, not the
  // sampling.
  double nominal_bytes() const;
  void check() const;

  // Returns the text of a convolution's problem with two more keys: "...,offset_groups=1,mask=1".
  std::string text() const;
  static DeformConv2dProblem parse(std::string_view text);

  bool operator==(const DeformConv2dProblem&) const = default;
};

}  // namespace convscope
