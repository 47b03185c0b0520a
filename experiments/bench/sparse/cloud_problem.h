// SPDX-License-Identifier: Apache-2.0
// cloud_problem.h: a sparse convolution as a line of text. A neighbour map does not fit in a line,
// so the line says how the sites are generated:
//
//   cloud=shell,sites=100000,seed=1,kernel=3x3x3,c=64,k=64
//   cloud=random,sites=5000,density=0.1,batch=2,kind=strided,kernel=3x3x3,stride=2,pad=1,c=16,k=32
//
// A size is one number for all axes, or one number per axis (TxHxW; for ink HxW).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/bench/sparse/cloud.h"
#include "layers/sparse_conv/problem.h"

namespace convscope {

struct CONVSCOPE_API CloudProblem {
  DrawnCloud cloud;
  SparseKind kind = SparseKind::submanifold;
  SparseKernel kernel = {.size = {3, 3, 3}};  // a submanifold convolution has no padding option
  std::int64_t c = 1, k = 1;
  DType dtype = DType::f32;
  MathMode math = MathMode::f32;

  // Parses a line. Without `kind`: strided if a stride or padding is given, else submanifold.
  static CloudProblem parse(std::string_view text);
  std::string text() const;      // parses back
  std::string map_text() const;  // what the map depends on: no channels, no types
  void check() const;

  SharedMap map() const;  // generates the sites and builds the map; uses `sites` if given
  SharedMap map(const SharedSites& sites) const;
  SparseConvProblem on(const SharedMap& map) const;

  bool operator==(const CloudProblem&) const = default;
};

}  // namespace convscope
