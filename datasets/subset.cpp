// SPDX-License-Identifier: Apache-2.0
// subset.cpp: parts of a data set. Mean and std remain those of the whole set.
#include <algorithm>
#include <cstring>

#include "datasets/loader.h"
#include "datasets/sample_order.h"

namespace convscope {
namespace {

std::vector<std::int64_t> balanced_indices(const Dataset& from, std::uint64_t seed) {
  return balanced_order(from.labels.data<std::int32_t>(), from.size(), from.classes, seed);
}

}  // namespace

Dataset subset(const Dataset& from, const std::vector<std::int64_t>& indices) {
  const auto count = static_cast<std::int64_t>(indices.size());
  Dataset out = from;
  out.labels = Tensor::empty({count}, DType::i32);
  if (from.points != nullptr) {
    out.points = std::make_shared<const PointSet>(from.points->subset(indices));
    for (std::int64_t i = 0; i < count; ++i) {
      out.labels.data<std::int32_t>()[i] =
          from.labels.data<std::int32_t>()[indices[static_cast<std::size_t>(i)]];
    }
    return out;
  }
  const Shape sample = from.sample_shape();
  const auto sample_bytes = static_cast<std::size_t>(sample.numel());
  out.images = Tensor::empty({count, sample[0], sample[1], sample[2]}, DType::u8);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = indices[static_cast<std::size_t>(i)];
    CONVSCOPE_CHECK(index >= 0 && index < from.size(), "subset", "expected indices below ",
                    from.size(), ", got ", index);
    std::memcpy(out.images.data<std::uint8_t>() + i * sample.numel(),
                from.images.data<std::uint8_t>() + index * sample.numel(), sample_bytes);
    out.labels.data<std::int32_t>()[i] = from.labels.data<std::int32_t>()[index];
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
