// SPDX-License-Identifier: Apache-2.0
// registry.cpp: the tables of convolution algorithms, one for each kind of device.
#include "layers/conv2d/algorithm.h"

namespace convscope {

Registry<Conv2dAlgorithm>& HeavyLayer<Conv2dProblem>::algorithms(DeviceType device) {
  static Registry<Conv2dAlgorithm> cpu("convolution algorithm");
  static Registry<Conv2dAlgorithm> cuda("convolution algorithm");
  return device == DeviceType::cpu ? cpu : cuda;
}

bool register_conv2d_algorithm(const Conv2dAlgorithm& card, const char* file) {
  return register_card(card, file);
}

}  // namespace convscope
