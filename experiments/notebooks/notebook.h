// SPDX-License-Identifier: Apache-2.0
// notebook.h: includes all that the cells of a notebook use. A cell writes
//   #include <convscope/notebook.h>
// CMake generates that header (framework/cmake/install.cmake). The generated header loads the
// library, then includes this file.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "experiments/notebooks/display.h"
#include "experiments/notebooks/draw_window.h"
#include "experiments/notebooks/measured_pictures.h"
#include "experiments/notebooks/quick_charts.h"
#include "experiments/notebooks/race.h"
#include "experiments/notebooks/show_tensor.h"
#include "framework/tensor.h"
#include "framework/watch/recorder.h"
#include "layers/conv2d/problem.h"

#ifdef __CLING__
// Defines what cling prints for the value of a cell's last line.
namespace cling {
inline std::string printValue(const convscope::Tensor* tensor) {
  return tensor->defined() ? tensor->str() : "no elements";
}
inline std::string printValue(const convscope::Shape* shape) { return shape->str(); }
inline std::string printValue(const convscope::Conv2dProblem* problem) { return problem->text(); }
}  // namespace cling
#endif
