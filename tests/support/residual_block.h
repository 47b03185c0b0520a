// SPDX-License-Identifier: Apache-2.0
// residual_block.h: a minimal block with a residual connection, for tests of compiled steps.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "framework/ops/elementwise.h"
#include "layers/module.h"

namespace convscope::testing {

// y = body(x) + x
class ResidualBlock final : public Module {
 public:
  explicit ResidualBlock(std::shared_ptr<Module> body) : body_(std::move(body)) {
    add_child("body", body_);
  }
  std::string kind() const override { return "block"; }
  Variable forward(const Variable& x) override { return add(body_->forward(x), x); }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  std::shared_ptr<Module> body_;
};

}  // namespace convscope::testing
