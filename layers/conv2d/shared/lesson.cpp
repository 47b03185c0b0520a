// SPDX-License-Identifier: Apache-2.0
// lesson.cpp: runs a lesson, an algorithm written as plain loops, so that a reader can watch it.
#include "layers/conv2d/shared/lesson.h"

#include "framework/memory/memory.h"

namespace convscope {

Conv2dSupport lesson_takes(DType dtype) {
  if (dtype == DType::f32) return {};
  return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(dtype)));
}

// ---- ladder.h ----

Registry<Conv2dLesson>& conv2d_lessons() {
  static Registry<Conv2dLesson> table("lesson");
  return table;
}

bool register_conv2d_lesson(const Conv2dAlgorithm& algorithm, const Conv2dLesson& lesson,
                            const char* file) {
  return conv2d_lessons().add(algorithm.name, lesson, file);
}

namespace {

// Runs a lesson: `a` and `b` are the operands of a direction, `out` its result.
void run_watched(const std::string& lesson, const Conv2dProblem& problem, Direction direction,
                 const void* a, const void* b, void* out, const OperandViews& views,
                 Recorder& recorder) {
  const Conv2dLesson& run = conv2d_lessons().get(lesson, ErrorKind::kUnavailable);
  const Conv2dAlgorithm& algorithm = conv2d_algorithms(DeviceType::cpu).get(lesson);
  const Conv2dSupport support = support_of(algorithm, problem, direction);
  if (!support.yes) {
    fail(ErrorKind::kUnavailable, "watch",
         cat("expected a problem that ", lesson, " computes, but it ", support.reason));
  }
  const Workspace workspace({}, algorithm.workspace_bytes(problem, direction));
  if (direction == Direction::forward) {
    run.forward({problem, a, b, nullptr, out, workspace.data(), {}, nullptr, views}, recorder);
  } else if (direction == Direction::backward_weight) {
    run.backward_weight({problem, a, b, out, false, workspace.data(), views}, recorder);
  } else {
    run.backward_data({problem, a, b, out, workspace.data(), nullptr, views}, recorder);
  }
}

}  // namespace

void watch_conv2d(const std::string& lesson, const Conv2dProblem& problem, Direction direction,
                  const Operands& operands, Recorder& recorder) {
  problem.check();
  run_watched(lesson, problem, direction, operands.input(0), operands.input(1), operands.output(0),
              operands.views(direction), recorder);
}

Tensor watch_conv2d(const std::string& lesson, const Conv2dProblem& problem, Direction direction,
                    const Tensor& first, const Tensor& second, Recorder& recorder,
                    const OperandViews& views) {
  conv2d_lessons().get(lesson, ErrorKind::kUnavailable);
  problem.check();
  const bool forward = direction == Direction::forward;
  const bool weight = direction == Direction::backward_weight;
  const Shape first_shape =
      direction == Direction::backward_data ? problem.y_shape() : problem.x_shape();
  const Shape second_shape = weight ? problem.y_shape() : lesson::stored_weights(problem);
  CONVSCOPE_CHECK(first.shape() == first_shape && second.shape() == second_shape &&
                      first.dtype() == problem.dtype && second.dtype() == problem.dtype &&
                      first.device() == Device{} && second.device() == Device{},
                  "watch", "expected two tensors ", first_shape, " and ", second_shape,
                  " of the problem's type on the CPU for ", name_of(direction), " of ",
                  problem.text(), ", got ", first, " and ", second);
  const Tensor out = Tensor::empty(forward  ? problem.y_shape()
                                   : weight ? lesson::stored_weights(problem)
                                            : problem.x_shape(),
                                   problem.dtype);
  run_watched(lesson, problem, direction, first.raw_data(), second.raw_data(), out.raw_data(),
              views, recorder);
  return out;
}

}  // namespace convscope
