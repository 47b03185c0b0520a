// SPDX-License-Identifier: Apache-2.0
// registry.cpp: the tables of convolution algorithms and of their ladders, one for each kind of
// device.
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/ladder.h"

namespace convscope {

Registry<Conv2dAlgorithm>& Operator<Conv2dProblem>::algorithms(DeviceType device) {
  static Registry<Conv2dAlgorithm> cpu("convolution algorithm");
  static Registry<Conv2dAlgorithm> cuda("convolution algorithm");
  return device == DeviceType::cpu ? cpu : cuda;
}

bool register_conv2d_algorithm(const Conv2dAlgorithm& algorithm, const char* file) {
  return register_algorithm(algorithm, file);
}

Registry<Conv2dLadder>& conv2d_ladders(DeviceType device) {
  static Registry<Conv2dLadder> cpu("ladder");
  static Registry<Conv2dLadder> cuda("ladder");
  return device == DeviceType::cpu ? cpu : cuda;
}

bool register_conv2d_ladder(const Conv2dLadder& ladder, const char* file) {
  return conv2d_ladders(ladder.device).add(ladder.name, ladder, file);
}

std::string label_of(const Conv2dRung& rung) {
  std::string out = rung.algorithm;
  if (*rung.isa != '\0') out += cat(", ", rung.isa);
  if (rung.math != MathMode::f32) out += cat(", ", name_of(rung.math));
  if (rung.prepare_each_call) out += ", weights prepared in each call";
  if (rung.threads != 0) out += cat(", ", rung.threads, rung.threads == 1 ? " thread" : " threads");
  return out;
}

}  // namespace convscope
