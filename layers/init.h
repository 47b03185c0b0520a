// SPDX-License-Identifier: Apache-2.0
// init.h: initial values of weights from counter-based random numbers: the same on every device,
// whatever the order in which layers are built.
//
//   kaiming_uniform  uniform in +-1/sqrt(fan_in), weights and biases: PyTorch's default for Linear
//                    and Conv2d (He et al. 2015 with a = sqrt(5))
//   kaiming_normal   normal with deviation sqrt(2/fan_in), biases 0 (He et al. 2015, for ReLU)
//
// Source: K. He, X. Zhang, S. Ren, J. Sun: Delving Deep into Rectifiers, ICCV 2015,
// arXiv 1502.01852.
#pragma once

#include <string>
#include <vector>

#include "framework/options.h"
#include "layers/layer_types.h"

namespace convscope {

CONVSCOPE_API const std::vector<std::string>& init_schemes();
// Returns an initial weight. `fan_in` is the number of inputs of each output. Each call takes one
// random stream of the context.
CONVSCOPE_API Tensor initial_weight(const std::string& scheme, const Shape& shape,
                                    std::int64_t fan_in, LayerContext& context);
CONVSCOPE_API Tensor initial_bias(const std::string& scheme, const Shape& shape,
                                  std::int64_t fan_in, LayerContext& context);
// Returns the option that layers with weights offer.
CONVSCOPE_API OptionField init_field();

}  // namespace convscope
