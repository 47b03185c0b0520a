// SPDX-License-Identifier: Apache-2.0
// rest_layer.h: a layer that sleeps for a given time and keeps a given number of bytes.
#pragma once

#include <chrono>
#include <thread>

#include "framework/autograd/operation.h"
#include "layers/module.h"
#include "layers/plan/operation_op.h"

namespace convscope::testing {

// Returns x after a sleep, and keeps `kept` bytes until the backward pass.
class Rest final : public Operation {
 public:
  Rest(double forward_ms, double backward_ms, std::int64_t kept)
      : forward_ms_(forward_ms), backward_ms_(backward_ms), kept_(kept) {}
  const char* name() const override { return "rest"; }
  OperationKeeps keeps(const std::vector<Shape>&) const override {
    return {.saved = {{.shape = {kept_}, .dtype = DType::u8}}};
  }
  void forward(const OperationForward& a) const override {
    rest(forward_ms_);
    a.y.copy_from(a.x[0]);
  }
  void backward(const OperationBackward& a) const override {
    rest(backward_ms_);
    if (a.dx[0].defined()) a.dx[0].copy_from(a.dy);
  }

 private:
  static void rest(double ms) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
  }
  double forward_ms_, backward_ms_;
  std::int64_t kept_;
};

class RestLayer final : public Module {
 public:
  RestLayer(double forward_ms, double backward_ms, std::int64_t kept)
      : operation_(make_ref<Rest>(forward_ms, backward_ms, kept)) {}
  std::string kind() const override { return "rest"; }
  Variable forward(const Variable& x) override { return apply(operation_, {x}); }
  Shape output_shape(const Shape& input) const override { return input; }
  int describe(Graph& graph, int x) override {
    return describe_operation(graph, *this, operation_, {x});
  }

 private:
  Ref<const Rest> operation_;
};

}  // namespace convscope::testing
