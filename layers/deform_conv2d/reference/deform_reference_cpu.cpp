// SPDX-License-Identifier: Apache-2.0
// deform_reference_cpu.cpp: deformable convolution as in its formula, with double sums. It is slow,
// and every test compares with it.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   for n, p, q, c, r, s:
//              value = mask[n][j][p][q] * sample(x[n][c], v, u)     # four pixels around (v,u)
//              for k: y[n][k][p][q] += w[k][c][r][s] * value
// Method     the loops are in deform_loops.h. Threads divide rows of y, images, or channels among
//            them.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            row-major, f32 or f64; sums in f64
// Supports   f32 and f64 in [N,C,H,W]; every stride, dilation, padding, number of groups and of
//            offset groups; with and without a mask
// Cost       FLOPs = 2 N K P Q (C/G) R S and about 20 for each sample; no workspace, but dx and the
//            gradients of the places of an image are held in double; bound by scalar arithmetic
// Numerics   v and u are rounded to the type of the offsets; the rest is double, so the error is
//            half a unit in the last place. Same bits on each run. Results of integer inputs may be
//            inexact, because places may be between pixels.
// Backward   dx scatters to the four corners. The gradient of (v,u) takes the derivatives of their
//            weights; where v or u is an integer, it is the derivative on the side of larger v, u.
//            dx, doffset, dmask are assigned; dw is assigned or added to.
// Choices    none
// Source     J. Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211
// Read next  layers/deform_conv2d/place.h; deform_im2col_gemm_cpu.cpp, as a product of matrices
#include "layers/deform_conv2d/deform_loops.h"

namespace convscope {
namespace {

using Problem = DeformConv2dProblem;

Support supports(const Problem& z, Direction) {
  if (z.dtype == DType::f32 || z.dtype == DType::f64) return {};
  return Support::no(cat("expects elements of type f32 or f64, got ", name_of(z.dtype)));
}

template <class T>
void forward(const DeformConv2dForwardArgs& a) {
  const auto of = [](const void* p) { return static_cast<const T*>(p); };
  deform::forward<deform::Sign::values>(a.problem, of(a.x), of(a.w), of(a.offset), of(a.mask),
                                        of(a.b), static_cast<T*>(a.y));
}

template <class T>
void backward_data(const DeformConv2dBackwardDataArgs& a) {
  const auto of = [](const void* p) { return static_cast<const T*>(p); };
  deform::backward_data<deform::Sign::values>(a.problem, of(a.dy), of(a.w), of(a.x), of(a.offset),
                                              of(a.mask), static_cast<T*>(a.dx),
                                              static_cast<T*>(a.doffset), static_cast<T*>(a.dmask));
}

template <class T>
void backward_weight(const DeformConv2dBackwardWeightArgs& a) {
  const auto of = [](const void* p) { return static_cast<const T*>(p); };
  deform::backward_weight<deform::Sign::values>(a.problem, of(a.x), of(a.dy), of(a.offset),
                                                of(a.mask), static_cast<T*>(a.dw), a.accumulate);
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "reference",
    .device = DeviceType::cpu,
    .idea = "the formula in plain loops with double sums; the oracle of the tests",
    .paper = "Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211",
    .supports = supports,
    .cost = [](const Problem& z, Direction) -> Cost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
    },
    .workspace_bytes = [](const Problem&, Direction) -> std::size_t { return 0; },
    .error_growth = 1,
    .auto_ok = false,
    .forward =
        [](const DeformConv2dForwardArgs& args) {
          args.problem.dtype == DType::f64 ? forward<double>(args) : forward<float>(args);
        },
    .backward_data =
        [](const DeformConv2dBackwardDataArgs& args) {
          args.problem.dtype == DType::f64 ? backward_data<double>(args)
                                           : backward_data<float>(args);
        },
    .backward_weight =
        [](const DeformConv2dBackwardWeightArgs& args) {
          args.problem.dtype == DType::f64 ? backward_weight<double>(args)
                                           : backward_weight<float>(args);
        },
};

}  // namespace
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::kAlgorithm)
