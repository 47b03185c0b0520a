// SPDX-License-Identifier: Apache-2.0
// scratch.h: several tensors in the one block of scratch memory that a loss gets.
#pragma once

#include <initializer_list>

#include "framework/tensor.h"

namespace convscope {

class LossScratch {
 public:
  // Returns the shape of a block that holds tensors of these shapes.
  static Shape holding(std::initializer_list<Shape> shapes) {
    std::int64_t count = 0;
    for (const Shape& shape : shapes) count += padded(shape);
    return {count};
  }

  explicit LossScratch(const Tensor& block) : block_(block) {}
  // Returns the next tensor of the block.
  Tensor take(const Shape& shape) {
    const std::int64_t begin = used_;
    used_ += padded(shape);
    return block_.slice_rows(begin, shape.numel()).reshape(shape);
  }
  // Returns the rest of the block.
  Tensor rest() const { return block_.slice_rows(used_, block_.numel() - used_); }

 private:
  // Kernels read aligned tensors faster.
  static std::int64_t padded(const Shape& shape) { return (shape.numel() + 15) / 16 * 16; }

  const Tensor& block_;
  std::int64_t used_ = 0;
};

}  // namespace convscope
