// SPDX-License-Identifier: Apache-2.0
// sparse_weights.h: the pruned weight of a convolution or a linear layer as blocks: where a mask
// keeps them, and copies between the dense weight and the stored blocks.
//
// The weight, its gradient and the optimiser's state stay dense, [K,C/G,R,S] or [O,I]; a planned
// step gathers the blocks that are kept and computes with those alone.
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
  // `keep` is the mask, f32, of the weight's shape; it may change in its memory. With
  // `dense_gradient` weights that are out want their gradient, too.
  SparseWeights(Tensor keep, std::int64_t block_rows, std::int64_t block_columns,
                bool dense_gradient);

  // Reads the mask. An error when it keeps parts of blocks.
  void refresh();
  // Whether the mask still is what refresh() has read. On a GPU nobody looks into its memory:
  // whoever changes a mask there says so by mask_changed().
  bool is_current() const;
  void mask_changed() { changed_ = true; }
  // Another number after each refresh() that has read another mask: what was planned with the lists
  // of one holds for no other.
  std::int64_t version() const { return version_; }

  // Why the weight cannot be kept in blocks ("6 kernels are no multiple of 16"), or "".
  const std::string& obstacle() const { return obstacle_; }
  const WeightFormat& format() const { return format_; }
  double density() const;  // share of the weights that are stored
  bool wants_dense_gradient() const { return dense_gradient_; }
  // For steps that are planned from now on.
  void want_dense_gradient(bool dense) { dense_gradient_ = dense; }

  BlockSparseView view(const void* values) const;
  void gather(const float* w, float* values) const;
  // Elements that are not stored become 0, or stay as they are when dw is added to.
  void scatter(const float* values, float* dw, bool accumulate) const;

 private:
  Tensor keep_;
  bool dense_gradient_;
  std::int64_t rows_ = 0, columns_ = 0;  // of the matrix
  WeightFormat format_;
  std::string obstacle_;
  Tensor row_begin_, block_column_;  // i32, where the mask lies
  std::vector<float> seen_;          // of each block one element of the mask
  bool changed_ = false;
  std::int64_t version_ = 0;
};

// The blocks of a matrix and the same numbers side by side.
struct KeptBlocksCopy {
  BlockSparseView at;  // without values
  std::int64_t rows = 0, columns = 0, blocks = 0;
  const float* from = nullptr;
  float* to = nullptr;
};
// Dense to stored.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&)> gather_blocks_kernel;
// Stored to dense; what is not stored becomes 0, or with `accumulate` stays as it is.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&, bool accumulate)> scatter_blocks_kernel;

}  // namespace convscope
