// SPDX-License-Identifier: Apache-2.0
// row_layers.h: code that layers on rows of sites share while a network is built.
//
// Layers on rows pass on [N,C,(T,)H,W], the shape of the dense image whose occupied pixels are the
// rows. This shape has the batch size, the channels and the grid; the number of rows is known only
// in a forward pass. LayerContext::rows says whether a layer receives rows, and on which level of
// sites.
#pragma once

#include <cstdint>
#include <string>

#include "layers/layer_types.h"
#include "layers/sparse_conv/levels.h"

namespace convscope {

// Throws an Error that says what to do, unless the layer's input is rows of sites.
CONVSCOPE_API void expect_rows(const char* operation, const Shape& input,
                               const LayerContext& context);
// Returns the shape of the dense image whose sites on `level` are the rows, with `channels`
// channels, for a batch of `samples`.
CONVSCOPE_API Shape shape_of_rows(const SiteLevels& levels, int level, std::int64_t samples,
                                  std::int64_t channels);
// Throws Error unless `input` is the shape of an image on `level` with `channels` channels; -1: any
// number.
CONVSCOPE_API void check_shape_of_rows(const char* operation, const SiteLevels& levels, int level,
                                       std::int64_t channels, const Shape& input);
// Throws Error in a forward pass before any batch.
CONVSCOPE_API void check_has_batch(const char* operation, const SiteLevels& levels);
// Checks that x is [n,C] with a row for each site of the level.
CONVSCOPE_API void check_rows(const char* operation, SiteLevels& levels, int level,
                              const Tensor& x);
// Throws NotCompiled if `graph` is one that is compiled (null: there is no graph). Sites change
// from batch to batch, so a step with fixed shapes cannot be compiled.
CONVSCOPE_API void expect_eager(const Graph* graph);

// Returns a kernel for the axes of the grid. Each option has one number, or one number for each
// axis. `options` always has `kernel_size` and may have the other sizes.
CONVSCOPE_API SparseKernel kernel_of(const Options& options, int rank, const char* operation);
CONVSCOPE_API std::vector<OptionField> kernel_fields(bool strided);

}  // namespace convscope
