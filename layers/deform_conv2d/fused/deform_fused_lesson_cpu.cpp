// SPDX-License-Identifier: Apache-2.0
// deform_fused_lesson_cpu.cpp: deformable convolution one pixel at a time. For each pixel, the code
// looks up where the taps read, samples x there into one short column, and multiplies the column by
// all kernels.
//
// Formula    y[n,k,p,q] = b[k] + sum over c < C/G, r < R, s < S of
//                w[k,c,r,s] mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   for each pixel (p,q) of y:
//              for each tap:      place = (p,q) + tap + offset      # four corners, four weights
//              for each channel:  column[c,tap] = mask * (sum over the corners of weight * x)
//              for each kernel:   y[k] = b[k] + sum over (c,tap) of w[k,c,tap] * column[c,tap]
//
//                 x, 3x3 taps of one pixel       an ordinary convolution reads the points of a
//                  .  .  .  .  .                 grid; here each point moves by its own offset,
//                  . o->  .  o   .               and reads between four pixels
//                  .  .  .  .v .
//
// Method     a column has C/G R S elements, one for each weight of a kernel. It is read K/G times
//            and then overwritten, so there is no matrix of columns. All channels of an offset
//            group use the same places (sampling positions).
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            row-major, f32, sums in f32; column [C/G R S]
// Supports   f32 in [N,C,H,W]; every stride, dilation, padding, number of groups and of offset
//            groups; with and without a mask
// Cost       FLOPs = 2 N K P Q (C/G) R S, and 8 for each sample; workspace = one column; bound by
//            one scalar sum
// Numerics   A sample is computed in double and rounded once: half an eps. A sequential sum of C/G
//            R S terms has an error of 8 eps up to 160 terms (framework/simd/sum_chain.h). A longer
//            sum has an error that grows with the square root of the number of terms. error_growth
//            is 9, the value for up to 160 terms. Same bits on each run.
// Backward   the column's gradient g = sum over k of w[k] dy[k] goes to the four corners of dx.
//            With a_i = sum over c of g x[corner i]: dmask = sum of weight_i a_i; the gradients of
//            v and u are the same sum with the derivatives of the weights. dw += dy column.
// Choices    none
// Source     J. Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211; X. Zhu et al.
//            2019: Deformable ConvNets v2, arXiv 1811.11168
// Read next  layers/deform_conv2d/place.h, the corners; deform_im2col_gemm_cpu.cpp, all columns at
//            once; deform_fused_cpu.cpp, columns of 56 pixels in the cache
#include <algorithm>

#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/place.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using Problem = DeformConv2dProblem;
using Tap = DeformTap<float>;

// Calls visit(n, g, p, q) for each pixel of y and each weight group.
template <class Visit>
void for_each_pixel(const Problem& z, const Visit& visit) {
  for (Index n = 0; n < z.n; ++n) {
    for (Index g = 0; g < z.groups; ++g) {
      for (Index p = 0; p < z.p(); ++p) {
        for (Index q = 0; q < z.q(); ++q) visit(n, g, p, q);
      }
    }
  }
}

// Calls visit(i, c, tap) for the elements of a pixel's column. Element i belongs to channel c of x.
template <class Args, class Visit>
void for_each_number(const Args& args, Index n, Index g, Index p, Index q, const Visit& visit) {
  const Problem& z = args.problem;
  Index i = 0;
  for (Index c = g * z.c_per_group(); c < (g + 1) * z.c_per_group(); ++c) {
    for (Index r = 0; r < z.r; ++r) {
      for (Index s = 0; s < z.s; ++s) {
        visit(i++, c,
              Tap(z, static_cast<const float*>(args.offset), static_cast<const float*>(args.mask),
                  n, c / z.c_per_offset_group(), r, s, p, q));
      }
    }
  }
}

template <class Args>
void fill_column(const Args& args, Index n, Index g, Index p, Index q, float* column) {
  const Problem& z = args.problem;
  for_each_number(args, n, g, p, q, [&](Index i, Index c, const Tap& tap) {
    const float* const plane = static_cast<const float*>(args.x) + (n * z.c + c) * z.h * z.w;
    double sample = 0;
    for (int corner = 0; corner < 4; ++corner) {
      if (!tap.place.has(corner)) continue;
      sample += tap.place.weight(corner) * static_cast<double>(plane[tap.place.pixel(corner)]);
    }
    column[i] = static_cast<float>(tap.factor * sample);
  });
}

