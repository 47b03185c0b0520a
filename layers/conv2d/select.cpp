// SPDX-License-Identifier: Apache-2.0
#include "layers/conv2d/select.h"

#include <algorithm>
#include <mutex>

#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/conv2d/ceilings.h"
#include "layers/conv2d/measure.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv2d";
constexpr std::string_view kCheckPrefix = "check:";

std::mutex ceilings_mutex;
MachineCeilings ceilings_given[kDeviceTypeCount];

// The two names of "check:a,b".
struct Pair {
  std::string first, second;
};

Pair parse_check(const std::string& policy) {
  const std::string names = policy.substr(kCheckPrefix.size());
  const std::size_t comma = names.find(',');
  CONVSCOPE_CHECK(comma != std::string::npos && comma > 0 && comma + 1 < names.size() &&
                      names.find(',', comma + 1) == std::string::npos,
                  kOperation, "expected two algorithms like 'check:im2col_gemm,reference', got '",
                  policy, "'");
  return {names.substr(0, comma), names.substr(comma + 1)};
}

const Conv2dAlgorithm& algorithm_named(const std::string& name, Device device) {
  const Registry<Conv2dAlgorithm>& table = conv2d_algorithms(device.type);
  if (const Conv2dAlgorithm* found = table.find(name)) return *found;
  std::vector<std::string> words = table.names();
  words.insert(words.end(), {"auto", "measure"});
  const std::string near = nearest_word(name, words);
  fail(ErrorKind::kUnavailable, kOperation,
       cat("expected auto, measure, check:<a>,<b> or an algorithm for device ", device.str(), " (",
           join(table.names()), "), got '", name, "'",
           near.empty() ? "" : cat("; did you mean '", near, "'?")));
}

