// SPDX-License-Identifier: Apache-2.0
// sparse_weights.h: the pruned weight of a convolution or a linear layer as blocks: the positions
// of the blocks that a mask keeps, and copies between the dense weight and the stored blocks.
//
// The weight, its gradient and the optimiser's state stay dense, [K,C/G,R,S] or [O,I]. A compiled
// step gathers the kept blocks and computes only with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/ref.h"
#include "framework/tensor.h"
#include "layers/conv2d/problem.h"

namespace convscope {

class CONVSCOPE_API SparseWeights : public RefCounted {
 public:
  // Takes the mask `keep`, f32, of the weight's shape; its content may change. With
  // `dense_gradient` pruned weights require their gradient, too.
  SparseWeights(Tensor keep, std::int64_t block_rows, std::int64_t block_columns,
                bool dense_gradient);

  // Reads the mask. Throws when the mask keeps parts of blocks.
  void refresh();
  // Returns whether the mask is unchanged since refresh(). A mask on a GPU is not read: the code
  // that changes it calls mask_changed().
  bool is_current() const;
  void mask_changed() { changed_ = true; }
  // Changes with each refresh() that reads a different mask: steps compiled with the lists of one
  // mask are invalid for any other.
  std::int64_t version() const { return version_; }

  // Returns why the weight cannot be stored in blocks, or "".
  const std::string& obstacle() const { return obstacle_; }
  const WeightFormat& format() const { return format_; }
  double density() const;  // share of the weights that are stored
  bool wants_dense_gradient() const { return dense_gradient_; }
  // Applies to steps that are compiled later.
  void want_dense_gradient(bool dense) { dense_gradient_ = dense; }

  BlockSparseView view(const void* values) const;
  void gather(const float* w, float* values) const;
  // Copies stored values to dw; other elements become 0, or with `accumulate` do not change.
  void scatter(const float* values, float* dw, bool accumulate) const;

 private:
  Tensor keep_;
  bool dense_gradient_;
  std::int64_t rows_ = 0, columns_ = 0;  // of the matrix
  WeightFormat format_;
  std::string obstacle_;
  Tensor row_begin_, block_column_;  // i32, on the mask's device
  std::vector<float> seen_;          // one element of the mask for each block
  bool changed_ = false;
  std::int64_t version_ = 0;
};

// Arguments of a copy between the blocks of a matrix and the dense matrix.
struct KeptBlocksCopy {
  BlockSparseView at;  // without values
  std::int64_t rows = 0, columns = 0, blocks = 0;
  const float* from = nullptr;
  float* to = nullptr;
};
// Copies dense to stored.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&)> gather_blocks_kernel;
// Copies stored to dense. Other elements become 0; with `accumulate` they do not change.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&, bool accumulate)> scatter_blocks_kernel;

}  // namespace convscope