Index column_size(const Problem& z) { return z.c_per_group() * z.taps(); }
Index at_y(const Problem& z, Index n, Index k, Index p, Index q) {
  return ((n * z.k + k) * z.p() + p) * z.q() + q;
}

void forward(const DeformConv2dForwardArgs& args) {
  const Problem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const column = static_cast<float*>(args.workspace);
  for_each_pixel(z, [&](Index n, Index g, Index p, Index q) {
    fill_column(args, n, g, p, q, column);
    for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
      float sum = b == nullptr ? 0.0f : b[k];
      for (Index i = 0; i < column_size(z); ++i) sum += w[k * column_size(z) + i] * column[i];
      static_cast<float*>(args.y)[at_y(z, n, k, p, q)] = sum;
    }
  });
}

void backward_data(const DeformConv2dBackwardDataArgs& args) {
  const Problem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  auto* const dx = static_cast<float*>(args.dx);
  auto* const doffset = static_cast<float*>(args.doffset);
  auto* const dmask = static_cast<float*>(args.dmask);
  if (dx != nullptr) std::fill_n(dx, z.x_shape().numel(), 0.0f);
  if (doffset != nullptr) std::fill_n(doffset, z.offset_shape().numel(), 0.0f);
  if (dmask != nullptr) std::fill_n(dmask, z.mask_shape().numel(), 0.0f);
  for_each_pixel(z, [&](Index n, Index g, Index p, Index q) {
    for_each_number(args, n, g, p, q, [&](Index i, Index c, const Tap& tap) {
      double gradient = 0;
      for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
        gradient += static_cast<double>(w[k * column_size(z) + i]) *
                    static_cast<double>(static_cast<const float*>(args.dy)[at_y(z, n, k, p, q)]);
      }
      double by_v = 0, by_u = 0, by_mask = 0;
      for (int corner = 0; corner < 4; ++corner) {
        if (!tap.place.has(corner)) continue;
        const Index pixel = (n * z.c + c) * z.h * z.w + tap.place.pixel(corner);
        if (dx != nullptr) {
          dx[pixel] += static_cast<float>(gradient * tap.factor * tap.place.weight(corner));
        }
        const double a = gradient * static_cast<double>(static_cast<const float*>(args.x)[pixel]);
        by_v += a * tap.place.weight_by_v(corner);
        by_u += a * tap.place.weight_by_u(corner);
        by_mask += a * tap.place.weight(corner);
      }
      if (doffset != nullptr) {
        doffset[tap.v_at] += static_cast<float>(tap.factor * by_v);
        doffset[tap.u_at] += static_cast<float>(tap.factor * by_u);
      }
      if (dmask != nullptr) dmask[tap.at] += static_cast<float>(by_mask);
    });
  });
}

void backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  auto* const dw = static_cast<float*>(args.dw);
  auto* const column = static_cast<float*>(args.workspace);
  if (!args.accumulate) std::fill_n(dw, z.w_shape().numel(), 0.0f);
  for_each_pixel(z, [&](Index n, Index g, Index p, Index q) {
    fill_column(args, n, g, p, q, column);
    for (Index k = g * z.k_per_group(); k < (g + 1) * z.k_per_group(); ++k) {
      const float dy = static_cast<const float*>(args.dy)[at_y(z, n, k, p, q)];
      for (Index i = 0; i < column_size(z); ++i) dw[k * column_size(z) + i] += dy * column[i];
    }
  });
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "fused_lesson",
    .device = DeviceType::cpu,
    .idea = "lesson: one pixel at a time, its samples in one short column, then all kernels",
    .paper = "Dai et al. 2017, arXiv 1703.06211; Zhu et al. 2019, arXiv 1811.11168",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32) return {};
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    },
    .cost = [](const Problem& z, Direction) -> Cost {
      return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
    },
    .workspace_bytes = [](const Problem& z, Direction) -> std::size_t {
      return sizeof(float) * static_cast<std::size_t>(column_size(z));
    },
    .error_growth = 9,
    .one_chain = true,
    .auto_ok = false,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::kAlgorithm)
