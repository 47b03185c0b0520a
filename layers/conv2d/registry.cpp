// SPDX-License-Identifier: Apache-2.0
// registry.cpp: the tables of convolution algorithms, one for each kind of device.
#include <algorithm>

#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

Registry<Conv2dAlgorithm>& conv2d_algorithms(DeviceType device) {
  static Registry<Conv2dAlgorithm> cpu("convolution algorithm");
  static Registry<Conv2dAlgorithm> cuda("convolution algorithm");
  return device == DeviceType::cpu ? cpu : cuda;
}

bool register_conv2d_algorithm(const Conv2dAlgorithm& card, const char* file) {
  Conv2dAlgorithm named = card;
  named.forward.set_name(card.name, name_of(Direction::forward));
  named.backward_data.set_name(card.name, name_of(Direction::backward_data));
  named.backward_weight.set_name(card.name, name_of(Direction::backward_weight));
  return conv2d_algorithms(card.device).add(card.name, named, file);
}

double share_beside(double flops, double share, double cycles) {
  const double per_cycle = current_isa() == Isa::scalar ? 8 : 32;
  const double work = std::max(flops, 1.0);
  return std::min(1.0, work / (work / share + cycles * per_cycle));
}

Conv2dSupport support_of(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                         Direction direction) {
  if (!algorithm.offers(direction)) {
    return Conv2dSupport::no(cat("does not compute ", name_of(direction)));
  }
  return algorithm.supports(problem, direction);
}

}  // namespace convscope
