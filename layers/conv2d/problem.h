// SPDX-License-Identifier: Apache-2.0
// problem.h: the description of a 2-d convolution: sizes, types and layouts, without the data.
//
//   y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                                q stride_w - pad_left + s dilation_w] w[k,c,r,s],  g = k / (K/G)
// where x outside the image is 0. (It is the cross-correlation, as in every deep-learning library.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "framework/precision.h"
#include "framework/shape.h"
#include "layers/dispatch/operand_specs.h"

namespace convscope {

struct CONVSCOPE_API Conv2dProblem {
  std::int64_t n = 1, c = 1, h = 1, w = 1;  // x [N,C,H,W]
  std::int64_t k = 1, r = 1, s = 1;         // w [K,C/G,R,S]
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
  DType dtype = DType::f32;  // of x; of the other tensors unless `types` is set
  MathMode math = MathMode::f32;
  std::optional<OperandTypes> types = {};  // set when x, w and y differ in type
  WeightFormat weight_format = {};         // of w as the matrix [K, C/G R S]
  ImageLayouts layout = {};                // in memory, of x, y and their gradients

  // Returns the height and width of y [N,K,P,Q].
  std::int64_t p() const {
    return (h + pad_top + pad_bottom - dilation_h * (r - 1) - 1) / stride_h + 1;
  }
  std::int64_t q() const {
    return (w + pad_left + pad_right - dilation_w * (s - 1) - 1) / stride_w + 1;
  }
  std::int64_t c_per_group() const { return c / groups; }
  std::int64_t k_per_group() const { return k / groups; }

  Shape x_shape() const { return {n, c, h, w}; }
  Shape w_shape() const { return {k, c_per_group(), r, s}; }
  Shape y_shape() const { return {n, k, p(), q()}; }
  OperandTypes operand_types() const { return types ? *types : OperandTypes::all(dtype); }
  OperandSpecs operands(Direction direction) const;
  bool is_empty() const { return n == 0; }

  // Returns 2 N K P Q (C/G) R S: the FLOPs of the textbook loops, which also multiply the padding.
  // The number is the same for all directions. GFLOP/s always refer to it.
  double nominal_flops() const;
  // Returns the largest number of products that one element of the output sums.
  std::int64_t sum_length(Direction direction) const {
    return direction == Direction::forward         ? c_per_group() * r * s
           : direction == Direction::backward_data ? k_per_group() * r * s
                                                   : n * p() * q();
  }
  // Returns the bytes of the direction's three tensors: its two inputs and its output.
  double nominal_bytes() const;

  // Sets the types of an integer convolution, and its layouts: codes are NCHW16c, f32 images NCHW.
  void set_integer_types(const OperandTypes& of);

  // Throws an error that names the invalid size (kernel larger than the padded image, groups that
  // do not divide, negative padding, an element count beyond 2^63, ...).
  void check() const;

  // Returns "n=8,c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,dilation=1,groups=1". Stride and
  // dilation are one number or "2x1" (h x w); pad is one number, "1x2" (h x w) or "1x2x3x4" (top,
  // bottom, left, right). Further keys follow where they are not the default: dtype=f64,
  // precision=tf32, types=i8:i8:i32:f32 (of x, w, the accumulators and y), weights=blocks4x1:128
  // (framework/weight_format.h) and layout=nchw16c, nhwc or, of x and y, nchw:nchw16c
  // (framework/activation_layout.h). parse(text()) returns the same problem.
  std::string text() const;
  std::string kernel_text() const;  // "3", or "3x5" when it is not square
  static Conv2dProblem parse(std::string_view text);

  bool operator==(const Conv2dProblem&) const = default;
};

}  // namespace convscope
