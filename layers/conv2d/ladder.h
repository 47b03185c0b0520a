// SPDX-License-Identifier: Apache-2.0
// ladder.h: the ladder of a folder: its algorithms from the lesson to the fastest, each with a
// sentence.
//
// A rung is an algorithm, sometimes with a restriction: one thread, or an instruction set below the
// best. Neighbouring rungs differ in one idea, so the ratio of their times is the gain of that
// idea. A folder with a lesson has one file <name>_ladder.cpp. `convscope bench conv2d --ladder
// <name>`, the folder's README and the tests use the sentences in that file.
//
// watch_conv2d() runs the lesson of a given algorithm name and records every access, for a
// notebook, a test or `convscope look`. (The code is in shared/lesson.cpp.)
//
//   Recorder recorder;
//   const Tensor y = watch_conv2d("winograd_lesson", problem, Direction::forward, x, w, recorder);
//   recorder.reads("x");  // how often an element of x was read
#pragma once

#include <string>
#include <vector>

#include "framework/registry.h"
#include "framework/watch/recorder.h"
#include "layers/conv2d/algorithm.h"
#include "layers/dispatch/operands.h"

namespace convscope {

struct Conv2dRung {
  const char* algorithm = "";  // a name in conv2d_algorithms(ladder.device)
  const char* isa = "";        // "scalar", "vector4", "avx2", "avx512"; "" = the best of this CPU.
  int threads = 0;             // 0 = all threads
  MathMode math = MathMode::f32;   // tf32: rounded operands, one product instead of three
  bool prepare_each_call = false;  // weights are packed or transformed again in every call
  const char* sentence = "";       // what this rung adds to the rung below
};

struct Conv2dLadder {
  const char* name = "";  // name of the folder
  DeviceType device = DeviceType::cpu;
  const char* problem = "";       // the lesson takes about a second or less; rungs differ in time
  std::vector<Conv2dRung> rungs;  // the lesson first, the fastest last
};

// Returns the ladders of one kind of device, by the name of their folder.
CONVSCOPE_API Registry<Conv2dLadder>& conv2d_ladders(DeviceType device);
CONVSCOPE_API bool register_conv2d_ladder(const Conv2dLadder& ladder, const char* file);

// Returns the label of a rung in tables and plots: "winograd_f2x3, avx2, 1 thread".
CONVSCOPE_API std::string label_of(const Conv2dRung& rung);

struct Conv2dLesson {
  const char* small_problem = "";  // shown by default
  void (*forward)(const Conv2dForwardArgs&, Recorder&) = nullptr;
  void (*backward_data)(const Conv2dBackwardDataArgs&, Recorder&) = nullptr;
  void (*backward_weight)(const Conv2dBackwardWeightArgs&, Recorder&) = nullptr;
};
CONVSCOPE_API Registry<Conv2dLesson>& conv2d_lessons();
CONVSCOPE_API bool register_conv2d_lesson(const Conv2dAlgorithm& algorithm,
                                          const Conv2dLesson& lesson, const char* file);

// Runs a lesson on the CPU and records all its accesses. `first` and `second` are the inputs of the
// direction: x and w, dy and w, or x and dy, of type f32. Returns y, dx or dw. For block-sparse
// weights `views` holds the positions of the blocks.
CONVSCOPE_API Tensor watch_conv2d(const std::string& lesson, const Conv2dProblem& problem,
                                  Direction direction, const Tensor& first, const Tensor& second,
                                  Recorder& recorder, const OperandViews& views = {});
// Runs a lesson on operands of any type and format, named as in problem.operands(direction);
// integer lessons need this overload. The result is written to operands.out.
CONVSCOPE_API void watch_conv2d(const std::string& lesson, const Conv2dProblem& problem,
                                Direction direction, const Operands& operands, Recorder& recorder);

}  // namespace convscope

#define CONVSCOPE_CONV2D_LADDER(ladder)                                   \
  namespace {                                                             \
  const bool registered_##ladder =                                        \
      ::convscope::register_conv2d_ladder(::convscope::ladder, __FILE__); \
  }
