// SPDX-License-Identifier: Apache-2.0
// lesson.h: runs lessons, algorithms written as plain loops, so that a reader can watch them.
//
// A lesson is a struct of three function templates. The functions get views of their tensors
// (view.h) and a blackboard, on which they write additional arrays and the names of their steps:
//
//   struct Lesson {
//     static void forward(const Conv2dProblem& z, auto x, auto w, auto b, auto y, auto& board);
//     static void backward_data(const Conv2dProblem& z, auto dy, auto w, auto dx, auto& board);
//     static void backward_weight(const Conv2dProblem& z, auto x, auto dy, auto dw, auto& board);
//   };
//   const Conv2dAlgorithm kAlgorithm = lesson_algorithm<Lesson>({.name = "...", ...});
//   CONVSCOPE_CONV2D_ALGORITHM(kAlgorithm)
//   CONVSCOPE_CONV2D_LESSON(kAlgorithm, Lesson, "n=1,c=2,h=6,w=6,k=2,r=3,s=3")
//
// The problem in the last line is a small one that shows the idea: `convscope look` plays the
// lesson on it. Views of x, w, y and the gradients have four axes. Block-sparse w and dw are
// [blocks,rows,columns,1]; board.blocks() has the positions of the blocks. The bias b has one axis,
// and no element when there is no bias, so b.or_zero(k) is always right. The lesson adds to dw,
// which holds zeros or the sum so far.
#pragma once

#include <algorithm>

#include "framework/tensor.h"
#include "layers/conv2d/ladder.h"

namespace convscope {

// T is float; Watch is Unwatched or Recorder. Arrays are stored one after another in the workspace
// of the algorithm.
template <class T, class Watch>
class Blackboard {
 public:
  Blackboard(Watch& watch, void* workspace, BlockSparseView blocks)
      : watch_(watch), free_(static_cast<T*>(workspace)), blocks_(blocks) {}

  const BlockSparseView& blocks() const { return blocks_; }  // of w

  // Returns an array of up to four axes; its elements are not set.
  template <class... Sizes>
  auto array(const char* name, Sizes... sizes) {
    T* const data = free_;
    free_ += (sizes * ... * std::int64_t{1});
    return watch_.view(name, data, sizes...);
  }
  // Returns an array of complex numbers: one more axis, of 2, for the real and the imaginary part.
  template <class... Sizes>
  auto complex_array(const char* name, Sizes... sizes) {
    const auto out = array(name, sizes..., 2);
    watch_.is_complex();
    return out;
  }
  // Returns an array that a GPU keeps in shared memory; registers() returns one in registers.
  template <class... Sizes>
  auto shared_array(const char* name, Sizes... sizes) {
    const auto out = array(name, sizes...);
    watch_.lies(Recorder::Lies::in_shared_memory);
    return out;
  }
  template <class... Sizes>
  auto registers(const char* name, Sizes... sizes) {
    const auto out = array(name, sizes...);
    watch_.lies(Recorder::Lies::in_registers);
    return out;
  }
  // Begins a step: from here on the lesson does what `name` says.
  void step(const char* name, const std::source_location& at = std::source_location::current()) {
    watch_.step(name, at);
  }

