// SPDX-License-Identifier: Apache-2.0
// sparse_weights.h: the pruned weight of a convolution or a linear layer as blocks. Stores the
// positions of the blocks that a mask keeps, and copies between the dense and the block form.
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
#include "framework/weight_format.h"

namespace convscope {

class CONVSCOPE_API SparseWeights : public RefCounted {
 public:
  // Takes the f32 mask `keep`, which has the shape of the weight. The mask's values may change
  // later; refresh() reads them again. With `dense_gradient` the gradient of pruned weights is
  // computed, too.
  SparseWeights(Tensor keep, std::int64_t block_rows, std::int64_t block_columns,
                bool dense_gradient);

  // Reads the mask. Throws when the mask keeps parts of blocks.
  void refresh();
  // Returns whether the mask is unchanged since refresh(). A mask on a GPU is not compared; code
  // that changes such a mask must call mask_changed().
  bool is_current() const;
  void mask_changed() { changed_ = true; }
  // Returns a number that changes with each refresh() that finds a different mask. A compiled step
  // is valid only for the version with which it was compiled.
  std::int64_t version() const { return version_; }

  // Returns why the weight cannot be stored in blocks, or "".
  const std::string& obstacle() const { return obstacle_; }
  const WeightFormat& format() const { return format_; }
  double density() const;  // share of the weights that are stored
  bool wants_dense_gradient() const { return dense_gradient_; }
  // Affects only steps that are compiled later.
  void want_dense_gradient(bool dense) { dense_gradient_ = dense; }

  BlockSparseView view(const void* values) const;
  void gather(const float* w, float* values) const;
  // Copies the stored values to dw. Pruned elements become 0, or do not change with `accumulate`.
  void scatter(const float* values, float* dw, bool accumulate) const;

 private:
  Tensor keep_;
  bool dense_gradient_;
  std::int64_t rows_ = 0, columns_ = 0;  // of the matrix
  WeightFormat format_;
  std::string obstacle_;
  Tensor row_begin_, block_column_;  // i32, on the mask's device
  std::vector<float> seen_;          // a mask value for each block, from refresh()
  bool changed_ = false;
  std::int64_t version_ = 0;
};

// Arguments of a copy between the stored blocks and the dense matrix.
struct KeptBlocksCopy {
  BlockSparseView at;  // positions of the blocks; no values
  std::int64_t rows = 0, columns = 0, blocks = 0;
  const float* from = nullptr;
  float* to = nullptr;
};
// Copies the kept elements of the dense matrix to the stored blocks.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&)> gather_blocks_kernel;
// Copies stored blocks to the dense matrix. Pruned elements become 0, or do not change with
// `accumulate`.
extern CONVSCOPE_API KernelSlot<void(const KeptBlocksCopy&, bool accumulate)> scatter_blocks_kernel;

}  // namespace convscope
