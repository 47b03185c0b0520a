// SPDX-License-Identifier: Apache-2.0
// deform_im2col_gemm_cpu.cpp: deformable convolution by the method of its authors. All samples of
// an image are written into columns, then one matrix product computes y.
//
// Formula    y[k,(p,q)] = b[k] + sum over (c,r,s) of w[k,(c,r,s)] columns[(c,r,s),(p,q)],
//            columns[(c,r,s),(p,q)] = mask[n,j,p,q] sample(x[n, g C/G + c], v, u)   (problem.h)
// Textbook   for each image: columns = samples(x, offset, mask)   # [C/G R S, P Q]
//                            y = w columns + b                    # [K/G, C/G R S] [C/G R S, P Q]
//            gradient of the columns = w^T dy; each element is added to four pixels of dx and to
//            the gradients of its offset and mask
//            dw += dy columns^T, for which the columns are computed once more
// Method     computes one image and one weight group at a time. Threads divide among them the rows
//            of the columns (forward, dw), the channels (dx), or the taps (doffset, dmask). The
//            product is gemm().
// Shapes     x [N,C,H,W], w [K,C/G,R,S], offset [N,2 O R S,P,Q], mask [N,O R S,P,Q], y [N,K,P,Q],
//            row-major, f32; columns [C/G R S, P Q]
// Supports   f32 in [N,C,H,W]; every stride, dilation, padding, number of groups and of offset
//            groups; with and without a mask
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = the tensors, and the columns, written and read
//            once in each direction; workspace = columns of one image and group, R S times as large
//            as its x; bound by the samples, which are made one at a time
// Numerics   Samples are computed in double and rounded once: half an eps. Sums are those of
//            gemm(), in chains of 160 terms: 8 eps (framework/simd/sum_chain.h). So error_growth is
//            9. In dx each term is a sum of gemm() and is rounded once more; doffset and dmask are
//            summed in double. The sums of dx are not cut into chains: where more than 160 samples
//            add to one pixel, the error of the pixel grows with the square root of their number.
//            Same bits on each run and with any number of threads.
// Backward   dx, doffset, dmask assigned; dw assigned or added to
// Choices    none
// Source     J. Dai et al. 2017: arXiv 1703.06211, whose code has this form
// Read next  deform_reference_cpu.cpp, without a matrix; deform_fused_cpu.cpp, where the columns
//            never exist as a whole
#include "framework/ops/gemm/gemm.h"
#include "framework/parallel.h"
#include "layers/deform_conv2d/algorithm.h"
#include "layers/deform_conv2d/place.h"

