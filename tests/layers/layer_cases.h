// SPDX-License-Identifier: Apache-2.0
// layer_cases.h: builds layers by their registered name, as a config does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/layer_types.h"

namespace convscope::testing {

// The policy that selects direct convolution in either layout of images.
inline constexpr const char* kDirect = "direct_nchw16c,direct";

inline std::shared_ptr<Module> build_layer(const std::string& type, const Options& options,
                                           const Shape& input, LayerContext& context) {
  const LayerType& entry = layer_types().get(type);
  return entry.build(complete_options(entry.fields, options, type), input, context);
}

inline std::shared_ptr<Module> build_layer(const std::string& type, const Options& options,
                                           const Shape& input) {
  LayerContext context;
  context.seed = 5;
  return build_layer(type, options, input, context);
}

inline Options options(std::initializer_list<std::pair<const char*, OptionValue>> values) {
  Options out;
  for (const auto& [name, value] : values) out.set(name, value);
  return out;
}

}  // namespace convscope::testing
