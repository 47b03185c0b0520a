// SPDX-License-Identifier: Apache-2.0
// recorded_algorithm.h: records and replays a convolution algorithm on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/run.h"
#include "tests/support/stored_integers.h"

namespace convscope::testing {

// Records a call as a CUDA graph, overwrites its result, and replays the graph. The replay must
// restore the bits of the call.
inline void expect_replayed(const Conv2dAlgorithm& algorithm, const Conv2dProblem& z,
                            Direction direction) {
  const Operands operands = random_operands(z.operands(direction), cuda());
  const Scratch<Conv2dProblem> scratch(algorithm, z, direction, cuda());
  run_algorithm(algorithm, z, direction, operands, scratch);
  const std::vector<float> direct = floats_of(operands.out[0].values);
  const DeviceBackend& backend = backend_of(cuda());
  backend.begin_recording(0);
  run_algorithm(algorithm, z, direction, operands, scratch);
  void* const recording = backend.end_recording(0);
  operands.out[0].values.fill(7);
  backend.replay(0, recording);
  backend.synchronize(0);
  EXPECT_TRUE(floats_of(operands.out[0].values) == direct)
      << z.text() << ", " << name_of(direction);
  backend.free_recording(0, recording);
}

}  // namespace convscope::testing
