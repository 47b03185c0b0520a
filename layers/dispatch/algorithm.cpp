// SPDX-License-Identifier: Apache-2.0
// algorithm.cpp: the description of one algorithm of an operator: its name, what it supports, its
// cost, its error bounds and its functions.
#include "layers/dispatch/algorithm.h"

#include <algorithm>

#include "framework/machine/peaks.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {
namespace {

constexpr double kNotHidden = 0.5;

// Seconds of the arithmetic and of the memory traffic.
struct Parts {
  double compute = 0, moving = 0;
};
Parts parts_of(const Cost& cost, DeviceType device, DType operand_type) {
  const MachinePeaks machine = machine_peaks(device);
  // Tensor cores multiply int8 at twice the rate of fp16.
  const double tensor = is_code(operand_type)   ? 2 * machine.half_flops_per_second
                        : is_half(operand_type) ? machine.half_flops_per_second
                                                : machine.tf32_flops_per_second;
  const double peak = cost.tensor_cores && tensor > 0 ? tensor
                      : device == DeviceType::cpu     ? machine.peak(operand_type)
                                                      : machine.flops_per_second;
  return {cost.flops / (peak * cost.peak_share), cost.bytes / machine.bytes_per_second};
}

}  // namespace

double share_with_overhead(double flops, double share, double cycles, DType operand_type) {
  // FLOPs per cycle of two FMA ports: 8 with SSE2 (no FMA), 32 with 8 lanes, 64 with 16 lanes.
  const double per_cycle = (current_isa() == Isa::scalar   ? 8
                            : current_isa() == Isa::avx512 ? 64
                                                           : 32) *
                           (is_code(operand_type) ? peak_of_bytes() : 1);
  const double work = std::max(flops, 1.0);
  return std::min(1.0, work / (work / share + cycles * per_cycle));
}

Cost with_preparation(Cost cost, double cycles) {
  const double share = share_with_overhead(cost.flops, cost.peak_share, cycles);
  cost.prepare_part = 1 - share / cost.peak_share;
  cost.peak_share = share;
  return cost;
}

double estimated_ms(const Cost& cost, DeviceType device, DType operand_type) {
  const MachinePeaks machine = machine_peaks(device);
  const auto [compute, moving] = parts_of(cost, device, operand_type);
  double seconds = std::max(compute, moving);
  // On a CPU half of the shorter time (of `compute` and `moving`) overlaps with the longer one, and
  // the other half is added. So among memory-bound algorithms the one with fewer FLOPs gets the
  // lower estimate.
  if (device == DeviceType::cpu) seconds += kNotHidden * std::min(compute, moving);
  if (device == DeviceType::cuda) {
    seconds += cost.pass_bytes / machine.bytes_per_second + cost.launches * machine.launch_seconds;
  }
  return 1e3 * seconds;
}

const char* limit_of(const Cost& cost, DeviceType device, DType operand_type) {
  const MachinePeaks machine = machine_peaks(device);
  const auto [compute, moving] = parts_of(cost, device, operand_type);
  if (device == DeviceType::cuda) {
    const double passes = cost.pass_bytes / machine.bytes_per_second;
    const double starts = cost.launches * machine.launch_seconds;
    if (starts > std::max(compute, moving + passes)) return "launches";
    return compute > moving + passes ? "arithmetic" : "memory";
  }
  return compute > moving ? "arithmetic" : "memory";
}

double estimated_ms_prepared(Cost cost, std::size_t prepared_bytes, DeviceType device,
                             DType operand_type) {
  if (device == DeviceType::cpu) {
    cost.peak_share = std::min(1.0, cost.peak_share / (1 - cost.prepare_part));
    cost.bytes += static_cast<double>(prepared_bytes);
  }
  const double prepared_part = device == DeviceType::cuda ? cost.prepare_part : 0;
  return (1 - prepared_part) * estimated_ms(cost, device, operand_type);
}

}  // namespace convscope
