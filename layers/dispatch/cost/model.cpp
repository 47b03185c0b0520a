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

// Returns 0 where `bytes` fit into a cache, 1 where the cache holds little of them. Between half
// and one and a half times its size a part stays.
double missing(double bytes, double cache) {
  return cache > 0 ? std::clamp(bytes / cache - 0.5, 0.0, 1.0) : 1;
}

// Chunks that do not divide evenly keep some threads waiting for the last one.
double imbalance(double chunks, double threads) {
  return chunks > 0 ? std::ceil(chunks / threads) * threads / chunks : 1;
}

double ms_of(const Cost& cost, const Coefficients& coefficients, DeviceType device,
             DType operand_type, WeightUse use, std::size_t prepared_bytes) {
  return 1e3 * estimated_seconds(seconds_per_coefficient(cost, device, machine_peaks(device),
                                                         operand_type, use, prepared_bytes),
                                 coefficients);
}

// The part of `bytes` that L2 does not hold moves at the bandwidth of memory.
struct ByCache {
  double near = 0, far = 0;
};
ByCache by_cache(double bytes, double cache) {
  const double beyond = missing(bytes, cache);
  return {bytes * (1 - beyond), bytes * beyond};
}

Coefficients gpu_seconds(const Cost& cost, const MachinePeaks& gpu, DType operand_type,
                         bool prepared) {
  // Tensor cores multiply int8 at twice the rate of fp16.
  const double tensor = is_code(operand_type)   ? 2 * gpu.half_flops_per_second
                        : is_half(operand_type) ? gpu.half_flops_per_second
                                                : gpu.tf32_flops_per_second;
  const double peak = cost.tensor_cores && tensor > 0 ? tensor : gpu.flops_per_second;
  const double cycle = 256 * gpu.processors / gpu.flops_per_second;  // 128 FMAs in each
  const double byte = 1 / gpu.bytes_per_second;
  // Without blocks, the work counts as spread evenly.
  const double blocks = cost.blocks > 0 ? cost.blocks : gpu.processors;
  const double here = std::ceil(blocks / gpu.processors);  // of the SM with most
  const double rounds = cost.blocks > 0 ? std::ceil(here / std::max(cost.resident, 1.0)) : 0;
  const double imbalance = here * gpu.processors / blocks;
  const ByCache bytes = by_cache(cost.bytes, gpu.l2_bytes);
  const ByCache passes = by_cache(cost.pass_bytes, gpu.l2_bytes);
  return {rounds * cycle,
          rounds * cost.chain * cycle,
          rounds * cost.copies * cycle,
          rounds * cost.waits * cycle,
          rounds * cost.issued / blocks * gpu.processors / peak,
          imbalance * cost.issued / peak,
          here * cycle,
          here * cost.chain * cycle,
          imbalance * cost.cached * byte,
          imbalance * cost.listed_warps / gpu.processors * cycle,
          imbalance * cost.stored / gpu.processors * cycle,
          bytes.near * byte,
          bytes.far * byte,
          passes.near * byte,
          passes.far * byte,
          cost.launches * gpu.launch_seconds,
          prepared ? 0 : cost.prepared_bytes * byte,
          prepared ? 0 : cost.prepare_launches * gpu.launch_seconds};
}

// With equal shares, each thread has the same share of every count, so a choice is that of one
// thread.
Coefficients cpu_seconds(const Cost& cost, const MachinePeaks& machine, DType operand_type,
                         bool equal_shares) {
  // Loops with few FLOPs run in one thread (framework/parallel.h).
  const double used = !equal_shares && cost.flops < kFlopsWorthThreads ? 1 : num_threads();
  const double threads = equal_shares ? 1 : used;
  // The peaks are those of all threads together.
  const double flop = num_threads() / used / machine.peak(operand_type);
  const double cycle = flop * flops_per_cycle(operand_type);
  const double byte = 1 / machine.bytes_per_second;
  const double waits = imbalance(cost.chunks, threads);
  const CacheSizes& caches = cache_sizes();
  const double beyond_l2 = missing(cost.bytes, threads * static_cast<double>(caches.l2));
  const double beyond_l3 = missing(cost.bytes, static_cast<double>(caches.l3));
  return {cost.issued * flop * waits,
          cost.bytes * byte * (1 - beyond_l2),
          cost.bytes * byte * beyond_l2 * (1 - beyond_l3),
          cost.bytes * byte * beyond_l2 * beyond_l3,
          cost.cached * byte,
          cost.loads * cycle * waits,
          cost.tiles * cycle * waits,
          cost.copied * cycle * waits,
          cost.transposed * cycle * waits,
          cost.transformed * cycle * waits,
          cost.listed * cycle * waits,
          cost.prepared * cycle * waits,
          threads == 1 ? 0 : cost.regions * cycle * threads,
          cost.calls * cycle * threads};
}

}  // namespace

double flops_per_cycle(DType operand_type) {
  const Isa isa = current_isa();
  const double f32 = isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 8;
  return f32 * (is_code(operand_type) ? peak_of_bytes() : 1);
}

Coefficients seconds_per_coefficient(const Cost& cost, DeviceType device, const MachinePeaks& peaks,
                                     DType operand_type, WeightUse use,
                                     std::size_t prepared_bytes) {
  const bool prepared = use == WeightUse::often && prepared_bytes > 0;
  if (device == DeviceType::cuda) return gpu_seconds(cost, peaks, operand_type, prepared);
  Cost counted = cost;
  if (prepared) {
    counted.prepared = 0;
    counted.bytes += static_cast<double>(prepared_bytes);
  }
  // Where results must not depend on the machine, they must not depend on the number of threads
  // either.
  return cpu_seconds(counted, peaks, operand_type, !believes_measured_peaks());
}

Coefficients seconds_of_schedule(const Cost& cost, DeviceType device, const MachinePeaks& peaks,
                                 DType operand_type) {
  return device == DeviceType::cuda ? gpu_seconds(cost, peaks, operand_type, false)
                                    : cpu_seconds(cost, peaks, operand_type, true);
}

double estimated_seconds(const Coefficients& terms, const Coefficients& coefficients) {
  double sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += coefficients[i] * terms[i];
  return sum;
}

double estimated_ms(const CostKey& key, const Cost& cost, DeviceType device, DType operand_type,
                    WeightUse use, std::size_t prepared_bytes) {
  return ms_of(cost, coefficients_of(key, cost.schedule, device), device, operand_type, use,
               prepared_bytes);
}

double estimated_ms(const Cost& cost, DeviceType device, DType operand_type) {
  return ms_of(cost, default_coefficients(device), device, operand_type, WeightUse::once, 0);
}

const char* limit_of(const CostKey& key, const Cost& cost, DeviceType device, DType operand_type) {
  const Coefficients coefficients = coefficients_of(key, cost.schedule, device);
  const Coefficients seconds = seconds_per_coefficient(cost, device, machine_peaks(device),
                                                       operand_type, WeightUse::once, 0);
  double memory = 0, launches = 0, other = 0;
  const std::span<const CostTerm> terms = cost_terms(device);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    double& sum = terms[i].unit == CostUnit::memory   ? memory
                  : terms[i].unit == CostUnit::launch ? launches
                                                      : other;
    sum += coefficients[i] * seconds[i];
  }
  if (launches > std::max(memory, other)) return "launches";
  return other > memory ? "arithmetic" : "memory";
}

}  // namespace convscope