namespace convscope {
namespace {

using Index = std::int64_t;
using Problem = DeformConv2dProblem;

Index rows(const Problem& z) { return z.c_per_group() * z.taps(); }  // of the columns
Index pixels(const Problem& z) { return z.p() * z.q(); }

// Calls visit(pixel, tap) for the pixels of y, with the place of tap (r,s).
template <class Visit>
void for_each_pixel(const Problem& z, const float* offset, const float* mask, Index n, Index group,
                    Index tap, const Visit& visit) {
  for (Index p = 0; p < z.p(); ++p) {
    for (Index q = 0; q < z.q(); ++q) {
      visit(p * z.q() + q, DeformTap<float>(z, offset, mask, n, group, tap / z.s, tap % z.s, p, q));
    }
  }
}

// The samples of image n and weight group g.
void fill_columns(const Problem& z, const float* x, const float* offset, const float* mask, Index n,
                  Index g, float* columns) {
  parallel_for(rows(z), 1, [&](Index row, Index) {
    const Index c = g * z.c_per_group() + row / z.taps();
    const float* const plane = x + (n * z.c + c) * z.h * z.w;
    for_each_pixel(z, offset, mask, n, c / z.c_per_offset_group(), row % z.taps(),
                   [&](Index pixel, const DeformTap<float>& tap) {
                     double sum = 0;
                     for (int i = 0; i < 4; ++i) {
                       if (!tap.place.has(i)) continue;
                       sum += tap.place.weight(i) * static_cast<double>(plane[tap.place.pixel(i)]);
                     }
                     columns[row * pixels(z) + pixel] = static_cast<float>(tap.factor * sum);
                   });
  });
}

void forward(const DeformConv2dForwardArgs& args) {
  const Problem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const columns = static_cast<float*>(args.workspace);
  for (Index n = 0; n < z.n; ++n) {
    for (Index g = 0; g < z.groups; ++g) {
      fill_columns(z, static_cast<const float*>(args.x), static_cast<const float*>(args.offset),
                   static_cast<const float*>(args.mask), n, g, columns);
      const Index k = g * z.k_per_group();
      float* const y = static_cast<float*>(args.y) + (n * z.k + k) * pixels(z);
      for (Index i = 0; b != nullptr && i < z.k_per_group(); ++i) {
        std::fill_n(y + i * pixels(z), pixels(z), b[k + i]);
      }
      gemm(false, false, z.k_per_group(), pixels(z), rows(z), w + k * rows(z), rows(z), columns,
           pixels(z), y, pixels(z), b != nullptr);
    }
  }
}

// Scatters the columns' gradient to dx. Each channel belongs to one thread.
void scatter(const DeformConv2dBackwardDataArgs& args, Index n, Index g, const float* columns) {
  const Problem& z = args.problem;
  parallel_for(z.c_per_group(), 1, [&](Index in_group, Index) {
    const Index c = g * z.c_per_group() + in_group;
    float* const dx = static_cast<float*>(args.dx) + (n * z.c + c) * z.h * z.w;
    std::fill_n(dx, z.h * z.w, 0.0f);
    for (Index t = 0; t < z.taps(); ++t) {
      const float* const row = columns + (in_group * z.taps() + t) * pixels(z);
      for_each_pixel(
          z, static_cast<const float*>(args.offset), static_cast<const float*>(args.mask), n,
          c / z.c_per_offset_group(), t, [&](Index pixel, const DeformTap<float>& tap) {
            const double gradient = tap.factor * static_cast<double>(row[pixel]);
            for (int i = 0; i < 4; ++i) {
              if (!tap.place.has(i)) continue;
              dx[tap.place.pixel(i)] += static_cast<float>(gradient * tap.place.weight(i));
            }
          });
    }
  });
}

// Computes doffset and dmask from the columns' gradient. Each tap belongs to one thread. The first
// weight group assigns its sums, later groups add theirs.
void sum_places(const DeformConv2dBackwardDataArgs& args, Index n, Index g, const float* columns) {
  const Problem& z = args.problem;
  const Index first = g * z.c_per_group(), last = first + z.c_per_group() - 1;
  const Index group = first / z.c_per_offset_group();
  const Index groups = last / z.c_per_offset_group() - group + 1;
  parallel_for(groups * z.taps(), 1, [&](Index job, Index) {
    const Index o = group + job / z.taps(), t = job % z.taps();
    const Index begin = std::max(first, o * z.c_per_offset_group());
    const Index end = std::min(last, (o + 1) * z.c_per_offset_group() - 1) + 1;
    const bool assigns = begin == o * z.c_per_offset_group();
    for_each_pixel(
        z, static_cast<const float*>(args.offset), static_cast<const float*>(args.mask), n, o, t,
        [&](Index pixel, const DeformTap<float>& tap) {
          double by_v = 0, by_u = 0, by_mask = 0;
          for (Index c = begin; c < end; ++c) {
            const float* const plane =
                static_cast<const float*>(args.x) + (n * z.c + c) * z.h * z.w;
            const auto gradient =
                static_cast<double>(columns[((c - first) * z.taps() + t) * pixels(z) + pixel]);
            for (int i = 0; i < 4; ++i) {
              if (!tap.place.has(i)) continue;
              const double value = gradient * static_cast<double>(plane[tap.place.pixel(i)]);
              by_v += tap.place.weight_by_v(i) * value;
              by_u += tap.place.weight_by_u(i) * value;
              by_mask += tap.place.weight(i) * value;
            }
          }
          const auto put = [&](void* to, Index at, double value) {
            float& place = static_cast<float*>(to)[at];
            place = static_cast<float>(assigns ? value : static_cast<double>(place) + value);
          };
          if (args.doffset != nullptr) {
            put(args.doffset, tap.v_at, tap.factor * by_v);
            put(args.doffset, tap.u_at, tap.factor * by_u);
          }
          if (args.dmask != nullptr) put(args.dmask, tap.at, by_mask);
        });
  });
}

void backward_data(const DeformConv2dBackwardDataArgs& args) {
  const Problem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  auto* const columns = static_cast<float*>(args.workspace);
  for (Index n = 0; n < z.n; ++n) {
    for (Index g = 0; g < z.groups; ++g) {
      const Index k = g * z.k_per_group();
      gemm(true, false, rows(z), pixels(z), z.k_per_group(), w + k * rows(z), rows(z),
           static_cast<const float*>(args.dy) + (n * z.k + k) * pixels(z), pixels(z), columns,
           pixels(z), false);
      if (args.dx != nullptr) scatter(args, n, g, columns);
      if (args.doffset != nullptr || args.dmask != nullptr) sum_places(args, n, g, columns);
    }
  }
}

void backward_weight(const DeformConv2dBackwardWeightArgs& args) {
  const Problem& z = args.problem;
  auto* const columns = static_cast<float*>(args.workspace);
  for (Index n = 0; n < z.n; ++n) {
    for (Index g = 0; g < z.groups; ++g) {
      fill_columns(z, static_cast<const float*>(args.x), static_cast<const float*>(args.offset),
                   static_cast<const float*>(args.mask), n, g, columns);
      const Index k = g * z.k_per_group();
      gemm(false, true, z.k_per_group(), rows(z), pixels(z),
           static_cast<const float*>(args.dy) + (n * z.k + k) * pixels(z), pixels(z), columns,
           pixels(z), static_cast<float*>(args.dw) + k * rows(z), rows(z),
           args.accumulate || n > 0);
    }
  }
}

const DeformConv2dAlgorithm kAlgorithm{
    .name = "im2col_gemm",
    .device = DeviceType::cpu,
    .idea =
        "all samples of an image in columns, then one product of matrices, as in the authors' code",
    .paper = "Dai et al. 2017: Deformable Convolutional Networks, arXiv 1703.06211",
    .supports = [](const Problem& z, Direction) -> Support {
      if (z.dtype == DType::f32) return {};
      return Support::no(cat("expects elements of type f32, got ", name_of(z.dtype)));
    },
    // A sample for a single channel takes about 30 cycles, and 60 cycles in the backward pass.
    .cost = [](const Problem& z, Direction) -> Cost {
      const double columns = z.nominal_flops() / 2 / number(z.k_per_group());
      return {.flops = z.nominal_flops(),
              .bytes = z.nominal_bytes() + 2 * sizeof(float) * columns,
              .issued = z.nominal_flops(),
              .transformed = columns,  // interpolated
              .listed = number(z.n * z.taps() * z.p() * z.q() * z.offset_groups)};
    },
    .workspace_bytes = [](const Problem& z, Direction) -> std::size_t {
      return sizeof(float) * static_cast<std::size_t>(rows(z) * pixels(z));
    },
    .error_growth = 9,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_DEFORM_CONV2D_ALGORITHM(convscope::kAlgorithm)
