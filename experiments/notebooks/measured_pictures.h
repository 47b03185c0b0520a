// SPDX-License-Identifier: Apache-2.0
// measured_pictures.h: a timed ladder in a cell, and points below this machine's roofline.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct ShowLadderOptions {
  std::string problem = {};   // for `bench conv2d --problem`; empty: the default
  double min_seconds = 0.05;  // counted time of each rung
};
// Measures the rungs of a CPU ladder ("winograd") in one run and shows them as bars, each with a
// text that says what the rung adds. The error for an unknown ladder lists the existing ones.
CONVSCOPE_API void show_ladder(const std::string& name, const ShowLadderOptions& options = {});

struct RooflinePoint {
  std::string name;
  double flops = 0, bytes = 0;  // of one call: executed, and moved to and from memory
  double ms = 0;                // of one call
};
// Shows GFLOP/s over FLOPs per byte. The roof is measured once in about 3 s and stored, as with
// `convscope info --measure`; with CONVSCOPE_MEASURE=off only the points are shown, and a line says
// so.
CONVSCOPE_API void show_roofline(const std::vector<RooflinePoint>& points, int threads = 1);

}  // namespace convscope