 private:
  Watch& watch_;
  T* free_;
  BlockSparseView blocks_;
};

namespace lesson {

template <class T, class Watch>
auto view(Watch& watch, const char* name, T* data, const Shape& shape) {
  return watch.view(name, data, shape.at(0), shape.at(1), shape.at(2), shape.at(3));
}

// Returns the shape of w and dw as they are stored.
inline Shape stored_weights(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  if (format.is_dense()) return z.w_shape();
  return {format.blocks, format.block_rows, format.block_columns, 1};
}

template <class Lesson, class T, class Watch>
void run(const Conv2dForwardArgs& args, Watch& watch) {
  const Conv2dProblem& z = args.problem;
  const auto x = view(watch, "x", static_cast<const T*>(args.x), z.x_shape());
  const auto w = view(watch, "w", static_cast<const T*>(args.w), stored_weights(z));
  const auto b = watch.view("b", static_cast<const T*>(args.b), args.b == nullptr ? 0 : z.k);
  const auto y = view(watch, "y", static_cast<T*>(args.y), z.y_shape());
  Blackboard<T, Watch> board(watch, args.workspace, args.views.w_blocks);
  Lesson::forward(z, x, w, b, y, board);
}

template <class Lesson, class T, class Watch>
void run(const Conv2dBackwardDataArgs& args, Watch& watch) {
  const Conv2dProblem& z = args.problem;
  const auto dy = view(watch, "dy", static_cast<const T*>(args.dy), z.y_shape());
  const auto w = view(watch, "w", static_cast<const T*>(args.w), stored_weights(z));
  const auto dx = view(watch, "dx", static_cast<T*>(args.dx), z.x_shape());
  Blackboard<T, Watch> board(watch, args.workspace, args.views.w_blocks);
  Lesson::backward_data(z, dy, w, dx, board);
}

template <class Lesson, class T, class Watch>
void run(const Conv2dBackwardWeightArgs& args, Watch& watch) {
  const Conv2dProblem& z = args.problem;
  auto* const sums = static_cast<T*>(args.dw);
  if (!args.accumulate) std::fill_n(sums, stored_weights(z).numel(), T(0));
  const auto x = view(watch, "x", static_cast<const T*>(args.x), z.x_shape());
  const auto dy = view(watch, "dy", static_cast<const T*>(args.dy), z.y_shape());
  const auto dw = view(watch, "dw", sums, stored_weights(z));
  Blackboard<T, Watch> board(watch, args.workspace, args.views.w_blocks);
  Lesson::backward_weight(z, x, dy, dw, board);
}

}  // namespace lesson

template <class Lesson, class Args>
void unwatched(const Args& args) {
  Unwatched nobody;
  lesson::run<Lesson, float>(args, nobody);
}
// Runs a lesson for a watcher. It is marked cold, so that the compiler optimises the unwatched
// loops.
template <class Lesson, class Args>
[[gnu::cold]] void watched(const Args& args, Recorder& recorder) {
  lesson::run<Lesson, float>(args, recorder);
}

// Accepts f32 only; the reference algorithm covers f64. Call it first in supports().
CONVSCOPE_API Conv2dSupport lesson_takes(DType dtype);

// Returns the cost of a lesson that computes the textbook's products one by one.
inline Conv2dCost textbook_cost(const Conv2dProblem& z, Direction) {
  return {.flops = z.nominal_flops(), .bytes = z.nominal_bytes(), .issued = z.nominal_flops()};
}
// Returns the workspace of a lesson without additional arrays.
inline std::size_t empty_blackboard(const Conv2dProblem&, Direction) { return 0; }

// Returns `fields` with what all lessons have in common: their functions, sums that are one chain,
// and that `auto` does not take them. Without `supports`, the lesson takes every f32 problem.
// Without `workspace_bytes`, it has no additional arrays.
template <class Lesson>
constexpr Conv2dAlgorithm lesson_algorithm(Conv2dAlgorithm fields) {
  fields.device = DeviceType::cpu;
  if (fields.supports == nullptr) {
    fields.supports = [](const Conv2dProblem& z, Direction) { return lesson_takes(z.dtype); };
  }
  if (fields.workspace_bytes == nullptr) fields.workspace_bytes = empty_blackboard;
  fields.one_chain = true;
  fields.auto_ok = false;
  fields.forward = unwatched<Lesson>;
  fields.backward_data = unwatched<Lesson>;
  fields.backward_weight = unwatched<Lesson>;
  return fields;
}

}  // namespace convscope

#define CONVSCOPE_CONV2D_LESSON(algorithm, Lesson, problem)                                     \
  namespace {                                                                                   \
  const bool registered_conv2d_lesson = ::convscope::register_conv2d_lesson(                    \
      algorithm,                                                                                \
      {.small_problem = problem,                                                                \
       .forward = ::convscope::watched<Lesson, ::convscope::Conv2dForwardArgs>,                 \
       .backward_data = ::convscope::watched<Lesson, ::convscope::Conv2dBackwardDataArgs>,      \
       .backward_weight = ::convscope::watched<Lesson, ::convscope::Conv2dBackwardWeightArgs>}, \
      __FILE__);                                                                                \
  }
