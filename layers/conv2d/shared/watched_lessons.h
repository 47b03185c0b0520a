// SPDX-License-Identifier: Apache-2.0
// watched_lessons.h: the lessons of all rooms, by the name of their card, run for somebody who
// watches: a notebook, a test, `convscope look`. (The code stands in shared/lesson.cpp.)
//
//   Recorder recorder;
//   const Tensor y = watch_conv2d("winograd_lesson", problem, Direction::forward, x, w, recorder);
//   recorder.reads("x");  // how often an element of x was read
#pragma once

#include <string>

#include "framework/registry.h"
#include "framework/watch/recorder.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/operands.h"

namespace convscope {

struct Conv2dLesson {
  const char* small_problem = "";  // that is looked at when nobody names another
  void (*forward)(const Conv2dForwardArgs&, Recorder&) = nullptr;
  void (*backward_data)(const Conv2dBackwardDataArgs&, Recorder&) = nullptr;
  void (*backward_weight)(const Conv2dBackwardWeightArgs&, Recorder&) = nullptr;
};
CONVSCOPE_API Registry<Conv2dLesson>& conv2d_lessons();
CONVSCOPE_API bool register_conv2d_lesson(const Conv2dAlgorithm& card, const Conv2dLesson& lesson,
                                          const char* file);

// Runs a lesson on the CPU and notes all that it does. `first` and `second` are what the direction
// reads: x and w, dy and w, or x and dy, of type f32. Returns y, dx or dw. Of block-sparse weights
// `views` says where the blocks stand.
CONVSCOPE_API Tensor watch_conv2d(const std::string& lesson, const Conv2dProblem& problem,
                                  Direction direction, const Tensor& first, const Tensor& second,
                                  Recorder& recorder, const OperandViews& views = {});
// The same for operands of any type and format, as problem.operands(direction) names them; a lesson
// of integers takes no others. The result stands in operands.out.
CONVSCOPE_API void watch_conv2d(const std::string& lesson, const Conv2dProblem& problem,
                                Direction direction, const Operands& operands, Recorder& recorder);

}  // namespace convscope
