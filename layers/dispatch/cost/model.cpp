// SPDX-License-Identifier: Apache-2.0
// model.cpp: the time of a call, from its counts and the coefficients of the device.
#include "layers/dispatch/cost/model.h"

#include <algorithm>
#include <cmath>

#include "framework/machine/cache_sizes.h"
#include "framework/machine/peaks.h"
#include "framework/parallel.h"
#include "framework/precision.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/cost/device_table.h"
#include "layers/dispatch/elements.h"

namespace convscope {
namespace {

constexpr std::size_t kBytesInL2 = 1, kBytesInL3 = 2, kBytesFar = 3;
static_assert(kCostTerms[kBytesFar].name == std::string_view("bytes"));

// Returns 0 where `bytes` fit into a cache, 1 where the cache holds little of them. Between half
// and one and a half times its size a part stays.
double missing(double bytes, double cache) {
  return cache > 0 ? std::clamp(bytes / cache - 0.5, 0.0, 1.0) : 1;
}

// Chunks that do not divide evenly keep some threads waiting for the last one.
double imbalance(double chunks, double threads) {
  return chunks > 0 ? std::ceil(chunks / threads) * threads / chunks : 1;
}

// Seconds of the arithmetic and of the memory traffic of a GPU's kernel.
struct GpuParts {
  double compute = 0, moving = 0, passes = 0, launches = 0;
};
GpuParts gpu_parts(const Cost& cost, DType operand_type) {
  const MachinePeaks machine = machine_peaks(DeviceType::cuda);
  // Tensor cores multiply int8 at twice the rate of fp16.
  const double tensor = is_code(operand_type)   ? 2 * machine.half_flops_per_second
                        : is_half(operand_type) ? machine.half_flops_per_second
                                                : machine.tf32_flops_per_second;
  const double peak = cost.tensor_cores && tensor > 0 ? tensor : machine.flops_per_second;
  return {.compute = cost.flops / (peak * cost.peak_share),
          .moving = cost.bytes / machine.bytes_per_second,
          .passes = cost.pass_bytes / machine.bytes_per_second,
          .launches = cost.launches * machine.launch_seconds};
}

double ms_of(const Cost& cost, const Coefficients& coefficients, DeviceType device,
             DType operand_type, WeightUse use, std::size_t prepared_bytes) {
  const bool prepared = use == WeightUse::often && prepared_bytes > 0;
  if (device == DeviceType::cuda) {
    const GpuParts of = gpu_parts(cost, operand_type);
    const double seconds = std::max(of.compute, of.moving) + of.passes + of.launches;
    return 1e3 * seconds * (prepared ? 1 - cost.prepare_part : 1);
  }
  const Coefficients seconds = seconds_per_coefficient(cost, operand_type, use, prepared_bytes);
  double sum = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) sum += coefficients[i] * seconds[i];
  return 1e3 * sum;
}

}  // namespace

double flops_per_cycle(DType operand_type) {
  const Isa isa = current_isa();
  const double f32 = isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 8;
  return f32 * (is_code(operand_type) ? peak_of_bytes() : 1);
}

Coefficients seconds_per_coefficient(const Cost& cost, DType operand_type, WeightUse use,
                                     std::size_t prepared_bytes) {
  const MachinePeaks machine = machine_peaks(DeviceType::cpu);
  // Loops with few FLOPs run in one thread (framework/parallel.h). Where results must not depend on
  // the machine, they must not depend on the number of threads either. Each thread then has the
  // same share of every count, so the choice of an algorithm is that of one thread.
  const bool equal_shares = !believes_measured_peaks();
  const double used = !equal_shares && cost.flops < kFlopsWorthThreads ? 1 : num_threads();
  const double threads = equal_shares ? 1 : used;
  // The peaks are those of all threads together.
  const double flop = num_threads() / used / machine.peak(operand_type);
  const double cycle = flop * flops_per_cycle(operand_type);
  const double byte = 1 / machine.bytes_per_second;
  Cost counted = cost;
  if (use == WeightUse::often && prepared_bytes > 0) {
    counted.prepared = 0;
    counted.bytes += static_cast<double>(prepared_bytes);
  }
  const double waits = imbalance(cost.chunks, threads);
  Coefficients out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const CostTerm& term = kCostTerms[i];
    const double unit = term.unit == CostUnit::peak     ? flop * waits
                        : term.unit == CostUnit::memory ? byte
                                                        : cycle * waits;
    out[i] = counted.*term.count * unit;
  }
  for (double Cost::*const alone : {&Cost::regions, &Cost::calls}) {
    const auto at = std::ranges::find(kCostTerms, alone, &CostTerm::count) - kCostTerms.begin();
    out[static_cast<std::size_t>(at)] = counted.*alone * cycle * threads;
    if (alone == &Cost::regions && threads == 1) out[static_cast<std::size_t>(at)] = 0;
  }
  const CacheSizes& caches = cache_sizes();
  const double beyond_l2 = missing(counted.bytes, threads * static_cast<double>(caches.l2));
  const double beyond_l3 = missing(counted.bytes, static_cast<double>(caches.l3));
  out[kBytesInL2] *= 1 - beyond_l2;
  out[kBytesInL3] *= beyond_l2 * (1 - beyond_l3);
  out[kBytesFar] *= beyond_l2 * beyond_l3;
  return out;
}

double estimated_ms(const CostKey& key, const Cost& cost, DeviceType device, DType operand_type,
                    WeightUse use, std::size_t prepared_bytes) {
  const Coefficients& coefficients =
      device == DeviceType::cpu ? coefficients_of(key, cost.schedule) : kDefaultCoefficients;
  return ms_of(cost, coefficients, device, operand_type, use, prepared_bytes);
}

double estimated_ms(const Cost& cost, DeviceType device, DType operand_type) {
  return ms_of(cost, kDefaultCoefficients, device, operand_type, WeightUse::once, 0);
}

const char* limit_of(const CostKey& key, const Cost& cost, DeviceType device, DType operand_type) {
  if (device == DeviceType::cuda) {
    const GpuParts of = gpu_parts(cost, operand_type);
    const double memory = of.moving + of.passes;
    if (of.launches > std::max(of.compute, memory)) return "launches";
    return of.compute > memory ? "arithmetic" : "memory";
  }
  const Coefficients coefficients = coefficients_of(key, cost.schedule);
  const Coefficients seconds = seconds_per_coefficient(cost, operand_type, WeightUse::once, 0);
  double memory = 0, other = 0;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    (kCostTerms[i].unit == CostUnit::memory ? memory : other) += coefficients[i] * seconds[i];
  }
  return other > memory ? "arithmetic" : "memory";
}

}  // namespace convscope
