// SPDX-License-Identifier: Apache-2.0
// wrong_loops.cpp: the textbook loops with an intended mistake.
#include "experiments/check/wrong_loops.h"

#include <algorithm>

namespace convscope {
namespace {

using Index = Loops::Index;

// Row-major [N,C,H,W], or NHWC.
Index place(Loops::Order order, Index n, Index c, Index h, Index w, Index channels, Index height,
            Index width) {
  return order == Loops::Order::nchw ? ((n * channels + c) * height + h) * width + w
                                     : ((n * height + h) * width + w) * channels + c;
}

// Calls visit(x, w, y) with the indices of each product.
template <class Visit>
void for_each_product(const Loops& loops, const Visit& visit) {
  const Conv2dProblem& z = loops.z;
  const Index P = z.p(), Q = z.q(), per_group = z.c_per_group();
  const Index x_count = z.x_shape().numel(), w_count = z.w_shape().numel();
  const auto channel = [&](Index k, Index c) {
    switch (loops.channels) {
      case Loops::Channels::own_group:
        return k / z.k_per_group() * per_group + c;
      case Loops::Channels::first_group:
      case Loops::Channels::all:
        return c;
      case Loops::Channels::interleaved:
        return k % z.groups * per_group + c;
      case Loops::Channels::by_inputs:
        return std::min(k / per_group, z.groups - 1) * per_group + c;
    }
    return c;
  };
  for (Index n = loops.n.begin; n < loops.n.end; ++n) {
    for (Index k = loops.k.begin; k < loops.k.end; ++k) {
      for (Index p = loops.p.begin; p < loops.p.end; ++p) {
        for (Index q = loops.q.begin; q < loops.q.end; ++q) {
          const Index y = place(loops.y_order, n, k, p, q, z.k, P, Q);
          for (Index c = loops.c.begin; c < loops.c.end; ++c) {
            for (Index r = loops.r.begin; r < loops.r.end; ++r) {
              Index h = p * loops.stride_h - loops.pad_top + r * loops.dilation_h;
              if (loops.outside == Loops::Outside::nearest) h = std::clamp<Index>(h, 0, z.h - 1);
              if (!loops.h.has(h)) continue;
              for (Index s = loops.s.begin; s < loops.s.end; ++s) {
                Index v = q * loops.stride_w - loops.pad_left + s * loops.dilation_w;
                if (loops.outside == Loops::Outside::nearest) v = std::clamp<Index>(v, 0, z.w - 1);
                if (!loops.w.has(v)) continue;
                const bool inside = h >= 0 && h < z.h && v >= 0 && v < z.w;
                if (!inside && loops.outside == Loops::Outside::zero) continue;
                const Index x = place(loops.x_order, loops.first_image ? 0 : n, channel(k, c), h, v,
                                      z.c, z.h, z.w);
                const Index row = loops.flip_r ? z.r - 1 - r : r;
                const Index column = loops.flip_s ? z.s - 1 - s : s;
                const Index tap = loops.swap_axes ? column * z.r + row : row * z.s + column;
                Index w = loops.swap_channels ? (c * z.k + k) * z.r * z.s + tap
                                              : (k * per_group + c) * z.r * z.s + tap;
                if (loops.w_order == Loops::Order::nhwc) {
                  w = ((k * z.r + row) * z.s + column) * per_group + c;
                }
                if (x >= 0 && x < x_count && w < w_count) visit(x, w, y);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

Loops::Loops(const Conv2dProblem& problem)
    : z(problem),
      stride_h(problem.stride_h),
      stride_w(problem.stride_w),
      dilation_h(problem.dilation_h),
      dilation_w(problem.dilation_w),
      pad_top(problem.pad_top),
      pad_left(problem.pad_left),
      n{0, problem.n},
      k{0, problem.k},
      p{0, problem.p()},
      q{0, problem.q()},
      c{0, problem.c_per_group()},
      r{0, problem.r},
      s{0, problem.s},
      h{0, problem.h},
      w{0, problem.w} {}

std::vector<double> sums_of(const Loops& loops, const matrix::ConvolutionCase& numbers,
                            Direction direction, bool extra) {
  const Conv2dProblem& z = loops.z;
  std::vector<double> out(static_cast<std::size_t>(matrix::output_numel(z, direction)), 0.0);
  const double first = loops.start == Loops::Start::left_out ? 0
                       : loops.start == Loops::Start::twice  ? 2
                                                             : 1;
  if (extra && direction == Direction::forward) {
    const Index pixels = z.p() * z.q();
    for (Index i = 0; i < static_cast<Index>(out.size()); ++i) {
      const Index k = loops.start == Loops::Start::first_bias ? 0 : i / pixels % z.k;
      out[static_cast<std::size_t>(i)] = first * static_cast<double>(numbers.b().data()[k]);
    }
  } else if (extra) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = first * static_cast<double>(numbers.dw_before().data()[i]);
    }
  }
  const float* const x = numbers.x().data();
  const float* const w = numbers.w().data();
  const float* const dy = numbers.dy().data();
  for_each_product(loops, [&](Index at_x, Index at_w, Index at_y) {
    const bool forward = direction == Direction::forward;
    const bool data = direction == Direction::backward_data;
    const Index to = forward ? at_y : data ? at_x : at_w;
    const double first_factor = static_cast<double>(forward ? x[at_x] : dy[at_y]);
    const double second = static_cast<double>(forward || data ? w[at_w] : x[at_x]);
    out[static_cast<std::size_t>(to)] += loops.factor * first_factor * second;
  });
  return out;
}

}  // namespace convscope
