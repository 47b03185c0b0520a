// SPDX-License-Identifier: Apache-2.0
// show_tensor.h: shows a tensor as a picture, as a table of its numbers, or as a heat map.
//
// Tensors are f32 or f64, on the CPU. If a tensor has more than two axes, each index of the leading
// axes selects a plane, and planes are shown in memory order.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "framework/tensor.h"
#include "framework/watch/recorder.h"
#include "framework/watch/view.h"

namespace convscope {

// Returns a view of the elements as x(n, c, h, w), for up to four axes. Throws an error unless the
// tensor is f32 and on the CPU.
CONVSCOPE_API View<float*> view_of(const Tensor& tensor);

// Returns normally distributed numbers with mean 0 and deviation 1. Equal shapes and seeds give
// equal numbers.
CONVSCOPE_API Tensor normal_tensor(const Shape& shape, std::uint64_t seed = 1);
// Returns 0, 1, 2, ... in the order of memory, so that the origin of a number is visible.
CONVSCOPE_API Tensor counted_tensor(const Shape& shape);
// Returns a grey image [1,1,H,W] from 0 to 1 with edges, a disc and stripes, for trying filters.
CONVSCOPE_API Tensor test_image(std::int64_t height = 64, std::int64_t width = 64);

struct ImageOptions {
  std::string title = {};
  // The values shown as black and as white. If they are NaN, the smallest and the largest element
  // are used.
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  bool color = false;  // [3,H,W]: red, green, blue
  int planes = 16;     // at most so many are shown
};
// Shows [H,W] or planes of it, side by side; small ones are enlarged.
CONVSCOPE_API void show_image(const Tensor& tensor, const ImageOptions& options = {});

struct TableOptions {
  std::string title = {};
  int digits = 4;               // significant ones
  int rows = 12, columns = 16;  // at most so many are shown, of the first plane
};
CONVSCOPE_API void show_table(const Tensor& tensor, const TableOptions& options = {});
// Shows texts; the first row is the head.
CONVSCOPE_API void show_table(const std::vector<std::vector<std::string>>& rows,
                              const std::string& title = "");

struct HeatMapOptions {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};  // names; empty: numbers from 0
  int digits = 3;
};
// Shows a matrix with its numbers on shades: dark cells are far from 0. Shows at most 64 rows and
// columns, and only the first plane of a tensor with more axes.
CONVSCOPE_API void heat_map(const Tensor& matrix, const HeatMapOptions& options = {});

// Shows how often a watched lesson read each element of an array. If the array has more than two
// axes, only the first plane is shown. Throws an error when the recorder does not know the array.
CONVSCOPE_API void show_reads(const Recorder& recorder, const std::string& array,
                              const std::string& title = "");

}  // namespace convscope