std::vector<std::string> accepting_names(const Conv2dProblem& problem, Direction direction,
                                         Device device) {
  std::vector<std::string> names;
  for (const auto& [name, algorithm] : conv2d_algorithms(device.type).entries()) {
    if (support_of(algorithm, problem, direction).yes) names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse(const std::string& who, const std::string& why,
                         const Conv2dProblem& problem, Direction direction, Device device) {
  const std::vector<std::string> others = accepting_names(problem, direction, device);
  fail(ErrorKind::kUnavailable, kOperation,
       cat("expected an algorithm that can compute ", name_of(direction), " of ", problem.text(),
           ", but '", who, "' ", why,
           others.empty() ? "; no algorithm here accepts it"
                          : cat("; these accept it: ", join(others))));
}

const Conv2dAlgorithm& accepting_algorithm(const std::string& name, const Conv2dProblem& problem,
                                           Direction direction, Device device) {
  const Conv2dAlgorithm& algorithm = algorithm_named(name, device);
  const Conv2dSupport support = support_of(algorithm, problem, direction);
  if (!support.yes) refuse(name, support.reason, problem, direction, device);
  return algorithm;
}

// What `auto` believes of the GPU. Where nobody measured, the figures are those of one H200
// (sustained: large products of random numbers, a copy); other GPUs have about the same ratios
// between them, and only these order the algorithms.
MachineCeilings gpu_ceilings() {
  if (const auto measured = remembered_gpu_ceilings()) {
    return {.flops_per_second = measured->f32_flops,
            .bytes_per_second = measured->copy_bytes,
            .tf32_flops_per_second = measured->tf32_flops,
            .half_flops_per_second = measured->half_flops,
            .launch_seconds = measured->launch_seconds};
  }
  return {.flops_per_second = 50e12,
          .bytes_per_second = 4.2e12,
          .tf32_flops_per_second = 360e12,
          .half_flops_per_second = 740e12,
          .launch_seconds = 2e-6};
}

const Conv2dAlgorithm& lowest_estimate(const Conv2dProblem& problem, Direction direction,
                                       Device device) {
  const std::vector<const Conv2dAlgorithm*> candidates =
      conv2d_candidates(problem, direction, device);
  if (candidates.empty()) {
    refuse("auto", "found none among those that it may choose", problem, direction, device);
  }
  return *candidates.front();
}

}  // namespace

std::vector<const Conv2dAlgorithm*> conv2d_candidates(const Conv2dProblem& problem,
                                                      Direction direction, Device device) {
  std::vector<const Conv2dAlgorithm*> preferred;
  std::vector<const Conv2dAlgorithm*> others;  // correct but slow: only when nothing else is there
  for (const auto& [name, algorithm] : conv2d_algorithms(device.type).entries()) {
    if (!support_of(algorithm, problem, direction).yes) continue;
    (algorithm.auto_ok ? preferred : others).push_back(&algorithm);
  }
  std::vector<const Conv2dAlgorithm*>& out = preferred.empty() ? others : preferred;
  std::ranges::stable_sort(out, {}, [&](const Conv2dAlgorithm* algorithm) {
    return estimated_ms(*algorithm, problem, direction);
  });
  return out;
}

Conv2dChoice select_conv2d(const std::string& policy, const Conv2dProblem& problem,
                           Direction direction, Device device) {
  if (policy == "auto") return {&lowest_estimate(problem, direction, device)};
  if (policy == "measure") {
    lowest_estimate(problem, direction, device);  // an error when there is nothing to measure
    return {&measure_conv2d(problem, direction, device)};
  }
  if (policy.starts_with(kCheckPrefix)) {
    const Pair pair = parse_check(policy);
    return {&accepting_algorithm(pair.first, problem, direction, device),
            &accepting_algorithm(pair.second, problem, direction, device)};
  }
  return {&accepting_algorithm(policy, problem, direction, device)};
}

void check_conv2d_policy(const std::string& policy, Device device) {
  if (policy == "auto" || policy == "measure") return;
  if (policy.starts_with(kCheckPrefix)) {
    const Pair pair = parse_check(policy);
    algorithm_named(pair.first, device);
    algorithm_named(pair.second, device);
    return;
  }
  algorithm_named(policy, device);
}

MachineCeilings machine_ceilings(DeviceType device) {
  {
    const std::scoped_lock lock(ceilings_mutex);
    const MachineCeilings& given = ceilings_given[static_cast<int>(device)];
    if (given.flops_per_second > 0) return given;
  }
  if (device == DeviceType::cuda) return gpu_ceilings();
  // Those of one thread times their number, though threads share the memory: the order of the
  // estimates, and with it every bit of a result, must not depend on the number of threads.
  if (const auto measured = remembered_cpu_ceilings()) {
    return {measured->flops.one_thread * num_threads(),
            measured->dram_copy.one_thread * num_threads()};
  }
  // 32 FLOPs a cycle with FMA vectors, 8 with SSE2, at 3.5 GHz; 25 GB/s for each core.
  const double per_core = current_isa() == Isa::scalar ? 28e9 : 112e9;
  return {per_core * num_threads(), 25e9 * num_threads()};
}

void set_machine_ceilings(const MachineCeilings& ceilings, DeviceType device) {
  const std::scoped_lock lock(ceilings_mutex);
  ceilings_given[static_cast<int>(device)] = ceilings;
}

double estimated_ms(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                    Direction direction) {
  const Conv2dCost cost = algorithm.cost(problem, direction);
  const MachineCeilings machine = machine_ceilings(algorithm.device);
  const bool half = problem.dtype == DType::f16 || problem.dtype == DType::bf16;
  const double tensor = half ? machine.half_flops_per_second : machine.tf32_flops_per_second;
  const double peak = cost.tensor_cores && tensor > 0 ? tensor : machine.flops_per_second;
  const double compute = cost.flops / (peak * cost.peak_share);
  double seconds = std::max(compute, cost.bytes / machine.bytes_per_second);
  if (algorithm.device == DeviceType::cuda) {
    seconds += cost.pass_bytes / machine.bytes_per_second + cost.launches * machine.launch_seconds;
  }
  return 1e3 * seconds;
}

std::vector<Conv2dVerdict> explain_conv2d(const std::string& policy, const Conv2dProblem& problem,
                                          Direction direction, Device device) {
  const Conv2dAlgorithm* chosen = nullptr;
  if (policy == "measure") {
    chosen = measured_conv2d(problem, direction, device);
    if (chosen == nullptr) chosen = &lowest_estimate(problem, direction, device);
  } else {
    chosen = select_conv2d(policy, problem, direction, device).algorithm;
  }
  std::vector<Conv2dVerdict> out;
  for (const auto& [name, algorithm] : conv2d_algorithms(device.type).entries()) {
    const Conv2dSupport support = support_of(algorithm, problem, direction);
    Conv2dVerdict verdict{.algorithm = name,
                          .idea = algorithm.idea,
                          .accepts = support.yes,
                          .reason = support.reason,
                          .chosen = &algorithm == chosen};
    if (support.yes) {
      verdict.estimated_ms = estimated_ms(algorithm, problem, direction);
      verdict.workspace_bytes = algorithm.workspace_bytes(problem, direction);
      if (!algorithm.auto_ok) verdict.reason = "accepts it, but auto chooses it only when alone";
    }
    out.push_back(std::move(verdict));
  }
  std::ranges::stable_sort(out, [](const Conv2dVerdict& a, const Conv2dVerdict& b) {
    if (a.accepts != b.accepts) return a.accepts;
    return a.estimated_ms < b.estimated_ms;
  });
  return out;
}

}  // namespace convscope
