// SPDX-License-Identifier: Apache-2.0
// forward_moments.cpp: the table of forward kernels that also write the mean and spread of each
// channel.
#include "layers/plan/forward_moments.h"

namespace convscope {
namespace {

Registry<ForwardMoments>& table(DeviceType device) {
  static Registry<ForwardMoments> cpu("forward with moments");
  static Registry<ForwardMoments> cuda("forward with moments");
  return device == DeviceType::cpu ? cpu : cuda;
}

}  // namespace

bool register_forward_moments(const Conv2dAlgorithm& algorithm, const ForwardMoments& moments,
                              const char* file) {
  return table(algorithm.device).add(algorithm.name, moments, file);
}

const ForwardMoments* forward_moments_of(const Conv2dAlgorithm& algorithm,
                                         const Conv2dProblem& problem) {
  const ForwardMoments* const moments = table(algorithm.device).find(algorithm.name);
  return moments != nullptr && moments->parts(problem) > 0 ? moments : nullptr;
}

Tensor moments_target(Emitter& emitter, ValueId value, std::int64_t parts) {
  const std::int64_t lanes = emitter.graph().stored_shape(value)[4];
  CompanionSlot& to = emitter.companion(value, Companion::moments);
  to.slot = emitter.slot({parts, 4, lanes}, DType::f32);
  return emitter.use(to.slot);
}

Tensor moments_of(Emitter& emitter, ValueId value) {
  const Slot slot = emitter.companion(value, Companion::moments).slot;
  return slot == kNoSlot ? Tensor() : emitter.use(slot);
}

void run_forward_moments(const Conv2dAlgorithm& algorithm, const ForwardMoments& moments,
                         const Conv2dForwardArgs& args, float* to) {
  kernel_ran(algorithm.name, name_of(Direction::forward), args.problem);
  moments.run(args, to);
}

}  // namespace convscope
