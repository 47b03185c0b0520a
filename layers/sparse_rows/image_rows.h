// SPDX-License-Identifier: Apache-2.0
// image_rows.h: conversion from rows of sites to an image or volume and back.
//
// Shapes      to_dense: x [n,C] -> y [N,C,(T,)H,W], 0 where there is no site
//             to_sparse: x [N,C,(T,)H,W] -> y [n,C]. A pixel becomes a site if |x - background| >
//             threshold in at least one channel
// Parameters  of to_sparse: background, default 0; threshold, default 0. (Data sets are normalised,
//             so the background of MNIST is not 0 but -0.4242)
// Gradient    of to_sparse: dx is dy at the sites and 0 elsewhere; the choice of sites has no
//             gradient
// Usage       {type: to_sparse, threshold: 0.1}, layers on rows, {type: to_dense}
#pragma once

#include <string>

#include "framework/kernel_slot.h"
#include "layers/sparse_rows/row_layers.h"

namespace convscope {

CONVSCOPE_API Variable image_of_rows(const Variable& x, const SparseSites& sites);
CONVSCOPE_API Variable rows_of_image(const Variable& x, const SparseSites& sites);
// Returns the sites of an image [N,C,H,W] or a volume [N,C,T,H,W] on any device, f32 or f64.
CONVSCOPE_API SharedSites sites_of_image(const Tensor& x, double background = 0,
                                         double threshold = 0);
// Returns the grid of images with these sizes.
CONVSCOPE_API SiteGrid grid_of_image(const char* operation, const Shape& x);

class CONVSCOPE_API ToDense final : public Module {
 public:
  ToDense(SharedLevels levels, int level) : levels_(std::move(levels)), level_(level) {}
  std::string kind() const override { return "to_dense"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  SharedLevels levels_;
  int level_;
};

class CONVSCOPE_API ToSparse final : public Module {
 public:
  ToSparse(SharedLevels levels, double background, double threshold)
      : levels_(std::move(levels)), background_(background), threshold_(threshold) {}
  std::string kind() const override { return "to_sparse"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;

 private:
  SharedLevels levels_;
  double background_, threshold_;
};

// Kernels that copy between rows [n,C] and an image [N,C,...], both f32 or both f64. `at` i32 [n,2]
// holds the sample of each site and the index of its pixel, ((t H) + h) W + w. Pixels that are not
// sites are not written.
extern CONVSCOPE_API KernelSlot<void(const Tensor& rows, const Tensor& at, const Tensor& image)>
    rows_to_image_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& image, const Tensor& at, const Tensor& rows)>
    image_to_rows_kernel;

}  // namespace convscope
