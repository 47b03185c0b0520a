// SPDX-License-Identifier: Apache-2.0
// subset.cpp: parts of a data set. Mean and std remain those of the whole set.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "datasets/loader.h"
#include "datasets/sample_order.h"

namespace convscope {
namespace {

// With a class for each pixel, a sample belongs to no single class. Then all samples are one group,
// and their order is a seeded shuffle.
std::vector<std::int64_t> balanced_indices(const Dataset& from, std::uint64_t seed) {
  if (from.label_shape().rank() > 0) {
    const std::vector<std::int32_t> one_group(static_cast<std::size_t>(from.size()));
    return balanced_order(one_group.data(), from.size(), 1, seed);
  }
  return balanced_order(from.labels.data<std::int32_t>(), from.size(), from.classes, seed);
}

// Returns the rows of a tensor with these indices along axis 0.
Tensor rows_of(const Tensor& from, const std::vector<std::int64_t>& indices) {
  Shape shape = from.shape();
  shape.set(0, std::ssize(indices));
  Tensor out = Tensor::empty(shape, from.dtype());
  const std::size_t bytes = static_cast<std::size_t>(shape.stride(0)) * size_of(from.dtype());
  auto* to = static_cast<std::byte*>(out.raw_data());
  for (const std::int64_t index : indices) {
    CONVSCOPE_CHECK(index >= 0 && index < from.dim(0), "subset", "expected indices below ",
                    from.dim(0), ", got ", index);
    std::memcpy(
        to,
        static_cast<const std::byte*>(from.raw_data()) + static_cast<std::size_t>(index) * bytes,
        bytes);
    to += bytes;
  }
  return out;
}

}  // namespace

Dataset subset(const Dataset& from, const std::vector<std::int64_t>& indices) {
  Dataset out = from;
  out.labels = rows_of(from.labels, indices);
  if (from.points != nullptr) {
    out.points = std::make_shared<const PointSet>(from.points->subset(indices));
  } else {
    out.images = rows_of(from.images, indices);
  }
  return out;
}

Dataset limited(const Dataset& from, std::int64_t limit, std::uint64_t seed) {
  CONVSCOPE_CHECK(limit >= 0, "dataset", "expected a limit of at least 0 samples, got ", limit);
  if (limit == 0 || limit >= from.size()) return from;
  std::vector<std::int64_t> indices = balanced_indices(from, seed);
  indices.resize(static_cast<std::size_t>(limit));
  std::sort(indices.begin(), indices.end());
  return subset(from, indices);
}

std::pair<Dataset, Dataset> split(const Dataset& from, std::int64_t count, std::uint64_t seed) {
  CONVSCOPE_CHECK(count >= 0 && count <= from.size(), "dataset", "expected to split off 0 to ",
                  from.size(), " samples of ", from.name, ", got ", count);
  std::vector<std::int64_t> indices = balanced_indices(from, seed);
  const auto middle = indices.begin() + count;
  std::sort(indices.begin(), middle);
  std::sort(middle, indices.end());
  return {subset(from, {middle, indices.end()}), subset(from, {indices.begin(), middle})};
}

}  // namespace convscope
