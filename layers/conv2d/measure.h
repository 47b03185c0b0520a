// SPDX-License-Identifier: Apache-2.0
// measure.h: the policy "measure": time every algorithm that accepts a problem, remember the
// fastest, in this process and on disk.
//
// The file is conv2d_<device>.json in CONVSCOPE_CACHE_DIR, or else in $XDG_CACHE_HOME/convscope or
// ~/.cache/convscope. Keys name the CPU, the instruction set and the number of threads, or the GPU and
// its driver, then the direction and the problem, so one file serves several machines. A file that cannot be read or is not ours
// is ignored with a warning and written anew; one that cannot be written is a warning only.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"

namespace convscope {

// Algorithms that `auto` and `measure` may choose, best estimate first; those with auto_ok = false
// only when there is no other.
CONVSCOPE_API std::vector<const Conv2dAlgorithm*> conv2d_candidates(const Conv2dProblem& problem,
                                                                    Direction direction,
                                                                    Device device);

CONVSCOPE_API const Conv2dAlgorithm& measure_conv2d(const Conv2dProblem& problem,
                                                    Direction direction, Device device);
// The remembered answer, or null: never runs anything.
CONVSCOPE_API const Conv2dAlgorithm* measured_conv2d(const Conv2dProblem& problem,
                                                     Direction direction, Device device);
// Forgets what this process remembers, so that the file is read again. For tests.
CONVSCOPE_API void forget_measured_conv2d();
CONVSCOPE_API std::string measure_cache_path(Device device);
CONVSCOPE_API std::string cpu_model_name();
CONVSCOPE_API std::string gpu_name(Device device);  // "NVIDIA H200 | driver 13.0"

}  // namespace convscope
