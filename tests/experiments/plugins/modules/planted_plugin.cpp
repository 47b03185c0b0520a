// SPDX-License-Identifier: Apache-2.0
// planted_plugin.cpp: a plug-in in which each algorithm has one mistake that students typically
// make.
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "framework/parallel.h"
#include "layers/conv2d/plugin.h"
#include "layers/conv2d/shared/lesson.h"

namespace convscope {
namespace {

using Index = std::int64_t;

enum class Mistake {
  none,
  border,      // h > 0 instead of h >= 0
  next_row,    // column W is accepted
  dilation,    // left out
  groups,      // each output channel reads the channels of the first group
  flipped,     // w[k,c,R-1-r,S-1-s]
  bias,        // left out
  unwritten,   // the last row of y
  adds,        // y is not set to the bias, but added to
  behind,      // writes y[numel]
  workspace,   // assumes that it is zero
  accumulate,  // dw is assigned
  race,        // threads share dw
  one_chain,   // one chain, which the algorithm does not state
  crash,
  endless,
  throws,
  blocks,  // output channels after the last block of eight are wrong
};

template <Mistake M>
struct Wrong {
  static void products(const Conv2dProblem& z, Index n_begin, Index n_end, auto visit) {
    for (Index n = n_begin; n < n_end; ++n) {
      for (Index k = 0; k < z.k; ++k) {
        const Index g = M == Mistake::groups ? 0 : k / z.k_per_group();
        for (Index p = 0; p < z.p(); ++p) {
          if (M == Mistake::unwritten && p == z.p() - 1) continue;
          for (Index q = 0; q < z.q(); ++q) {
            for (Index c = 0; c < z.c_per_group(); ++c) {
              for (Index r = 0; r < z.r; ++r) {
                const Index dilation = M == Mistake::dilation ? 1 : z.dilation_h;
                const Index h = p * z.stride_h - z.pad_top + r * dilation;
                if (h < (M == Mistake::border ? 1 : 0) || h >= z.h) continue;
                for (Index s = 0; s < z.s; ++s) {
                  const Index across = M == Mistake::dilation ? 1 : z.dilation_w;
                  const Index v = q * z.stride_w - z.pad_left + s * across;
                  if (v < 0 || v >= z.w + (M == Mistake::next_row ? 1 : 0)) continue;
                  const Index row = M == Mistake::flipped ? z.r - 1 - r : r;
                  const Index column = M == Mistake::flipped ? z.s - 1 - s : s;
                  visit(((n * z.c + g * z.c_per_group() + c) * z.h + h) * z.w + v,
                        ((k * z.c_per_group() + c) * z.r + row) * z.s + column,
                        ((n * z.k + k) * z.p() + p) * z.q() + q);
                }
              }
            }
          }
        }
      }
    }
  }

  static void forward(const Conv2dForwardArgs& args) {
    const Conv2dProblem& z = args.problem;
    const auto* const x = static_cast<const float*>(args.x);
    const auto* const w = static_cast<const float*>(args.w);
    const auto* const b = static_cast<const float*>(args.b);
    auto* const y = static_cast<float*>(args.y);
    const Index pixels = z.p() * z.q();
    if (M == Mistake::throws) throw std::runtime_error("on purpose");
    if (M == Mistake::crash) std::raise(SIGSEGV);
    for (volatile bool on = true; M == Mistake::endless && on;) {
    }
    for (Index i = 0; i < z.y_shape().numel() && M != Mistake::adds; ++i) {
      if (M == Mistake::unwritten && i / z.q() % z.p() == z.p() - 1) continue;
      y[i] = M == Mistake::bias || b == nullptr ? 0.0f : b[i / pixels % z.k];
    }
    auto* const sums = M == Mistake::workspace ? static_cast<float*>(args.workspace) : y;
    products(z, 0, z.n, [&](Index at_x, Index at_w, Index at_y) {
      const bool wrong = M == Mistake::blocks && at_y / pixels % z.k >= z.k / 8 * 8;
      sums[at_y] += (wrong ? 1.5f : 1.0f) * x[at_x] * w[at_w];
    });
    for (Index i = 0; i < z.y_shape().numel() && M == Mistake::workspace; ++i) y[i] += sums[i];
    if (M == Mistake::behind) y[z.y_shape().numel()] = 0;
  }

  static void backward_data(const Conv2dBackwardDataArgs& args) {
    const auto* const dy = static_cast<const float*>(args.dy);
    const auto* const w = static_cast<const float*>(args.w);
    auto* const dx = static_cast<float*>(args.dx);
    std::fill_n(dx, args.problem.x_shape().numel(), 0.0f);
    products(args.problem, 0, args.problem.n,
             [&](Index at_x, Index at_w, Index at_y) { dx[at_x] += w[at_w] * dy[at_y]; });
  }

