// SPDX-License-Identifier: Apache-2.0
// select.h: from a policy's word ("auto", "measure", "check:a,b" or a name) to an algorithm.
//
// auto      the algorithm with the lowest estimated time among those that accept the problem.
// measure   the fastest of them when timed; remembered on disk (measure.h).
// check:a,b run a and b, compare within their error bounds, return a's result.
// <name>    that one. An unknown name, or one that refuses the problem, is an error of kind
//           kUnavailable that says why, and who would accept.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/policy.h"

namespace convscope {

struct Conv2dChoice {
  const Conv2dAlgorithm* algorithm = nullptr;
  const Conv2dAlgorithm* checked_by = nullptr;  // not null: run this one too and compare
};

// May take long for "measure". Call it once for each problem and keep the answer.
CONVSCOPE_API Conv2dChoice select_conv2d(const std::string& policy, const Conv2dProblem& problem,
                                         Direction direction, Device device);

// An error when `policy` is no word above, or names an algorithm that `device` does not have;
// needs no problem, so configs can be checked early.
CONVSCOPE_API void check_conv2d_policy(const std::string& policy, Device device);

// What `auto` believes of the machine; all threads together: what was set, or what was measured
// (ceilings.h), or the numbers of one modern server core for each thread, which order algorithms
// well enough. Both figures grow alike with the threads, so that the order does not.
struct MachineCeilings {
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // GPU only; 0 = as flops_per_second.
  double tf32_flops_per_second = 0;  // tensor cores
  double half_flops_per_second = 0;
  double launch_seconds = 0;
};
CONVSCOPE_API MachineCeilings machine_ceilings(DeviceType device = DeviceType::cpu);
CONVSCOPE_API void set_machine_ceilings(const MachineCeilings& ceilings,  // {} = defaults again
                                        DeviceType device = DeviceType::cpu);

CONVSCOPE_API double estimated_ms(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                                  Direction direction);

// One line of `convscope explain`.
struct Conv2dVerdict {
  std::string algorithm;
  std::string idea;
  bool accepts = false;
  std::string reason;       // why not; or, when it accepts, what else speaks against it
  double estimated_ms = 0;  // 0 when it refuses
  std::size_t workspace_bytes = 0;
  bool chosen = false;  // by the policy
};
// Every algorithm of the device: those that accept, by estimated time, then those that refuse. The
// policy "measure" is answered from the cache or by auto's order: nothing is run.
CONVSCOPE_API std::vector<Conv2dVerdict> explain_conv2d(const std::string& policy,
                                                        const Conv2dProblem& problem,
                                                        Direction direction, Device device);

}  // namespace convscope
