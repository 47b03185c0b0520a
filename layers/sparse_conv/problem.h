// SPDX-License-Identifier: Apache-2.0
// problem.h: the description of a sparse convolution: map, sizes and types.
//
//   y[i,k] = b[k] + sum over taps t of the kernel that have a neighbour j(i,t), and c < C, of
//            w[k,c,t] x[j(i,t),c]
//   dx[j,c] = sum over taps t that lead from j to an output i, and k < K, of w[k,c,t] dy[i,k]
//   dw[k,c,t] = sum over pairs (i, j(i,t)) of dy[i,k] x[j,c]
//
// The map (map.h) says which sites are neighbours. The result is the convolution of an image that
// is 0 outside of the sites, computed only at the output sites. A submanifold convolution has the
// same sites before and after, so a network of them stays sparse.
//
// Source: B. Graham, M. Engelcke, L. van der Maaten: 3D Semantic Segmentation with Submanifold
// Sparse Convolutional Networks, CVPR 2018, arXiv 1711.10275
#pragma once

#include <optional>
#include <string>

#include "framework/precision.h"
#include "layers/dispatch/operand_specs.h"
#include "layers/sparse_conv/map.h"

namespace convscope {

// x [n,C], w [K,C,(T,)R,S], b [K], y [m,K]: n input sites, m output sites, rows in the order of
// the sites' keys.
struct CONVSCOPE_API SparseConvProblem {
  SharedMap map;
  std::int64_t c = 1, k = 1;
  DType dtype = DType::f32;
  MathMode math = MathMode::f32;
  std::optional<OperandTypes> types = {};  // only `dtype` is supported
  WeightFormat weight_format = {};         // only dense is supported

  std::int64_t in_count() const { return map->in_sites()->count(); }
  std::int64_t out_count() const { return map->out_sites()->count(); }
  std::int64_t taps() const { return map->kernel().taps(); }
  Shape x_shape() const { return {in_count(), c}; }
  Shape w_shape() const;
  Shape y_shape() const { return {out_count(), k}; }
  OperandSpecs operands(Direction direction) const;
  // Tells whether there are no outputs, so that nothing is computed. (Without inputs y is the
  // bias.)
  bool is_empty() const { return out_count() == 0; }

  // Counts 2 C K for each pair of neighbours, in each direction. Missing neighbours do not count.
  double nominal_flops() const;
  // Returns the largest number of products that may be added to one element of the output.
  std::int64_t sum_length(Direction direction) const {
    return direction == Direction::forward         ? c * taps()
           : direction == Direction::backward_data ? k * taps()
                                                   : out_count();
  }
  // Counts every tensor of the direction, and the map, once.
  double nominal_bytes() const;
  void check() const;

  // Returns
  // "submanifold,kernel=3x3x3,grid=1x64x64x64,sites=900,out_sites=900,pairs=9000,c=16,k=32". There
  // is no parse(), because this text does not define the sites of the map.
  std::string text() const;
  std::string kernel_text() const;
  // Returns the key under which `measure` stores its choice. Clouds with about as many sites and
  // neighbours (a bucket) have the same key, so training with new sites in each batch measures once
  // for each bucket. Sites are rounded to powers of 2, pairs per site to powers of the square root
  // of 2:
  // "submanifold,kernel=3x3x3,pad=1x1x1,sites=64k-128k,pairs_per_site=11.3-16,c=16,k=32".
  std::string bucket_text() const;
  // The number of problems whose choices a layer remembers. The number is small, because each
  // problem holds a map.
  static constexpr std::size_t kMaxChoices = 4;

  bool operator==(const SparseConvProblem&) const = default;  // maps compare by pointer

 private:
  std::string text_behind_map() const;
};

}  // namespace convscope
