// SPDX-License-Identifier: Apache-2.0
// card.cpp: the card of an algorithm of a heavy layer: what it is called, what it can do, what it
// costs, how exact it is, and its functions.
#include "layers/dispatch/card.h"

#include <algorithm>

#include "framework/machine/ceilings.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {

double share_beside(double flops, double share, double cycles) {
  const double per_cycle = current_isa() == Isa::scalar ? 8 : 32;
  const double work = std::max(flops, 1.0);
  return std::min(1.0, work / (work / share + cycles * per_cycle));
}

double estimated_ms(const Cost& cost, DeviceType device, DType factors) {
  const MachineCeilings machine = machine_ceilings(device);
  const double tensor =
      is_half(factors) ? machine.half_flops_per_second : machine.tf32_flops_per_second;
  const double peak = cost.tensor_cores && tensor > 0 ? tensor : machine.flops_per_second;
  const double compute = cost.flops / (peak * cost.peak_share);
  double seconds = std::max(compute, cost.bytes / machine.bytes_per_second);
  if (device == DeviceType::cuda) {
    seconds += cost.pass_bytes / machine.bytes_per_second + cost.launches * machine.launch_seconds;
  }
  return 1e3 * seconds;
}

double estimated_ms_prepared(Cost cost, std::size_t prepared_bytes, DeviceType device,
                             DType factors) {
  if (device == DeviceType::cpu) {
    cost.peak_share = std::min(1.0, cost.peak_share / (1 - cost.prepare_part));
    cost.bytes += static_cast<double>(prepared_bytes);
  }
  return estimated_ms(cost, device, factors);
}

}  // namespace convscope
