// SPDX-License-Identifier: Apache-2.0
// plugin.h: makes a plug-in of a source file outside of the repository. The last line of that file
// names its algorithms and, if it has any, its ladders.
//
//   const Conv2dAlgorithm kAlgorithm{.name = "mine", ...};
//   const Conv2dLadder kLadder{.name = "mine", ...};
//   CONVSCOPE_CONV2D_PLUGIN(convscope::kAlgorithm, convscope::kLadder)
//
// `convscope new algorithm NAME` writes such a source with its CMake file (see CONTRIBUTING.md).
// Plug-ins run on the CPU. Everything that a plug-in can see belongs to its interface; read
// layers/dispatch/plugin/plugin_facts.h before you change a struct.
#pragma once

#include <vector>

#include "layers/conv2d/ladder.h"
#include "layers/dispatch/plugin/plugin_facts.h"

namespace convscope {

// Filled in by the function convscope_conv2d_plugin() of a plug-in.
struct Conv2dPlugin {
  const char* source = "";
  std::vector<Conv2dAlgorithm> algorithms;
  std::vector<Conv2dLadder> ladders;

  void add(const Conv2dAlgorithm& algorithm) { algorithms.push_back(algorithm); }
  void add(const Conv2dLadder& ladder) { ladders.push_back(ladder); }
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored \
    "-Winvalid-offsetof"  // conv2d_plugin_facts() omits a member that is a reference
constexpr PluginFacts conv2d_plugin_facts() {
  using Algorithm = Conv2dAlgorithm;
  using Z = Conv2dProblem;
  using F = Conv2dForwardArgs;
  using D = Conv2dBackwardDataArgs;
  using W = Conv2dBackwardWeightArgs;
  const std::uint64_t layout = layout_digest(
      {offsetof(Algorithm, name), offsetof(Algorithm, device), offsetof(Algorithm, idea),
       offsetof(Algorithm, paper), offsetof(Algorithm, supports), offsetof(Algorithm, cost),
       offsetof(Algorithm, workspace_bytes), offsetof(Algorithm, prepared_bytes),
       offsetof(Algorithm, prepare_weights), offsetof(Algorithm, prepares_for_one_call),
       offsetof(Algorithm, error_growth), offsetof(Algorithm, one_chain),
       offsetof(Algorithm, exact_on_integers), offsetof(Algorithm, deterministic),
       offsetof(Algorithm, auto_ok), offsetof(Algorithm, fuses_epilogue),
       offsetof(Algorithm, takes_mixed_types), offsetof(Algorithm, takes_sparse_weights),
       offsetof(Algorithm, takes_nchw16c_layout), offsetof(Algorithm, takes_nchw16c_y),
       offsetof(Algorithm, takes_nhwc), offsetof(Algorithm, takes_half_operands),
       offsetof(Algorithm, forward), offsetof(Algorithm, backward_data),
       offsetof(Algorithm, backward_weight), sizeof(Algorithm),
       // covers the problem
       offsetof(Z, n), offsetof(Z, c), offsetof(Z, h), offsetof(Z, w), offsetof(Z, k),
       offsetof(Z, r), offsetof(Z, s), offsetof(Z, stride_h), offsetof(Z, stride_w),
       offsetof(Z, pad_top), offsetof(Z, pad_bottom), offsetof(Z, pad_left), offsetof(Z, pad_right),
       offsetof(Z, dilation_h), offsetof(Z, dilation_w), offsetof(Z, groups), offsetof(Z, dtype),
       offsetof(Z, math), offsetof(Z, types), offsetof(Z, weight_format), offsetof(Z, layout),
       sizeof(Z), sizeof(OperandTypes), sizeof(WeightFormat), sizeof(OperandSpec),
       // covers the arguments
       offsetof(F, x), offsetof(F, w), offsetof(F, b), offsetof(F, y), offsetof(F, workspace),
       offsetof(F, epilogue), offsetof(F, prepared), offsetof(F, views), offsetof(F, x_half),
       sizeof(F), offsetof(D, dy), offsetof(D, w), offsetof(D, dx), offsetof(D, workspace),
       offsetof(D, prepared), offsetof(D, views), offsetof(D, dy_half), sizeof(D), offsetof(W, x),
       offsetof(W, dy), offsetof(W, dw), offsetof(W, accumulate), offsetof(W, workspace),
       offsetof(W, views), offsetof(W, x_half), offsetof(W, dy_half), sizeof(W),
       sizeof(Conv2dPrepareArgs), offsetof(Conv2dPrepareArgs, direction),
       offsetof(Conv2dPrepareArgs, w), offsetof(Conv2dPrepareArgs, prepared),
       offsetof(Conv2dPrepareArgs, workspace), sizeof(Conv2dEpilogue),
       offsetof(Conv2dEpilogue, relu), offsetof(Conv2dEpilogue, most), sizeof(OperandViews),
       offsetof(OperandViews, w_blocks), sizeof(Quantisation), sizeof(BlockSparseView),
       sizeof(HalfOperands),
       // covers the results of supports() and cost()
       sizeof(Conv2dSupport), offsetof(Conv2dSupport, reason), sizeof(Conv2dCost),
       offsetof(Conv2dCost, bytes), offsetof(Conv2dCost, peak_share),
       offsetof(Conv2dCost, prepare_part),
       // covers the ladder
       sizeof(Conv2dRung), offsetof(Conv2dRung, isa), offsetof(Conv2dRung, threads),
       offsetof(Conv2dRung, sentence), sizeof(Conv2dLadder), offsetof(Conv2dLadder, problem),
       offsetof(Conv2dLadder, rungs), sizeof(Conv2dPlugin), offsetof(Conv2dPlugin, algorithms),
       offsetof(Conv2dPlugin, ladders),
       // covers the values of enumerators
       static_cast<std::size_t>(DType::f32), static_cast<std::size_t>(DType::f64),
       static_cast<std::size_t>(DType::i8), static_cast<std::size_t>(DType::u8),
       static_cast<std::size_t>(Direction::backward_data),
       static_cast<std::size_t>(Direction::backward_weight),
       static_cast<std::size_t>(ActivationLayout::nchw16c),
       static_cast<std::size_t>(ActivationLayout::nchw16c_y),
       static_cast<std::size_t>(ActivationLayout::nhwc), static_cast<std::size_t>(MathMode::tf32)});
  return plugin_facts("conv2d", sizeof(Algorithm), sizeof(Z), layout);
}
#pragma GCC diagnostic pop

inline constexpr const char* kConv2dPluginEntry = "convscope_conv2d_plugin";

}  // namespace convscope

// Algorithms of a plug-in do not register themselves: none of its code may run before its interface
// is checked.
#ifndef CONVSCOPE_VERSION  // defined only inside libconvscope
#undef CONVSCOPE_CONV2D_ALGORITHM
#define CONVSCOPE_CONV2D_ALGORITHM(algorithm) \
  static_assert(false, "a plug-in names its algorithms in CONVSCOPE_CONV2D_PLUGIN(algorithm)")
#endif

#define CONVSCOPE_CONV2D_PLUGIN(...)                                                \
  extern "C" {                                                                      \
  extern const CONVSCOPE_API ::convscope::PluginFacts convscope_plugin_facts;       \
  constinit const ::convscope::PluginFacts convscope_plugin_facts =                 \
      ::convscope::conv2d_plugin_facts();                                           \
  CONVSCOPE_API void convscope_conv2d_plugin(::convscope::Conv2dPlugin* plugin);    \
  void convscope_conv2d_plugin(::convscope::Conv2dPlugin* plugin) {                 \
    plugin->source = __FILE__;                                                      \
    const auto add = [plugin](const auto&... parts) { (plugin->add(parts), ...); }; \
    add(__VA_ARGS__);                                                               \
  }                                                                                 \
  }
