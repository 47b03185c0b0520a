// SPDX-License-Identifier: Apache-2.0
// operation.h: one operation: its shape rule, its forward pass and its backward pass. This one
// definition serves eager execution and compiled steps. Both call forward() with an Emitter
// (emitter.h). An eager emitter runs each kernel call at once. The emitter of a compiled step
// stores the calls, with all arguments, in a list.
//
//   class Square final : public Operation {
//    public:
//     Square() : Operation("square") {}
//     void forward(Emitter& emitter) override {
//       emitter.call([run = square_kernel.get(emitter.device()), x = emitter.value(inputs[0]),
//                     y = emitter.value(output())] { run(x, y); });
//     }
//     void backward(Emitter& emitter) override {
//       emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
//         emitter.call([run = square_gradient_kernel.get(emitter.device()),
//                       x = emitter.value(inputs[0]), dy = emitter.gradient(output()),
//                       dx] { run(x, dy, dx); });
//       });
//     }
//   };
//   Variable square(const Variable& x) { return apply(std::make_unique<Square>(), {x}); }
//
// An operation with one kernel for each pass is shorter as a SimpleOperation (simple_operation.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"
#include "framework/memory/memory.h"
#include "framework/tensor_desc.h"

namespace convscope {

enum class Direction;  // layers/dispatch/direction.h

class Emitter;
class Graph;

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// The kernel of a layer in one direction: the name of an algorithm, or of a chain that contains the
// layer. `dynamic` layers run eagerly inside the step (layers/plan/eager_op.h).
struct RanKernel {
  std::string layer;
  Direction direction;
  std::string kernel;
  bool dynamic = false;
  ImageLayouts layout = {};
  double flops = 0;  // of the textbook loops: a multiplication and an addition for each product
};

// How an operation would work if its images were stored in one layout.
struct Format {
  double ms = 0;              // per step, without the work that takes the same time in all layouts
  DType type = DType::f32;    // fp16 or bf16: the type that its images must have; f32: any
  bool any_input = false;     // it reads its images in any layout, so no copy precedes it
  unsigned plain_inputs = 0;  // bit i: input i is [N,C,H,W], whatever the layout of the others
  // The time, instead of `ms`, if input 0 stays [N,C,H,W]. Nothing: input 0 must have the layout.
  std::optional<double> plain_input_ms = {};
  bool has_own_kernels = false;  // its kernels for this layout may be faster, so ask for its time
  // Which fp16 operands (dispatch/layout/half_operands.h) it would read: of its image, and of the
  // gradient of its output. Operands are made once for all readers.
  bool reads_image_operands = false, reads_gradient_operands = false;
  // Whether it would itself write its result and the gradient of its image as fp16 operands.
  bool writes_operands = false;
};

class CONVSCOPE_API Operation {
 public:
  // Creates an operation. `kind` must outlive it: a literal.
  explicit Operation(const char* kind) : kind_(kind) {}
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  static void* operator new(std::size_t bytes) { return allocate_small(bytes); }
  static void operator delete(void* pointer, std::size_t bytes) {
    deallocate_small(pointer, bytes);
  }

  // Returns the word by which fusions find the operation: "conv2d".
  std::string_view kind() const { return kind_; }
  virtual std::string text() const { return kind_; }  // "conv2d winograd_f4x3", for `explain`

  // Checks the inputs, chooses kernels for them, and returns the description of the result. Throws
  // an error that names what the operation expects.
  virtual TensorDesc bind(Graph& graph);
  // Emits the calls of the forward pass; backward() emits those of the backward pass. For a
  // compiled step each function is called twice and must make the same decisions: the first time to
  // learn how long each tensor lives, the second time with addresses. backward() is called only if
  // a gradient is needed.
  virtual void forward(Emitter& emitter) = 0;
  virtual void backward(Emitter& emitter) = 0;

  // Returns how the operation works on images in `layout`, or nothing if it does not support the
  // layout. The default supports [N,C,H,W] only.
  virtual std::optional<Format> format(const Graph& graph, ActivationLayout layout) const;
  // Takes the layouts that the graph has chosen for the inputs and the output.
  virtual void set_layouts(const Graph&) {}

  // Returns the kernels of each layer with a weight that the operation computes, one for each
  // direction, with their FLOPs. (The bytes of an operation follow from the descriptions of its
  // inputs and outputs: StepPlan::lines().)
  virtual std::vector<RanKernel> kernels(const Graph&) const { return {}; }

  ValueId output() const { return outputs[0]; }

  std::vector<ValueId> inputs, outputs;
  std::vector<TensorDesc> more_outputs;  // set by bind(): the results after the first one
  std::string layer;                     // "c1"; the first one of fused layers
  std::vector<std::string> all_layers;   // layers that it computes; empty: no single layer
  int conversions = 0;        // layout copies in one step, in both directions; known after emission
  bool is_recordable = true;  // as a CUDA graph: its calls only queue kernels
  bool is_view = false;       // its output has the memory of its first input
  // Whether its last call of the backward pass waits for the kernel before it, and only then lets
  // the next kernel start (framework/cuda/launch.cuh). So when a later kernel begins, all kernels
  // before this one have ended.
  bool waits_first = false;
  // What the operation does not read as f32 numbers, set with the layout: its image and the
  // gradient of its output as fp16 operands; its image rounded to fp16 or bf16.
  struct Uses {
    bool image_as_operands = false, gradient_as_operands = false;
    DType rounds_image = DType::f32;
  } uses;

 private:
  const char* kind_;
};

// Returns `op` as a T if its kind is T::kKind, else null.
template <class T>
T* as(Operation* op) {
  return op != nullptr && op->kind() == T::kKind ? static_cast<T*>(op) : nullptr;
}
template <class T>
const T* as(const Operation* op) {
  return op != nullptr && op->kind() == T::kKind ? static_cast<const T*>(op) : nullptr;
}

}  // namespace convscope