  static void backward_weight(const Conv2dBackwardWeightArgs& args) {
    const auto* const x = static_cast<const float*>(args.x);
    const auto* const dy = static_cast<const float*>(args.dy);
    auto* const dw = static_cast<float*>(args.dw);
    const Conv2dProblem& z = args.problem;
    if (!args.accumulate || M == Mistake::accumulate) {
      std::fill_n(dw, z.w_shape().numel(), 0.0f);
    }
    const auto images = [&](Index begin, Index end) {
      products(z, begin, end, [&](Index at_x, Index at_w, Index at_y) {
        const float before = dw[at_w];
        // The yield makes the race occur on a busy machine, too. There the threads might otherwise
        // run one after the other.
        if (M == Mistake::race && at_w == 0) std::this_thread::yield();
        dw[at_w] = before + dy[at_y] * x[at_x];
      });
    };
    if (M == Mistake::race) {
      parallel_for(z.n, 1, images);
    } else {
      images(0, z.n);
    }
  }
};

std::size_t bytes_of_y(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::forward
             ? static_cast<std::size_t>(z.y_shape().numel()) * sizeof(float)
             : 0;
}

template <Mistake M>
Conv2dAlgorithm algorithm(const char* name) {
  constexpr bool kForwardAlone = M == Mistake::crash || M == Mistake::endless ||
                                 M == Mistake::throws || M == Mistake::workspace;
  Conv2dAlgorithm out{
      .name = name,
      .idea = "the textbook with a mistake",
      .supports = [](const Conv2dProblem& z, Direction) { return lesson_takes(z.dtype); },
      .cost = one_product_in<8>,
      .workspace_bytes = empty_blackboard,
      .error_growth = 8,
      .one_chain = M != Mistake::one_chain,
      .exact_on_integers = true,
      .auto_ok = false,
      .forward = Wrong<M>::forward};
  if (M == Mistake::workspace) out.workspace_bytes = bytes_of_y;
  if (kForwardAlone) return out;
  out.backward_data = Wrong<M>::backward_data;
  out.backward_weight = Wrong<M>::backward_weight;
  return out;
}

// An algorithm for codes only, which sets y to 0.
Conv2dAlgorithm codes_algorithm() {
  return {.name = "wrong_codes",
          .idea = "zeros in place of codes",
          .supports =
              [](const Conv2dProblem& z, Direction) {
                const bool codes = z.types && z.types->text() == "u8:i8:i32:u8";
                return codes ? Conv2dSupport{} : Conv2dSupport::no("expects codes");
              },
          .cost = one_product_in<8>,
          .workspace_bytes = empty_blackboard,
          .exact_on_integers = true,
          .auto_ok = false,
          .takes_mixed_types = true,
          .takes_nchw16c_layout = true,
          .forward =
              [](const Conv2dForwardArgs& args) {
                const Conv2dProblem& z = args.problem;
                const Index pixels = z.p() * z.q();
                std::memset(args.y, 0,
                            static_cast<std::size_t>(z.n * ((z.k + 15) / 16) * 16 * pixels));
              }};
}

}  // namespace
}  // namespace convscope

using convscope::Mistake;
CONVSCOPE_CONV2D_PLUGIN(convscope::algorithm<Mistake::none>("no_mistake"),
                        convscope::algorithm<Mistake::border>("wrong_border"),
                        convscope::algorithm<Mistake::next_row>("wrong_next_row"),
                        convscope::algorithm<Mistake::dilation>("wrong_dilation"),
                        convscope::algorithm<Mistake::groups>("wrong_groups"),
                        convscope::algorithm<Mistake::flipped>("wrong_flipped"),
                        convscope::algorithm<Mistake::bias>("wrong_bias"),
                        convscope::algorithm<Mistake::unwritten>("wrong_unwritten"),
                        convscope::algorithm<Mistake::adds>("wrong_adds"),
                        convscope::algorithm<Mistake::behind>("wrong_behind"),
                        convscope::algorithm<Mistake::workspace>("wrong_workspace"),
                        convscope::algorithm<Mistake::accumulate>("wrong_accumulate"),
                        convscope::algorithm<Mistake::race>("wrong_race"),
                        convscope::algorithm<Mistake::one_chain>("wrong_one_chain"),
                        convscope::algorithm<Mistake::crash>("wrong_crash"),
                        convscope::algorithm<Mistake::endless>("wrong_endless"),
                        convscope::algorithm<Mistake::throws>("wrong_throws"),
                        convscope::algorithm<Mistake::blocks>("wrong_blocks"),
                        convscope::codes_algorithm())
