// SPDX-License-Identifier: Apache-2.0
// rest_layer.h: a layer that sleeps for a given time and keeps a given number of bytes.
#pragma once

#include <chrono>
#include <thread>

#include "framework/graph/simple_operation.h"
#include "layers/module.h"

namespace convscope::testing {

// Returns x after a sleep, and keeps `kept` bytes until the backward pass.
class Rest final : public SimpleOperation {
 public:
  Rest(double forward_ms, double backward_ms, std::int64_t kept)
      : SimpleOperation("rest"), forward_ms_(forward_ms), backward_ms_(backward_ms), kept_(kept) {}
  Keeps keeps(const std::vector<Shape>&) const override {
    return {.saved = {{.shape = {kept_}, .dtype = DType::u8}}};
  }
  void run(const Forward& a) const override {
    rest(forward_ms_);
    a.y.copy_from(a.x[0]);
  }
  void run(const Backward& a) const override {
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
      : forward_ms_(forward_ms), backward_ms_(backward_ms), kept_(kept) {}
  std::string kind() const override { return "rest"; }
  Variable forward(const Variable& x) override {
    return apply(std::make_unique<Rest>(forward_ms_, backward_ms_, kept_), {x});
  }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  double forward_ms_, backward_ms_;
  std::int64_t kept_;
};

}  // namespace convscope::testing
