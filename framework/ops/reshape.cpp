// SPDX-License-Identifier: Apache-2.0
// reshape.cpp: the same elements in another shape, without a copy.
#include "framework/ops/reshape.h"

#include "framework/graph/apply.h"

namespace convscope {
namespace {

class ReshapeOperation final : public Operation {
 public:
  explicit ReshapeOperation(const Shape& shape) : Operation("reshape"), shape_(shape) {
    is_view = true;
  }
  TensorDesc bind(Graph& graph) override {
    const Shape& x = graph.shape(inputs[0]);
    CONVSCOPE_CHECK(x.numel() == shape_.numel(), "reshape", "expected a shape of ", x.numel(),
                    " elements because x is ", x, ", got ", shape_);
    return {shape_, graph.dtype(inputs[0])};
  }
  // A view shares its memory and its gradient with x, so a compiled step has nothing to do.
  void forward(Emitter&) override {}
  void backward(Emitter& emitter) override {
    if (emitter.is_eager()) emitter.pass_gradient(output(), inputs[0]);
  }

 private:
  Shape shape_;
};

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  if (x.graph() != nullptr && x.shape() == shape) return x;
  return apply(std::make_unique<ReshapeOperation>(shape), {x});
}

}  // namespace convscope
