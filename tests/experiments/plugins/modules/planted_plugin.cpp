// SPDX-License-Identifier: Apache-2.0
// planted_plugin.cpp: a plug-in in which each algorithm has one mistake that students typically
// make.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "framework/parallel.h"
#include "layers/plugin/plugin.h"

namespace {

using Index = int64_t;
using Problem = ConvscopeConv2dProblem;

Index y_numel(const Problem& z) { return z.n * z.k * z.p * z.q; }

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
  static void products(const Problem& z, Index n_begin, Index n_end, auto visit) {
    const Index c_per_group = z.c / z.groups;
    for (Index n = n_begin; n < n_end; ++n) {
      for (Index k = 0; k < z.k; ++k) {
        const Index g = M == Mistake::groups ? 0 : k / (z.k / z.groups);
        for (Index p = 0; p < z.p; ++p) {
          if (M == Mistake::unwritten && p == z.p - 1) continue;
          for (Index q = 0; q < z.q; ++q) {
            for (Index c = 0; c < c_per_group; ++c) {
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
                  visit(((n * z.c + g * c_per_group + c) * z.h + h) * z.w + v,
                        ((k * c_per_group + c) * z.r + row) * z.s + column,
                        ((n * z.k + k) * z.p + p) * z.q + q);
                }
              }
            }
          }
        }
      }
    }
  }

  static void forward(const ConvscopeConv2dCall* call) {
    const Problem& z = *call->problem;
    const float* const b = call->b;
    float* const y = call->y;
    const Index pixels = z.p * z.q;
    if (M == Mistake::throws) throw std::runtime_error("on purpose");
    if (M == Mistake::crash) std::raise(SIGSEGV);
    for (volatile bool on = true; M == Mistake::endless && on;) {
    }
    for (Index i = 0; i < y_numel(z) && M != Mistake::adds; ++i) {
      if (M == Mistake::unwritten && i / z.q % z.p == z.p - 1) continue;
      y[i] = M == Mistake::bias || b == nullptr ? 0.0f : b[i / pixels % z.k];
    }
    auto* const sums = M == Mistake::workspace ? static_cast<float*>(call->workspace) : y;
    products(z, 0, z.n, [&](Index at_x, Index at_w, Index at_y) {
      const bool wrong = M == Mistake::blocks && at_y / pixels % z.k >= z.k / 8 * 8;
      sums[at_y] += (wrong ? 1.5f : 1.0f) * call->x[at_x] * call->w[at_w];
    });
    for (Index i = 0; i < y_numel(z) && M == Mistake::workspace; ++i) y[i] += sums[i];
    if (M == Mistake::behind) y[y_numel(z)] = 0;
  }

  static void backward_data(const ConvscopeConv2dCall* call) {
    const Problem& z = *call->problem;
    std::fill_n(call->dx, z.n * z.c * z.h * z.w, 0.0f);
    products(z, 0, z.n, [&](Index at_x, Index at_w, Index at_y) {
      call->dx[at_x] += call->w[at_w] * call->dy[at_y];
    });
  }

  static void backward_weight(const ConvscopeConv2dCall* call) {
    const Problem& z = *call->problem;
    float* const dw = call->dw;
    if (!call->accumulate || M == Mistake::accumulate) {
      std::fill_n(dw, z.k * (z.c / z.groups) * z.r * z.s, 0.0f);
    }
    const auto images = [&](Index begin, Index end) {
      products(z, begin, end, [&](Index at_x, Index at_w, Index at_y) {
        const float before = dw[at_w];
        // The yield makes the race occur on a busy machine, too. There the threads might otherwise
        // run one after the other.
        if (M == Mistake::race && at_w == 0) std::this_thread::yield();
        dw[at_w] = before + call->dy[at_y] * call->x[at_x];
      });
    };
    if (M == Mistake::race) {
      convscope::parallel_for(z.n, 1, images);
    } else {
      images(0, z.n);
    }
  }
};

size_t bytes_of_y(const Problem* z, int32_t direction) {
  return direction == CONVSCOPE_FORWARD ? static_cast<size_t>(y_numel(*z)) * sizeof(float) : 0;
}

template <Mistake M>
constexpr ConvscopeConv2dAlgorithm algorithm(const char* name) {
  constexpr bool kForwardAlone = M == Mistake::crash || M == Mistake::endless ||
                                 M == Mistake::throws || M == Mistake::workspace;
  return {.name = name,
          .idea = "the textbook with a mistake",
          .flags = CONVSCOPE_EXACT_ON_INTEGERS |
                   (M != Mistake::one_chain ? uint32_t{CONVSCOPE_ONE_CHAIN} : 0u),
          .error_growth = 8,
          .forward = Wrong<M>::forward,
          .backward_data = kForwardAlone ? nullptr : Wrong<M>::backward_data,
          .backward_weight = kForwardAlone ? nullptr : Wrong<M>::backward_weight,
          .workspace_bytes = M == Mistake::workspace ? bytes_of_y : nullptr};
}

int32_t takes_codes(const Problem* z, int32_t, char* reason, size_t reason_bytes) {
  if (z->x_type == CONVSCOPE_U8 && z->w_type == CONVSCOPE_I8 && z->y_type == CONVSCOPE_U8) return 1;
  std::snprintf(reason, reason_bytes, "expects codes");
  return 0;
}

// Sets y, which holds codes in place of floats, to 0.
void zero_codes(const ConvscopeConv2dCall* call) {
  const Problem& z = *call->problem;
  std::fill_n(reinterpret_cast<uint8_t*>(call->y), z.n * ((z.k + 15) / 16) * 16 * z.p * z.q,
              uint8_t{0});
}

constexpr ConvscopeConv2dAlgorithm kAlgorithms[] = {
    algorithm<Mistake::none>("no_mistake"),
    algorithm<Mistake::border>("wrong_border"),
    algorithm<Mistake::next_row>("wrong_next_row"),
    algorithm<Mistake::dilation>("wrong_dilation"),
    algorithm<Mistake::groups>("wrong_groups"),
    algorithm<Mistake::flipped>("wrong_flipped"),
    algorithm<Mistake::bias>("wrong_bias"),
    algorithm<Mistake::unwritten>("wrong_unwritten"),
    algorithm<Mistake::adds>("wrong_adds"),
    algorithm<Mistake::behind>("wrong_behind"),
    algorithm<Mistake::workspace>("wrong_workspace"),
    algorithm<Mistake::accumulate>("wrong_accumulate"),
    algorithm<Mistake::race>("wrong_race"),
    algorithm<Mistake::one_chain>("wrong_one_chain"),
    algorithm<Mistake::crash>("wrong_crash"),
    algorithm<Mistake::endless>("wrong_endless"),
    algorithm<Mistake::throws>("wrong_throws"),
    algorithm<Mistake::blocks>("wrong_blocks"),
    {.name = "wrong_codes",
     .idea = "zeros in place of codes",
     .flags = CONVSCOPE_EXACT_ON_INTEGERS | CONVSCOPE_TAKES_TYPES | CONVSCOPE_TAKES_NCHW16C,
     .error_growth = 1,
     .forward = zero_codes,
     .supports = takes_codes}};

}  // namespace
CONVSCOPE_PLUGIN(kAlgorithms)
