// SPDX-License-Identifier: Apache-2.0
// sparse_conv.h: the sparse convolution as a differentiable operation and as layers.
//
//   y[i,k] = b[k] + sum over taps t that have a neighbour j(i,t), and c < C, of
//            w[k,c,t] x[j(i,t),c];   problem.h has the gradients, map.h the neighbours
//
// Operation   x [n,C] (rows in the order of the sites' keys), w [K,C,(T,)R,S], b [K] or undefined,
//             y [m,K]; f32, or f64 (on the CPU, by the reference). dx is assigned, dw and db
//             accumulate; only requested ones are computed. A set of sites may be empty.
// Layers      submanifold_conv     outputs at the sites of the inputs; the kernel size is odd
//             sparse_conv          outputs where the kernel meets a site; a stride above 1 reduces
//                                  their number
//             sparse_inverse_conv  back to the sites before the strided step named by `undo` (a
//                                  sparse_conv or a pool), with the kernel of that step
// Parameters  out_channels  K, required
//             kernel_size   number of taps along each axis: one number, or one for each axis;
//                           required, except for the inverse
//             stride        sparse_conv only, default 2
//             padding       sparse_conv only, default 0; a submanifold kernel is centred
//             dilation      except the inverse, default 1
//             bias, init, algorithm   as of conv2d; the block `conv` does not apply to these layers
//             undo          sparse_inverse_conv only: the name of the strided layer to undo;
//                           default: the last strided layer that is not undone yet
// Algorithms  are chosen again for each batch, because each batch has its own sites. `measure`
//             times once for all batches with about as many sites and pairs (bucket_text() in
//             problem.h)
// Precision   as of conv2d: tf32 and half precisions on CUDA only
// Usage       Variable y = sparse_conv(x, w, b, SparseMap::submanifold(sites, {.size = {3,3,3}}));
//             in a config: {type: submanifold_conv, out_channels: 16, kernel_size: 3}
// Paper       B. Graham, M. Engelcke, L. van der Maaten: 3D Semantic Segmentation with Submanifold
//             Sparse Convolutional Networks, CVPR 2018, arXiv 1711.10275
#pragma once

#include <memory>
#include <string>

#include "layers/layer_types.h"
#include "layers/sparse_conv/algorithm.h"
#include "layers/sparse_conv/levels.h"
#include "layers/sparse_rows/row_layers.h"

namespace convscope {

struct SparseConvParams {
  ComputePrecision precision = ComputePrecision::f32;
  AlgorithmPolicy policy = {};
  std::string layer = {};  // name in errors
};

// Returns the checked problem of these tensors; errors name x and w.
CONVSCOPE_API SparseConvProblem sparse_conv_problem(const SharedMap& map, const Shape& x,
                                                    const Shape& w, ComputePrecision precision,
                                                    DType dtype = DType::f32);

CONVSCOPE_API Variable sparse_conv(const Variable& x, const Variable& w, const Variable& b,
                                   const SharedMap& map, const SparseConvParams& params = {});

struct SparseConvOptions {
  SparseKind kind = SparseKind::submanifold;
  std::int64_t in_channels = 1, out_channels = 1;
  SparseKernel kernel = {};
  bool bias = true;
  std::string init = "kaiming_uniform";
  AlgorithmPolicy policy = {};
  std::string name = {};
};

// Parameters: weight [K,C,(T,)R,S], bias [K].
class CONVSCOPE_API SparseConv final : public Module {
 public:
  // Takes the levels before (`from`) and after (`to`) this layer. The kernel of a strided layer, or
  // of its inverse, is the kernel of the step between these levels.
  SparseConv(const SparseConvOptions& options, SharedLevels levels, int from, int to,
             LayerContext& context);
  std::string kind() const override;
  Variable forward(const Variable& x) override;
  // Returns [N,C,(T,)H,W], the shape of the dense image whose occupied pixels are the rows.
  Shape output_shape(const Shape& input) const override;
  Variable weight() const override { return weight_; }
  std::unique_ptr<OperatorUse> operator_use(const Shape& input) const override;

  const SparseConvOptions& options() const { return options_; }
  SharedMap map() const;  // of the last batch; before the first batch, of the assumed sample
  int from() const { return from_; }
  int to() const { return to_; }
  const SharedLevels& levels() const { return levels_; }

 private:
  SparseConvOptions options_;
  SharedLevels levels_;
  int from_, to_;
  SparseConvParams params_;
  Variable weight_, bias_;
};

}  // namespace convscope
