// SPDX-License-Identifier: Apache-2.0
// row_layers.h: what layers on rows of sites share while a network is built.
//
// While rows flow, the shape that goes from layer to layer at build time is that of the dense image
// which the rows stand for, [N,C,(T,)H,W]: it holds the batch, the channels and the grid, and the
// number of rows is known in a forward pass only. LayerContext::rows says that rows flow, and on
// which level of sites.
#pragma once

#include <cstdint>
#include <string>

#include "layers/layer_types.h"
#include "layers/sparse_conv/levels.h"

namespace convscope {

// An error, which says how to get there, unless rows of sites arrive at the layer that is built.
CONVSCOPE_API void expect_rows(const char* operation, const Shape& input,
                               const LayerContext& context);
// The shape that rows of `channels` on `level` stand for, for a batch of `samples`.
CONVSCOPE_API Shape shape_of_rows(const SiteLevels& levels, int level, std::int64_t samples,
                                  std::int64_t channels);
// An error unless `input` is such a shape; channels -1: any.
CONVSCOPE_API void check_shape_of_rows(const char* operation, const SiteLevels& levels, int level,
                                       std::int64_t channels, const Shape& input);
// The error of a forward pass before any batch.
CONVSCOPE_API void check_has_batch(const char* operation, const SiteLevels& levels);
// x [n,C] with a row for each site of the level.
CONVSCOPE_API void check_rows(const char* operation, SiteLevels& levels, int level,
                              const Tensor& x);

// A kernel of the axes of the grid, from options of one number or one for each axis; `kernel_size`
// is there always, the others where the options have them.
CONVSCOPE_API SparseKernel kernel_of(const Options& options, int rank, const char* operation);
CONVSCOPE_API std::vector<OptionField> kernel_fields(bool strided);

// A layer on rows. Sites change from batch to batch, so a step of fixed shapes is not to be had:
// the step runs as a dynamic graph.
class CONVSCOPE_API RowLayer : public Module {
 public:
  int describe(PlanGraph& graph, int x) override;
};

}  // namespace convscope
